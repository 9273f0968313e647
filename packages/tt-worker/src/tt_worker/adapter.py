"""ModelAdapter: drives one tt-metal model object through its contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tt_sampling.parameters import one_row
from tt_worker.inputs import DecodeInputs, PrefillInputs
from tt_worker.media import keywords
from tt_worker.methods import AdapterError, Method, optional_method
from tt_worker.outcome import Outcome, blocks_of, is_host_result, joined, outcome_of, with_rope_deltas
from tt_worker.reload import ReloadPlan
from tt_worker.tensors import Tensors, tensor_over


@dataclass(frozen=True, slots=True)
class TraceMode:
    """trace_mode all | decode_only | none: which calls replay a captured trace (tt-metal contract 1.5, 1.6)."""

    prefill: bool
    decode: bool

    @classmethod
    def of(cls, option: str) -> TraceMode:
        modes = {"all": cls(True, True), "decode_only": cls(False, True), "none": cls(False, False)}
        if option not in modes:
            raise ValueError(f"trace_mode is {option!r}: allowed are {', '.join(modes)}")
        return modes[option]


class ModelAdapter:
    """Built once from the model object: which methods it has, which keywords they take, which decode protocol it
    speaks.

    rows:       B, the rows of every decode call, of all lanes
    multimodal: the class takes images
    mrope:      rotary positions in three axes: prefill answers with deltas, and decode takes them
    """

    def __init__(
        self,
        model: Any,
        *,
        rows: int,
        vocab_size: int,
        trace: TraceMode,
        event_synchronize: Callable[[Any], None],
        lanes: int = 1,
        multimodal: bool = False,
        mrope: bool = False,
    ) -> None:
        self.model = model
        self.rows = rows
        self.lanes = lanes
        self.multimodal = multimodal
        self.mrope = mrope
        self.vocab_size = vocab_size
        self.trace = trace
        self._event_synchronize = event_synchronize
        self._prefill = Method(model, "prefill_forward", "1.5")
        self._decode = Method(model, "decode_forward", "1.6")
        self._read = optional_method(model, "read_decode_output", "1.7")
        self._process = optional_method(model, "process_decode_output_host", "1.7")
        self._release = optional_method(model, "release_request", "1.12")
        self._release_captures = optional_method(model, "release_persistent_capture", "1.12")
        contract = getattr(model, "decode_input_update_contract", 0) or 0
        self.reload_commands = contract >= 1
        self._tensors = Tensors()
        self.kv_cache: Any = None
        self.layer_groups: tuple[int, ...] = ()
        self.prefill_width = 1

    def prefill(self, inputs: PrefillInputs, sampling: Any | None) -> Outcome:
        """Run a prefill and wait for it. `sampling`: the device's parameters, or None to get logits.

        Rows of the outcome are in the order of `inputs.rows`. A legacy class that computes several rows at once writes
        their results by slot, and fails where a slot is not below their number: it is given such rows one by one.
        Source: tt-metal contract 7.
        """
        count = len(inputs.rows)
        if self.reload_commands or self.lanes > 1 or count == 1 or max(inputs.rows) < count:
            return self._call_prefill(inputs, sampling)
        return joined([self._call_prefill(inputs.one(i), one_row(sampling, i)) for i in range(count)])

    def _call_prefill(self, inputs: PrefillInputs, sampling: Any | None) -> Outcome:
        required: dict[str, Any] = {
            "tokens": torch.from_numpy(inputs.tokens),
            **self._tables(inputs.page_tables, tensor_over),
            "kv_cache": self.kv_cache,
            "enable_trace": self.trace.prefill,
            "prompt_lens": inputs.ends,
            "start_pos": inputs.start_pos,
        }
        if sampling is not None:
            required["sampling_params"] = sampling
        if self.multimodal:
            required.update(keywords(inputs.images))
        value = self._prefill(required, {"empty_slots": inputs.rows})
        if self.prefill_width > 1:
            return blocks_of(value, rows=len(inputs.rows), width=self.prefill_width, label=self._prefill.label)
        read = with_rope_deltas if self.mrope else outcome_of
        return read(value, rows=len(inputs.rows), vocab_size=self.vocab_size, label=self._prefill.label)

    def submit_decode(
        self,
        inputs: DecodeInputs,
        sampling: Any | None,
        plan: ReloadPlan,
        histories: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None,
        rope_deltas: list[int] | None = None,
        width: int | None = None,
    ) -> Callable[[], Outcome]:
        """Submit a decode step without waiting. Call the answer once, to wait for the step and get its outcome (B
        rows).

        histories: prompt and output token ids of all rows, int32 [B, L] padded with -1; needed while a row has a
                   penalty.
        rope_deltas: by row up to the last live one, when a request is new or rows changed; None: as before. Sent with
                     M-RoPE only.
        width: tokens that a model with block output answers for each row, a lone one alone; None: of any other model.
        """
        required: dict[str, Any] = {
            "tokens": self._tensors.of(inputs.tokens),
            "start_pos": self._tensors.of(inputs.start_pos),
            **self._tables(inputs.page_tables, self._tensors.of),
            "kv_cache": self.kv_cache,
            "enable_trace": self.trace.decode,
            "read_from_device": False,
            **self._protocol(plan, sampling is not None),
        }
        if sampling is not None:
            required["sampling_params"] = sampling
            if histories is not None:
                required["prompt_tokens"] = torch.from_numpy(histories[0])
                required["output_tokens"] = torch.from_numpy(histories[1])
        if self.mrope:
            required["rope_deltas_all_users"] = rope_deltas
        payload = self._decode(required)
        return self._reader(payload, is_tokens=sampling is not None, width=width)

    def release(self, row: int) -> None:
        """The row's request finished or was preempted: models that keep state of their own drop it."""
        if self._release is not None:
            self._release.function(row)

    def release_captures(self) -> None:
        """The worker ends; the mesh is still open."""
        if self._release_captures is not None:
            self._release_captures.function()

    def _tables(
        self, page_tables: tuple[NDArray[np.int32], ...], tensor: Callable[[NDArray[np.int32]], torch.Tensor]
    ) -> dict[str, Any]:
        """The first group's table, and with several groups one table a layer, int32 [B, W] whatever the call's rows.

        Layers of one group are given one tensor. Source: tt-metal contract 1.5.
        """
        first = tensor(page_tables[0])
        if len(page_tables) == 1:
            return {"page_table": first}
        groups = [tensor(_padded(table, self.rows)) for table in page_tables]
        return {"page_table": first, "page_tables_per_layer": [groups[group] for group in self.layer_groups]}

    def _protocol(self, plan: ReloadPlan, on_device: bool) -> Mapping[str, bool]:
        """The keywords of the model's decode protocol. The two protocols are never mixed."""
        if self.reload_commands:
            return {
                "reload_inputs": plan.reload_inputs,
                "reload_page_table": plan.reload_page_table,
                "reload_sampling_params": plan.reload_sampling_params,
                "reset_sampling_state": plan.reset_sampling_state,
            }
        return {"reset_batch": plan.reload_inputs} if on_device else {}

    def _reader(self, payload: Any, *, is_tokens: bool, width: int | None) -> Callable[[], Outcome]:
        """Start the read-back now, before another step reuses the trace's buffers; finish it when called."""
        if is_host_result(payload):
            return lambda: self._outcome(payload, width)
        if self._process is None:
            raise AdapterError(
                f"{self._decode.label} returned {type(payload).__name__}, and there is no process_decode_output_host: "
                "tt-metal contract 1.6 wants host tensors or the read-back hooks"
            )
        if self._read is None:
            raise AdapterError(
                f"{self._decode.label} returned a device payload and there is no read_decode_output (1.7)"
            )
        host, events = self.model.read_decode_output(payload, async_read=True)
        process = self.model.process_decode_output_host

        def finish() -> Outcome:
            for event in events:
                self._event_synchronize(event)
            return self._outcome(process(host, is_tokens=is_tokens), width)

        return finish

    def _outcome(self, value: Any, width: int | None) -> Outcome:
        if width is not None:
            return blocks_of(value, rows=1 if width > 1 else self.rows, width=width, label=self._decode.label)
        return outcome_of(value, rows=self.rows, vocab_size=self.vocab_size, label=self._decode.label)


def _padded(table: NDArray[np.int32], rows: int) -> NDArray[np.int32]:
    if len(table) == rows:
        return table
    padded = np.zeros((rows, table.shape[1]), dtype=np.int32)
    padded[: len(table)] = table
    return padded
