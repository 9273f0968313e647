"""What a device did when: the record behind busy shares and gaps."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple


class Span(NamedTuple):
    """One command of a queue. Seconds of the monotonic clock, which all processes of a machine share."""

    label: str
    submitted: float
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def record_path(environ: Mapping[str, str] = os.environ) -> Path | None:
    """TT_HOST_TIMELINE: where an open mesh writes its spans when it is closed; None = they are not kept."""
    value = environ.get("TT_HOST_TIMELINE", "").strip()
    return Path(value) if value else None


def write_spans(path: Path, spans: Iterable[Span]) -> None:
    """Append one JSON list [label, submitted, start, end] a line."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(span) + "\n" for span in spans)


def read_spans(path: Path) -> list[Span]:
    """The spans of a file, in the order in which the device ran them."""
    return [Span(*json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def busy_share(spans: Iterable[Span], begin: float, end: float) -> float:
    """Share of [begin, end], monotonic seconds, that the device worked."""
    inside = sum(max(0.0, min(span.end, end) - max(span.start, begin)) for span in spans)
    return inside / (end - begin)
