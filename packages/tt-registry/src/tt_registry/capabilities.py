"""What a model class says it can do, read once, checked, and typed.

tt-metal's classes declare `model_capabilities`, a plain dict that any code may spell wrongly. Here a wrong type is an
error that names the class and the key, and a key that nobody knows is kept and reported instead of lost.

Source: tt-metal contract, section 1.14.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from types import MappingProxyType
from typing import Any, cast

_KEY = "capability"


class CapabilityError(TypeError):
    """A model class declares something of the wrong type or value."""

    def __init__(self, owner: str, key: str, value: object, allowed: str) -> None:
        self.owner = owner
        self.key = key
        super().__init__(
            f"{owner}: {key} is {value!r} ({type(value).__name__}): allowed {allowed}; correct the model class"
        )


@dataclass(frozen=True, slots=True)
class Kind:
    """How one declared value is read: `parse` answers the value to keep, or raises ValueError."""

    allowed: str
    parse: Callable[[object], object]


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _count(minimum: int, *, optional: bool = False) -> Kind:
    def parse(value: object) -> int | None:
        if value is None and optional:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise ValueError
        return value

    return Kind(f"an integer >= {minimum}" + (" or None" if optional else ""), parse)


def _choices(*names: str) -> Kind:
    def parse(value: object) -> frozenset[str]:
        if value is None:
            return frozenset()
        if isinstance(value, str):
            value = (value,)
        if not isinstance(value, Collection) or isinstance(value, Mapping):
            raise ValueError
        given = [item for item in cast("Collection[object]", value) if isinstance(item, str)]
        if len(given) != len(cast("Collection[object]", value)) or not set(given) <= set(names):
            raise ValueError
        return frozenset(given)

    return Kind(f"any of {', '.join(names)}", parse)


def _mapping(value: object) -> Mapping[str, object] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError
    items = cast("Mapping[object, object]", value)
    if not all(isinstance(key, str) for key in items):
        raise ValueError
    return MappingProxyType(dict(cast("Mapping[str, object]", items)))


def _batch_sizes(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, Collection) or isinstance(value, (str, bytes, Mapping)):
        raise ValueError
    sizes = [_count(1).parse(size) for size in cast("Collection[object]", value)]
    return tuple(sorted(set(cast("list[int]", sizes))))


FLAG = Kind("True or False", _bool)
MAPPING = Kind("a dict of keywords for ttnn.set_fabric_config, or None", _mapping)
BATCH_SIZES = Kind("a collection of integers >= 1", _batch_sizes)


def _key(default: object, kind: Kind, doc: str) -> Any:
    """A field read from the key of `model_capabilities` that has the field's name."""
    return field(default=default, metadata={_KEY: kind, "doc": doc})


