"""Latency and goodput of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tt_scheduler.simulate.run import Run, Served


def percentile(values: Sequence[float], share: float) -> float:
    """Value below which `share` (0 to 1) of the values lie, interpolated; 0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def ttft(served: Served) -> float:
    """Seconds from arrival to the first token."""
    return served.tokens[0] - served.arrival.at


def gaps(served: Served) -> list[float]:
    """Seconds between one token and the next."""
    return [later - earlier for earlier, later in zip(served.tokens, served.tokens[1:], strict=False)]


@dataclass(frozen=True, slots=True)
class Target:
    """What a good answer is: first token within `ttft_s`, no gap between tokens over `gap_s`. Seconds."""

    ttft_s: float = 2.0
    gap_s: float = 0.2


@dataclass(frozen=True, slots=True)
class Results:
    """Figures of a run. Times in seconds; goodput and busy are shares of 1."""

    requests: int
    goodput: float
    ttft_p50: float
    ttft_p99: float
    itl_p50: float
    itl_p99: float
    itl_max: float
    e2e_p50: float
    e2e_p99: float
    prefill_steps: int
    decode_steps: int
    busy: float

    @classmethod
    def of(cls, run: Run, target: Target | None = None) -> Results:
        target = target or Target()
        waits = [ttft(served) for served in run.served]
        per_request = [gaps(served) for served in run.served]
        flat = sorted(gap for request in per_request for gap in request)
        whole = [served.tokens[-1] - served.arrival.at for served in run.served]
        good = sum(
            wait <= target.ttft_s and max(own, default=0.0) <= target.gap_s
            for wait, own in zip(waits, per_request, strict=True)
        )
        return cls(
            requests=len(run.served),
            goodput=good / len(run.served) if run.served else 0.0,
            ttft_p50=percentile(waits, 0.5),
            ttft_p99=percentile(waits, 0.99),
            itl_p50=percentile(flat, 0.5),
            itl_p99=percentile(flat, 0.99),
            itl_max=max(flat, default=0.0),
            e2e_p50=percentile(whole, 0.5),
            e2e_p99=percentile(whole, 0.99),
            prefill_steps=run.phase_counts["prefill"],
            decode_steps=run.phase_counts["decode"],
            busy=run.busy_share,
        )
