"""How the rows of this worker are sampled: the device's parameters, the placement and the host sampler, kept in
step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tt_sampling.device import DeviceParams
from tt_sampling.parameters import RowSampling
from tt_sampling.placement import DeviceSampler, Phase, Placement, PlacementTable
from tt_sampling.reasons import ReasonTally
from tt_worker.histories import Histories
from tt_worker.request import RequestState


class HostSample(Protocol):
    """One token a row, and logprobs in the engine's form for whoever asks for them."""

    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def late(self) -> Callable[[], Any] | None: ...
    @property
    def failed(self) -> Mapping[int, str]:
        """Position in the call -> why this request cannot go on."""
        ...


class HostSampler(Protocol):
    """The engine's host sampler (tt_sampling.vllm.host.HostSampling under vLLM)."""

    def admit(
        self, row: int, params: Any, prompt_token_ids: list[int], output_token_ids: list[int], *, request_id: str
    ) -> RowSampling:
        """A request takes a row; `output_token_ids` is its live list. Returns its parameters in plain values."""
        ...

    def release(self, row: int) -> None: ...
    def device_logprobs(self, token_ids: list[int], given: DeviceLogprobs, asked: Sequence[int | None]) -> Any:
        """Logprobs that the device computed, in the engine's form. `asked`: top logprobs of each request."""
        ...

    def sample(
        self, logits: Any, rows: Sequence[int], *, advance: Sequence[bool] | None, grammar: GrammarMask | None
    ) -> HostSample: ...


# Of the sampled tokens, [n], and None; or of the best candidates, [n, m], and their ids.
DeviceLogprobs = tuple[Any, Any]

# Packed masks [k, ceil(V / 32)] int32, bit 1 = allowed, and which mask belongs to which row.
GrammarMask = tuple[Any, Mapping[int, int]]


class RowSamplers:
    """Everything that must hear of a row's coming and going in order to sample it."""

    def __init__(
        self, rows: int, vocab_size: int, device: DeviceSampler, host: HostSampler, tally: ReasonTally | None = None
    ) -> None:
        self.device = DeviceParams(rows, vocab_size)
        self.host = host
        self.histories = Histories(rows)
        self.tally = tally or ReasonTally()
        self.version = 0
        self._placement = PlacementTable(device)

    def admit(self, state: RequestState[Any]) -> None:
        self.version += 1
        sampling = self.host.admit(state.row, state.params, state.prompt, state.output, request_id=state.request_id)
        self.device.set(state.row, sampling)
        self._placement.set(state.row, sampling, state.output)
        state.penalised = sampling.penalised
        state.logprobs = sampling.logprobs
        if state.penalised:
            self.histories.set(state.row, state.prompt, state.output)

    def release(self, state: RequestState[Any]) -> None:
        self.version += 1
        self.device.clear(state.row)
        self._placement.clear(state.row)
        self.host.release(state.row)
        if state.penalised:
            self.histories.clear(state.row)

    def place_prefill(self, states: Sequence[RequestState[Any]], final: Sequence[bool]) -> Placement:
        """Where a prefill step is sampled. `final`: whether a token comes out of each request's chunk."""
        # A prefill call cannot say which of its tokens were generated, and penalties tell them from the prompt's.
        replayed = [state.row for state in states if state.penalised and state.output]
        rows = [state.row for state in states]
        placement = self._placement.place(Phase.PREFILL, rows, replayed=replayed, chunk_not_final=not all(final))
        if any(final):
            self.tally.count(placement.reasons)
        return placement

    def place_decode(self, rows: Sequence[int]) -> Placement:
        """Where a decode step is sampled."""
        placement = self._placement.place(Phase.DECODE, rows)
        self.tally.count(placement.reasons)
        return placement

    def record(
        self,
        states: Sequence[RequestState[Any]],
        tokens: Sequence[int],
        final: Sequence[bool],
        histories: Sequence[list[int]] | None = None,
    ) -> None:
        """The tokens of a step are known; where `final` is False there is none. A tenancy that ended keeps its own
        history but touches no row. histories: the requests' output lists, if there is no more to do than append."""
        if histories is not None:
            for history, token in zip(histories, tokens, strict=True):
                history.append(token)
            return
        for state, token, counts in zip(states, tokens, final, strict=True):
            if counts:
                state.output.append(token)
                if state.penalised and state.alive:
                    self.histories.append(state.row, token)