def _attribute(attribute: str, default: object, kind: Kind, doc: str) -> Any:
    """A field read from a class attribute."""
    return field(default=default, metadata={_KEY: kind, "attribute": attribute, "doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The declared abilities of one model class. A key that is not declared has the default written here.

    `declared` is what the class wrote, keys as they were. `unknown` are the keys of it that no field stands for.
    Counts are plain integers; `fabric_config` is passed on unread.
    """

    # Scheduling
    supports_prefix_caching: bool = _key(False, FLAG, "cached prefix blocks may be skipped")
    supports_async_decode: bool = _key(False, FLAG, "decode submit and read can be split, inputs stay on the device")
    supports_async_decode_overlap: bool = _key(False, FLAG, "older name for overlapped decode; informative")
    supports_chunked_prefill: bool = _key(False, FLAG, "the scheduler may split a prompt over steps")
    supports_device_chunked_prefill: bool = _key(False, FLAG, "the adapter splits prompts by itself; informative")
    tt_prefill_chunk_tokens: int | None = _key(None, _count(1, optional=True), "tokens of one prefill chunk")
    chunked_prefill_token_alignment: int | None = _key(
        None, _count(1, optional=True), "chunk starts sit on multiples of it"
    )
    resumed_prefill_token_alignment: int | None = _key(
        None, _count(1, optional=True), "resume positions sit on multiples of it"
    )
    # Sampling
    supports_sample_on_device: bool = _key(False, FLAG, "sample_on_device_mode may be used")
    max_device_top_k: int | None = _key(None, _count(1, optional=True), "largest top_k of the device sampler")
    supports_device_penalties: bool = _key(True, FLAG, "penalties are applied on the device")
    supports_device_grammar: bool = _key(False, FLAG, "grammar bit masks are applied on the device")
    supports_compact_host_logits: bool = _key(False, FLAG, "host logits of chosen rows only")
    supports_selective_host_readback: bool = _key(False, FLAG, "read_decode_output takes sample_rows")
    # Block output
    output_tokens_per_step: int = _key(1, _count(1), "tokens that one decode step answers for a row")
    tt_adaptive_block_output: bool = _key(False, FLAG, "blocks for a lone row, single tokens for a batch")
    tt_adaptive_block_batched: bool = _key(False, FLAG, "blocks for batched rows too")
    tt_adaptive_block_ragged: bool = _key(False, FLAG, "rows answer 1 to output_tokens_per_step tokens")
    tt_adaptive_block_max_prompt_tokens: int = _key(
        0, _count(0), "longer prompts stay at one token a step; 0 = not declared"
    )
    tt_block_kv_extent_tokens: int = _key(0, _count(0), "KV tokens written beyond the row's position")
    tt_block_output_chunked_prefill: bool = _key(False, FLAG, "block output together with chunked prefill")
    tt_block_output_kv_lookahead_tokens: int = _key(0, _count(0), "KV tokens reserved ahead of a block")
    # Speculative decoding
    supports_spec_decode: bool = _key(False, FLAG, "the class takes verify steps")
    supports_async_spec_decode: bool = _key(False, FLAG, "verify steps under async scheduling")
    spec_requirements: frozenset[str] = _key(
        frozenset[str](),
        _choices("device_propose", "hidden_feed", "drafter_scores", "paged_drafter_cache"),
        "what the model's drafter needs",
    )
    spec_hidden_handoff: frozenset[str] = _key(
        frozenset[str](), _choices("on_device", "roundtrip"), "how hidden states reach the drafter"
    )
    # Launch
    fabric_config: Mapping[str, object] | None = _key(
        None, MAPPING, "keywords of ttnn.set_fabric_config, passed on unread"
    )
    accepts_trace_mode: bool = _key(False, FLAG, "the adapter knows trace modes; informative")
    # Class attributes
    hybrid_kv_cache_groups: bool = _attribute(
        "_HYBRID_KV_CACHE_GROUPS_ENABLED", False, FLAG, "sliding-window layers get KV groups of their own"
    )
    decode_input_update_contract: int = _attribute(
        "decode_input_update_contract", 0, _count(0), "0 = reset_batch, 1 = the four reload commands"
    )
    supported_decode_batch_sizes: tuple[int, ...] = _attribute(
        "tt_supported_decode_batch_sizes", (), BATCH_SIZES, "decode batches are padded to one of them; empty = capacity"
    )

    owner: str = ""
    declared: Mapping[str, object] = field(default_factory=lambda: MappingProxyType(dict[str, object]()))
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: object) -> Capabilities:
        """Read a model class, or a model object when its instance differs from its class.

        `get_model_capabilities()` outranks the dict. The class's dict is copied, never changed.

        Raises:
            CapabilityError: a key or attribute has a wrong type or value.
        Whatever `get_model_capabilities()` raises passes unchanged.
        """
        owner = _name(model)
        return cls.parse(_declared(model, owner), owner=owner, attributes=_attributes(model))

    @classmethod
    def parse(
        cls, declared: Mapping[str, object], *, owner: str = "model", attributes: Mapping[str, object] | None = None
    ) -> Capabilities:
        """Read a dict of the form of `model_capabilities`, and class attributes by their own names.

        Raises:
            CapabilityError: a key or attribute has a wrong type or value.
        """
        known: dict[str, Any] = {}
        keys: set[str] = set()
        for name, source, attribute, kind in _sources():
            given = (attributes or {}) if attribute else declared
            if not attribute:
                keys.add(source)
            if source not in given:
                continue
            label = source if attribute else f"model_capabilities[{source!r}]"
            known[name] = _parsed(kind, given[source], owner, label)
        return cls(
            **known,
            owner=owner,
            declared=MappingProxyType(dict(declared)),
            unknown=tuple(key for key in declared if key not in keys),
        )

    @staticmethod
    def field_names() -> tuple[str, ...]:
        """Names of the fields that stand for something a class declares."""
        return tuple(name for name, *_ in _sources())

    @property
    def is_block_output(self) -> bool:
        """More than one token a step and row (contract, section 1.12)."""
        return self.output_tokens_per_step > 1


def _sources() -> list[tuple[str, str, bool, Kind]]:
    """(field, where it is read, read from an attribute, kind) of every declared field."""
    return [
        (f.name, f.metadata.get("attribute", f.name), "attribute" in f.metadata, f.metadata[_KEY])
        for f in fields(Capabilities)
        if _KEY in f.metadata
    ]


def attribute_names() -> frozenset[str]:
    """The class attributes that are read besides `model_capabilities`."""
    return frozenset(source for _, source, attribute, _ in _sources() if attribute)


def describe() -> list[tuple[str, str, str, str]]:
    """(key or attribute, allowed, default, meaning) of every field, for the docs."""
    rows: list[tuple[str, str, str, str]] = []
    for f in fields(Capabilities):
        if _KEY in f.metadata:
            default = "" if f.default is MISSING else repr(f.default if f.default != frozenset() else ())
            rows.append((f.metadata.get("attribute", f.name), f.metadata[_KEY].allowed, default, f.metadata["doc"]))
    return rows


def _parsed(kind: Kind, value: object, owner: str, label: str) -> object:
    try:
        return kind.parse(value)
    except ValueError:
        raise CapabilityError(owner, label, value, kind.allowed) from None


def _declared(model: object, owner: str) -> Mapping[str, object]:
    hook: object = getattr(model, "get_model_capabilities", None)
    if hook is not None:
        if isinstance(model, type) and inspect.isfunction(inspect.getattr_static(model, "get_model_capabilities")):
            raise CapabilityError(owner, "get_model_capabilities", hook, "a classmethod without arguments")
        if not callable(hook):
            raise CapabilityError(owner, "get_model_capabilities", hook, "a classmethod without arguments")
        return _checked_keys(hook(), owner, "get_model_capabilities()")
    return _checked_keys(getattr(model, "model_capabilities", {}), owner, "model_capabilities")


def _checked_keys(value: object, owner: str, label: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise CapabilityError(owner, label, value, "a dict with string keys")
    items = cast("Mapping[object, object]", value)
    for key in items:
        if not isinstance(key, str):
            raise CapabilityError(owner, f"key {key!r} of {label}", key, "a string")
    return cast("Mapping[str, object]", items)


def _attributes(model: object) -> dict[str, object]:
    """Attributes as the model has them. A property of a class is left out: it speaks of the objects only."""
    found: dict[str, object] = {}
    for _, source, attribute, _ in _sources():
        if attribute:
            value = getattr(model, source, None)
            if value is not None and not isinstance(value, property):
                found[source] = value
    return found


def _name(model: object) -> str:
    model_class = model if isinstance(model, type) else type(model)
    return f"{model_class.__module__}.{model_class.__qualname__}"
