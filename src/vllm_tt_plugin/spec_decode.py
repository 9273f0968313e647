"""Names of the speculative-decoding contract that model classes import: what they declare and what they return.

Importing them is all that works today. This release verifies no drafts: the platform refuses `--speculative-config`
whatever a class declares (docs/rules.md, `no_speculative_decoding`), so no plan is asked for and no verify step sent.
The types check what they are given, so that a class written against them is ready. No torch: tensors are anything
with `shape` and `tolist`. Source: tt-metal contract 1.11; the order of parameters is ours where it says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, cast

PLACEHOLDER_TOKEN_ID = -1
"""Token of a column that holds no draft; its position is -1 too."""

MODEL_OWNED_DRAFTER = "vllm_tt_plugin.model_owned_drafter"
"""The `model` of a speculative configuration with method custom_class: the served class drafts. Never imported."""

ACCEPT_MODE_LOGITS = "logits"
ACCEPT_MODE_ARGMAX_IDS = "argmax_ids"
ACCEPT_MODE_FUSED_SAMPLE = "fused_sample"
ACCEPT_MODES = frozenset({ACCEPT_MODE_LOGITS, ACCEPT_MODE_ARGMAX_IDS, ACCEPT_MODE_FUSED_SAMPLE})

DRAFTER_STATE_INTERNAL = "internal"
DRAFTER_STATE_PAGED = "paged"
DRAFTER_STATE_SHARED_WITH_TARGET = "shared_with_target"
DRAFTER_STATES = frozenset({DRAFTER_STATE_INTERNAL, DRAFTER_STATE_PAGED, DRAFTER_STATE_SHARED_WITH_TARGET})

DRAFTER_TARGET_CACHE_NAMED_LAYER_CACHES = "named_layer_caches"
DRAFTER_TARGET_CACHE_ABSOLUTE_POSITIONS = "absolute_positions"
DRAFTER_TARGET_CACHE_REQUIREMENTS = frozenset(
    {DRAFTER_TARGET_CACHE_NAMED_LAYER_CACHES, DRAFTER_TARGET_CACHE_ABSOLUTE_POSITIONS}
)

SPEC_REQUIREMENT_DEVICE_PROPOSE = "device_propose"
SPEC_REQUIREMENT_HIDDEN_FEED = "hidden_feed"
SPEC_REQUIREMENT_DRAFTER_SCORES = "drafter_scores"
SPEC_REQUIREMENT_PAGED_DRAFTER_CACHE = "paged_drafter_cache"
SPEC_REQUIREMENTS = frozenset(
    {
        SPEC_REQUIREMENT_DEVICE_PROPOSE,
        SPEC_REQUIREMENT_HIDDEN_FEED,
        SPEC_REQUIREMENT_DRAFTER_SCORES,
        SPEC_REQUIREMENT_PAGED_DRAFTER_CACHE,
    }
)

HIDDEN_HANDOFF_ON_DEVICE = "on_device"
HIDDEN_HANDOFF_ROUNDTRIP = "roundtrip"
HIDDEN_HANDOFFS = frozenset({HIDDEN_HANDOFF_ON_DEVICE, HIDDEN_HANDOFF_ROUNDTRIP})


class SpecContractError(ValueError):
    """A declaration or a tensor breaks the contract. The text names it, its value and what is allowed."""

    def __init__(self, what: str, value: object, allowed: str) -> None:
        super().__init__(f"{what} is {value!r}: allowed {allowed}; correct the model class")


class Tensor(Protocol):
    """A host tensor of torch or numpy."""

    @property
    def shape(self) -> Any: ...
    def tolist(self) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecPlan:
    """A class accepts speculative decoding, on these terms.

    effective_k:            drafts a step; at least 1, and not more than was asked for
    lanes_per_request:      device rows that one request takes
    extra_bytes_per_seq, extra_bytes_per_token:  device memory that the drafter takes beside the KV cache
    accept_modes:           how a verify step can answer: any of ACCEPT_MODES, at least one
    drafter_state:          who keeps the drafter's cache: one of DRAFTER_STATES; a paged one is not served
    drafter_target_cache_requires:  what the drafter needs of the target's cache
    supports_narrow_decode: a step without drafts may be sent as a plain decode

    Raises SpecContractError for any other value.
    """

    effective_k: int
    lanes_per_request: int = 1
    extra_bytes_per_seq: int = 0
    extra_bytes_per_token: int = 0
    accept_modes: Collection[str] = (ACCEPT_MODE_ARGMAX_IDS,)
    drafter_state: str = DRAFTER_STATE_INTERNAL
    drafter_target_cache_requires: Collection[str] = ()
    supports_narrow_decode: bool = False

    def __post_init__(self) -> None:
        for name, least in (("effective_k", 1), ("lanes_per_request", 1), *_BYTES):
            _whole(f"SpecPlan.{name}", getattr(self, name), least)
        for name, allowed in _DECLARED:
            declared = normalize_declared_values(getattr(self, name), allowed, name=f"SpecPlan.{name}")
            object.__setattr__(self, name, declared)
        if not self.accept_modes:
            raise SpecContractError("SpecPlan.accept_modes", (), f"at least one of {_listed(ACCEPT_MODES)}")
        if self.drafter_state not in DRAFTER_STATES - {DRAFTER_STATE_PAGED}:
            allowed = f"{_listed(DRAFTER_STATES)}, of which {DRAFTER_STATE_PAGED} is not served"
            raise SpecContractError("SpecPlan.drafter_state", self.drafter_state, allowed)
        if not isinstance(cast(object, self.supports_narrow_decode), bool):
            raise SpecContractError("SpecPlan.supports_narrow_decode", self.supports_narrow_decode, "True or False")

    def as_dict(self) -> dict[str, Any]:
        """The plan as JSON values, the form in which a configuration carries it."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, **{name: list(values[name]) for name, _ in _DECLARED}}


