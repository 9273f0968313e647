"""What changed between two snapshots, and whom it concerns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from surface.snapshot import Snapshot, Value
from surface.uses import Use

BODY = re.compile(r" #[0-9a-f]{8}$")
PROBED = {"optional", "choice", "name"}
"""Uses that a release may answer with nothing: what is asked for with a default, and names of ours."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change. ``kind``: added, removed, changed, body. ``needed``: we have no answer to its absence."""

    kind: str
    symbol: str
    before: str
    after: str
    used_by: tuple[str, ...]
    needed: bool

    def __str__(self) -> str:
        what = {
            "added": self.after,
            "removed": self.before,
            "changed": f"{self.before}  ->  {self.after}",
            "body": "same signature, another body: read it",
        }[self.kind]
        breaks = "  BREAKS" if self.breaks else ""
        return f"{self.kind:<8} {self.symbol}{breaks}\n         {what}\n         used by {', '.join(self.used_by)}"

    @property
    def breaks(self) -> bool:
        """Gone, though we do not ask whether it is there; or a method that we must define and do not know of."""
        return self.needed and (self.kind == "removed" or (self.kind == "added" and ".__abstract__." in self.symbol))


def flat(symbols: Mapping[str, Value]) -> dict[str, str]:
    """Fields and abstract methods as symbols of their own; what a release lacks is left out."""
    found: dict[str, str] = {}
    for symbol, value in symbols.items():
        if isinstance(value, str):
            found[symbol] = value
        elif isinstance(value, list):
            found |= {f"{symbol}.{name}": "abstract" for name in value}
        elif value is not None:
            found |= {f"{symbol}.{name}": kind for name, kind in value.items()}
    return found


def compare(before: Snapshot, after: Snapshot, uses: Iterable[Use]) -> list[Change]:
    """Every difference in what we use. A symbol that only one snapshot knows of is compared all the same."""
    users: dict[str, list[Use]] = {}
    known = list(uses)
    asked = {use.symbol for use in known if use.how in PROBED}
    for use in known:
        behind = behind_a_question(use.symbol, asked)
        users.setdefault(use.symbol, []).append(replace(use, how="optional") if behind else use)
    old, new = flat(before.symbols), flat(after.symbols)
    return [
        change
        for symbol in sorted(old.keys() | new.keys())
        for change in _change(symbol, old.get(symbol), new.get(symbol), _users(symbol, users), new)
    ]


def behind_a_question(symbol: str, asked: Collection[str]) -> bool:
    """Whether a path goes through something that is asked for: where that is absent, the rest is not reached."""
    return any(symbol.startswith((f"{each}.", f"{each}(", f"{each}[")) for each in asked)


def _users(symbol: str, users: Mapping[str, list[Use]]) -> list[Use]:
    return users.get(symbol) or users.get(symbol.rpartition(".")[0], [])


def _change(
    symbol: str, old: str | None, new: str | None, uses: list[Use], after: Mapping[str, str]
) -> Iterator[Change]:
    if old == new or not uses:
        return
    files = tuple(sorted({f"{use.file}:{use.line}" for use in uses}))
    if old is None or new is None:
        kind = "added" if old is None else "removed"
    elif BODY.sub("", old) == BODY.sub("", new):
        kind = "body"
    else:
        kind = "changed"
    yield Change(kind, symbol, BODY.sub("", old or ""), BODY.sub("", new or ""), files, _needed(symbol, uses, after))


def _needed(symbol: str, uses: list[Use], after: Mapping[str, str]) -> bool:
    """An abstract method that we do define is no trouble; a field may go, unless it is named somewhere."""
    base, pseudo, name = symbol.partition(".__abstract__.")
    if pseudo:
        return f"{base}.{name}" not in after
    if ".__fields__." in symbol:
        return False
    return not any(use.how in PROBED for use in uses)


def summary(before: str, after: str, changes: list[Change]) -> str:
    """The report as text, breaking changes first."""
    counts = ", ".join(
        f"{sum(c.kind == kind for c in changes)} {kind}" for kind in ("added", "removed", "changed", "body")
    )
    breaking = sum(change.breaks for change in changes)
    head = f"vLLM {before} -> {after}: of what we use {counts}; {breaking} without an answer in our code"
    ordered = sorted(changes, key=lambda change: (not change.breaks, change.kind == "body", change.symbol))
    return "\n".join([head, *map(str, ordered)])
