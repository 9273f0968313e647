"""How a breach is reported, and what the model's limits are."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tt_hostmesh.adapter.images import Placeholder
from tt_hostmesh.adapter.lanes import Placement
from tt_hostmesh.adapter.protocol import DecodeProtocol
from tt_hostmesh.errors import ContractError


@dataclass(frozen=True, slots=True)
class Where:
    """A method of a model class, for messages."""

    model: str
    method: str

    def breach(self, clause: str, text: str) -> ContractError:
        """The error to raise. `clause` is a section of the contract, for example "1.6"."""
        return ContractError(f"{self.model}.{self.method}", clause, text)

    def require(self, holds: object, clause: str, text: str) -> None:
        """Raises ContractError unless `holds`."""
        if not holds:
            raise self.breach(clause, text)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a call is measured against. Blocks are unknown (0) until the cache is allocated. stateful: sequences have
    state by slot, which goes forward only. placeholder: of a model that sees. turns: it counts rotary positions in
    three axes. lookahead: tokens behind its last position that a row may have blocks for, at least one block."""

    model: str
    protocol: DecodeProtocol
    vocab_size: int
    placement: Placement
    num_blocks: int = 0
    block_size: int = 0
    stateful: bool = False
    placeholder: Placeholder | None = None
    turns: bool = False
    top_logprobs: int = 0
    lookahead: int = 0

    @property
    def rows(self) -> int:
        return self.placement.max_batch_size

    @property
    def tail(self) -> int:
        """Blocks that a row may list beyond the one its last position needs: the engine allocates a step ahead."""
        return max(1, -(-self.lookahead // self.block_size))

    @property
    def max_seq_len(self) -> int:
        return self.placement.max_seq_len


def strict_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """TT_HOST_STRICT: 1 (default) or 0. Raises ValueError for anything else."""
    value = environ.get("TT_HOST_STRICT", "").strip() or "1"
    if value not in ("0", "1"):
        raise ValueError(f"TT_HOST_STRICT={value!r} is unknown: allowed are 1 (check every call) and 0")
    return value == "1"