_BYTES = (("extra_bytes_per_seq", 0), ("extra_bytes_per_token", 0))
_DECLARED = (("accept_modes", ACCEPT_MODES), ("drafter_target_cache_requires", DRAFTER_TARGET_CACHE_REQUIREMENTS))


@dataclass(frozen=True, slots=True)
class SpecReject:
    """A class declines what was asked for. supported_k: a number of drafts that it would take, if there is one."""

    reason: str
    supported_k: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(cast(object, self.reason), str) or not self.reason:
            raise SpecContractError("SpecReject.reason", self.reason, "a text for the operator")
        if self.supported_k is not None:
            _whole("SpecReject.supported_k", self.supported_k, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOutput:
    """What decode_forward answers to a verify step of B rows and K drafts.

    argmax_ids:  int [B, 1+K]; column j is the token that draft j must equal, column num_valid the bonus token
    logits:      float [B, 1+K, V]
    hidden:      opaque, for the drafter

    Raises SpecContractError when there is neither, or when their shapes are not such.
    """

    argmax_ids: Tensor | None = None
    logits: Tensor | None = None
    hidden: Any = None

    def __post_init__(self) -> None:
        if self.argmax_ids is None and self.logits is None:
            raise SpecContractError("VerifyOutput", "empty", "argmax_ids, logits or both")
        for name, given, rank in (("argmax_ids", self.argmax_ids, 2), ("logits", self.logits, 3)):
            if given is not None and (len(given.shape) != rank or given.shape[1] < 2):
                raise SpecContractError(f"the shape of VerifyOutput.{name}", tuple(given.shape), _VERIFY_SHAPES[name])


_VERIFY_SHAPES = {"argmax_ids": "[B, 1+K]", "logits": "[B, 1+K, V]"}


@dataclass(frozen=True, slots=True)
class DraftOutput:
    """What propose_draft_tokens answers for B rows and K drafts.

    draft_token_ids:  int [B, K]
    num_valid:        int [B], drafts of each row, 0 for none; None: all K
    draft_scores:     opaque

    Raises SpecContractError when the shapes differ from that, or a count is not 0..K.
    """

    draft_token_ids: Tensor
    num_valid: Tensor | None = None
    draft_scores: Any = None

    def __post_init__(self) -> None:
        shape = tuple(self.draft_token_ids.shape)
        if len(shape) != 2 or shape[1] < 1:
            raise SpecContractError("the shape of DraftOutput.draft_token_ids", shape, "[B, K] with K at least 1")
        if self.num_valid is not None:
            _counts("DraftOutput.num_valid", self.num_valid, rows=shape[0], least=0, most=shape[1])


def check_spec_side_tensors(num_valid_drafts: Tensor, accepted_counts: Tensor, rows: int, num_drafts: int) -> None:
    """Check the two counts that go with a verify step.

    num_valid_drafts: int [rows], 0..num_drafts.
    accepted_counts:  int [rows], 1..1+num_drafts: 1 after a prefill or a plain step, and on padding rows.

    Raises:
        SpecContractError: a shape or a value is another.
    """
    _counts("num_valid_drafts", num_valid_drafts, rows=rows, least=0, most=num_drafts)
    _counts("accepted_counts", accepted_counts, rows=rows, least=1, most=1 + num_drafts)


def normalize_declared_values(
    values: object, allowed: Collection[str] | None = None, *, name: str = "the declaration"
) -> tuple[str, ...]:
    """A declaration of names as a sorted tuple without duplicates: from None, one name, or any collection of names.

    Raises:
        SpecContractError: it is something else, or names what `allowed` does not hold.
    """
    if values is None:
        return ()
    given = (values,) if isinstance(values, str) else values
    expected = f"any of {_listed(allowed)}" if allowed is not None else "a collection of names"
    if not isinstance(given, Iterable) or isinstance(given, (Mapping, bytes)):
        raise SpecContractError(name, values, expected)
    items = list(cast("Iterable[object]", given))
    if not all(isinstance(item, str) and (allowed is None or item in allowed) for item in items):
        raise SpecContractError(name, values, expected)
    return tuple(sorted(set(cast("list[str]", items))))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _whole(what: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SpecContractError(what, value, f"a whole number of at least {least}")


def _counts(what: str, tensor: Tensor, *, rows: int, least: int, most: int) -> None:
    if tuple(tensor.shape) != (rows,):
        raise SpecContractError(f"the shape of {what}", tuple(tensor.shape), f"({rows},)")
    for row, value in enumerate(cast("list[object]", tensor.tolist())):
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise SpecContractError(f"{what}[{row}]", value, f"{least}..{most}")
