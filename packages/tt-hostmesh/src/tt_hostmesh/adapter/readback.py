"""The way of a decode result from the device to the host."""

from dataclasses import dataclass

from torch import Tensor

from tt_hostmesh.timeline import HostEvent

Logprobs = Tensor | tuple[Tensor, Tensor]
"""Of the sampled tokens, float32 [B]; or of the best candidates, float32 [B, m], with their ids, int32 [B, m]."""

Result = tuple[Tensor, Logprobs | None]
"""(tokens [B] or logits [B, 1, V], logprobs or None)"""


@dataclass(eq=False, slots=True)
class DevicePayload:
    """What decode_forward(read_from_device=False) returns: a result that may not exist yet."""

    event: HostEvent[Result]
    is_tokens: bool


@dataclass(eq=False, slots=True)
class HostPayload:
    """Where read_decode_output lets the device copy the result. Valid once the event is done."""

    source: DevicePayload
    event: HostEvent[Result]
    processed: bool = False

    @property
    def is_tokens(self) -> bool:
        return self.source.is_tokens
