"""Every ``additional_config["tt"]`` key as one typed dataclass.

Sources: the option table of the reference README and tt-metal contract 3.5. ``docs/options.md`` is generated from
the fields below by ``python -m tt_platform options``; a test fails when the two differ.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from tt_platform.option_kinds import (
    OneOf,
    OptionError,
    OptionKind,
    Path,
    PositiveFloat,
    Text,
    Toggle,
    WholeNumber,
    option,
)

logger = logging.getLogger("vllm.tt.options")

__all__ = ["OPTIONS_KEY", "OptionError", "TTOptions", "unknown_option"]

OPTIONS_KEY = "tt"

# Keys that other launchers pass and that mean nothing here: taken without a warning.
TOLERATED = frozenset({"input_queue_batching_delay"})


@dataclass(frozen=True, slots=True)
class TTOptions:
    """The launch options of the plugin, parsed and checked. Defaults are those of a launch without options."""

    sample_on_device_mode: str | None = option(
        OneOf("all", "decode_only"), None, "Where tokens are sampled, for models that can sample on the device."
    )
    trace_mode: str = option(OneOf("all", "decode_only", "none"), "all", "Which steps are captured as device traces.")
    enable_model_warmup: bool = option(Toggle(), True, "Warm the model up before the server reports healthy.")
    trace_region_size: int | None = option(
        WholeNumber(0, "bytes"), None, "Device memory kept for traces; unset is 50,000,000 when tracing is on."
    )
    worker_l1_size: int | None = option(WholeNumber(0, "bytes"), None, "L1 size of a worker core.")
    l1_small_size: int | None = option(WholeNumber(0, "bytes"), None, "Size of the small L1 region.")
    fabric_config: str | None = option(
        Text("a ttnn.FabricConfig name"),
        None,
        "Fabric between the chips; wins over the model's and the machine's default. Ignored on one chip.",
    )
    fabric_reliability_mode: str | None = option(
        OneOf("STRICT_INIT", "RELAXED_INIT", "DYNAMIC_RECONFIG"),
        None,
        "How strict the fabric is about links that are down.",
    )
    dispatch_core_axis: str | None = option(OneOf("row", "col"), None, "Axis of the dispatch cores.")
    always_compat_sampling: bool = option(
        Toggle(), False, "Sample every step with vLLM's own sampler on the host: a slow reference, for debugging."
    )
    seeded_on_host: bool = option(
        Toggle(),
        True,
        "Draw for seeded requests on the host only, so that nothing but the seed decides. False lets the device draw, "
        "from a stream of its own: faster, and a seeded answer then depends on the requests beside it.",
    )
    decode_interleave_enabled: bool = option(
        Toggle(), True, "Insert decode steps into a run of prefill steps, so that running requests keep moving."
    )
    decode_interleave_prefill_steps: int = option(
        WholeNumber(1, "steps"), 2, "Prefill steps in a row before decode steps are inserted."
    )
    decode_interleave_decode_steps: int = option(WholeNumber(1, "steps"), 1, "Decode steps of one insertion.")
    decode_interleave_target_itl_ms: float | None = option(
        PositiveFloat("ms"), None, "Inter-token latency that the interleave aims at."
    )
    step_time_limit_s: float | None = option(
        PositiveFloat("s"),
        None,
        "Longest time that the device may take for one step; a step over it stops the engine with an error, where a "
        "device that hangs would keep every request waiting. Longer than a compilation when warm-up is off.",
    )
    optimizations: str | None = option(
        OneOf("performance", "accuracy"), None, "Optimisation profile handed to the model."
    )
    register_test_models: bool = option(Toggle(), False, "Register tt-metal's test models too.")
    step_log: str | None = option(Path(), None, "File to which the worker appends one JSON line a step.")
    rank_binding: str | None = option(Path(), None, "Multi-host launch. Not served: see the rules.")
    mpi_args: str | None = option(Text("arguments"), None, "Multi-host launch. Not served: see the rules.")
    extra_ttrun_args: str | None = option(Text("arguments"), None, "Multi-host launch. Not served: see the rules.")
    config_pkl_dir: str | None = option(Path(), None, "Multi-host launch. Not served: see the rules.")
    env_passthrough: str | tuple[str, ...] | None = option(
        Text("names, or a list of names", many=True), None, "Multi-host launch. Not served: see the rules."
    )

    @classmethod
    def parse(cls, mapping: object) -> TTOptions:
        """Check the value of ``additional_config["tt"]``.

        An unknown key is a warning that names the nearest known one, since launch scripts carry keys of other releases.

        Raises:
            OptionError: the value is not a mapping, or a key has a wrong type or value. The message names the key,
                the value and what is allowed.
        """
        if mapping is None:
            return cls()
        if not isinstance(mapping, Mapping):
            raise OptionError("additional_config.tt", mapping, "a JSON object of options", "see docs/options.md")
        given = cast("Mapping[object, object]", mapping)
        values: dict[str, Any] = {}
        for key, value in given.items():
            kind = _KINDS.get(str(key))
            if kind is not None:
                values[str(key)] = kind.check(f"additional_config.tt.{key}", value)
            elif key not in TOLERATED:
                logger.warning(unknown_option(str(key)))
        return cls(**values)

    @classmethod
    def of(cls, additional_config: object) -> TTOptions:
        """Parse vLLM's whole ``additional_config``.

        Raises:
            OptionError: it is not a mapping, or its ``tt`` entry is wrong.
        """
        if additional_config is None:
            return cls()
        if not isinstance(additional_config, Mapping):
            raise OptionError("--additional-config", additional_config, "a JSON object", """pass '{"tt": {...}}'""")
        return cls.parse(cast("Mapping[str, object]", additional_config).get(OPTIONS_KEY))

    @property
    def launcher_keys(self) -> tuple[str, ...]:
        """The multi-host keys that were given."""
        keys = ("rank_binding", "mpi_args", "extra_ttrun_args", "config_pkl_dir", "env_passthrough")
        return tuple(key for key in keys if getattr(self, key) is not None)


def unknown_option(key: str) -> str:
    """One line about a key that is not in the table, with the nearest known name when there is one."""
    near = difflib.get_close_matches(key, list(_KINDS), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "see docs/options.md for the known keys"
    return f"Unknown TT option additional_config.tt.{key} is ignored; {hint}"


_KINDS: Mapping[str, OptionKind] = {field.name: field.metadata["kind"] for field in dataclasses.fields(TTOptions)}
