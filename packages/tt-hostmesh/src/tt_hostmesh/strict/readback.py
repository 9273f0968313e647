"""Every decode payload is read once, before the next step, and processed once, after its event (contract 1.7)."""

from dataclasses import dataclass

from tt_hostmesh.adapter.readback import DevicePayload, HostPayload
from tt_hostmesh.strict.breach import Where

CLAUSE = "1.7"


@dataclass(slots=True)
class ReadBack:
    """`unread`: the payload of the last step, if nobody has read it."""

    unread: DevicePayload | None = None

    def submitted(self, payload: DevicePayload) -> None:
        self.unread = payload

    def require_read(self, where: Where) -> None:
        """The last step was read before the next call reuses its buffers."""
        where.require(
            self.unread is None, CLAUSE, "the payload of the step before was never read, and its buffers are reused now"
        )

    def read(self, where: Where, payload: object) -> None:
        """Start of a read."""
        if not isinstance(payload, DevicePayload):
            raise where.breach(CLAUSE, f"{type(payload).__name__} is not what decode_forward returned")
        where.require(payload is self.unread, CLAUSE, "this payload was read before; each is read exactly once")
        self.unread = None

    def process(self, where: Where, payload: object, is_tokens: object) -> None:
        """Use of a result: a host payload whose event has passed, or a device payload nobody read."""
        if isinstance(payload, DevicePayload):
            self.read(where, payload)
            wanted = payload.is_tokens
        elif isinstance(payload, HostPayload):
            where.require(not payload.processed, CLAUSE, "this payload was processed before")
            where.require(payload.event.done(), CLAUSE, "the payload's event was not synchronised")
            payload.processed = True
            wanted = payload.is_tokens
        else:
            raise where.breach(CLAUSE, f"{type(payload).__name__} is not what read_decode_output returned")
        where.require(is_tokens is wanted, CLAUSE, f"is_tokens={is_tokens!r}, but the step returned {_kind(wanted)}")


def _kind(tokens: bool) -> str:
    return "tokens" if tokens else "logits"
