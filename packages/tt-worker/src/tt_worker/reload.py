"""Which parts of a decode step's inputs the device must take from the host: the reload commands of decode contract
v1."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ReloadPlan:
    """Four commands. Two invariants are checked here, where the value is built.

    reload_inputs:           take tokens and positions (and page tables) from the host
    reload_page_table:       take only the page tables from the host
    reload_sampling_params:  take the sampling parameters from the host
    reset_sampling_state:    restart the device sampler's state (seeds, penalty counts)
    Source: tt-metal contract 1.6.
    """

    reload_inputs: bool
    reload_page_table: bool
    reload_sampling_params: bool
    reset_sampling_state: bool

    def __post_init__(self) -> None:
        if self.reload_inputs and self.reload_page_table:
            raise ValueError("reload_inputs brings the page table along: reload_page_table must not be set with it")
        if self.reset_sampling_state and not self.reload_inputs:
            raise ValueError("reset_sampling_state needs reload_inputs")


class DecodeSituation(NamedTuple):
    """What a decode step is submitted under. Built at every step, so a tuple: that is three times as fast.

    layout:     changes when a row changes its tenant or a row is skipped
    pages:      versions of the page tables
    sampling:   version of the device sampling parameters
    on_device:  whether the step is sampled on the device
    """

    layout: Hashable
    pages: Hashable
    sampling: int
    on_device: bool


STEADY = ReloadPlan(False, False, False, False)
"""The device has everything."""

STEADY_WITH_BLOCKS = ReloadPlan(False, True, False, False)
"""All that changed is that requests have more blocks."""


class ReloadPlanner:
    """Compares each decode step with the last one the device accepted."""

    def __init__(self, *, resident_inputs: bool) -> None:
        """resident_inputs: the model keeps tokens and positions on the device (async decode, traced)."""
        self.resident_inputs = resident_inputs
        self._accepted: DecodeSituation | None = None

    def prefilled(self) -> None:
        """A prefill ran: it uses the device's input buffers and the sampler, so the next decode is a transition."""
        self._accepted = None

    def plan(self, now: DecodeSituation) -> ReloadPlan:
        last = self._accepted
        transition = (
            last is None
            or now.layout != last.layout
            or now.on_device != last.on_device
            or (now.on_device and now.sampling != last.sampling)
        )
        if last is not None and not transition and now.on_device and self.resident_inputs:
            return STEADY if now.pages == last.pages else STEADY_WITH_BLOCKS
        anew = now.on_device and transition
        return ReloadPlan(
            reload_inputs=True, reload_page_table=False, reload_sampling_params=anew, reset_sampling_state=anew
        )

    def accept(self, now: DecodeSituation) -> None:
        """The model took the call. Only now is it what the device holds."""
        self._accepted = now
