"""Rules about the end of a server."""

from __future__ import annotations

from tt_platform.config_facts import ConfigFacts
from tt_platform.findings import Finding, settle_default
from tt_platform.rules.rule import rule

CLOSING_WINDOW = 30  # seconds; closing the largest mesh takes a few


@rule(
    "A stopped engine gets time to close the mesh, where `--shutdown-timeout 0`, vLLM's default, would kill it "
    "with the mesh open. Requests in flight are aborted at once all the same."
)
def closing_window(facts: ConfigFacts) -> Finding | None:
    if facts.shutdown_timeout != 0 or facts.closing_window:
        return None
    return settle_default(
        "--shutdown-timeout",
        0,
        f"Setting shutdown_timeout={CLOSING_WINDOW} s, the longest a stopped engine may take to close the mesh; "
        "requests in flight are aborted at once",
        shutdown_timeout=CLOSING_WINDOW,
        closing_window=True,
    )


RULES = (closing_window,)
