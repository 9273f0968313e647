"""The built-in table: which tt-metal class serves which Hugging Face architecture.

A row is an `Architecture`. Its `variants` are the implementations that tt-metal offers for it; where there are several,
an environment variable picks one, and the first is the default. What differs between implementations (how
`--data_parallel_size` is run) is a property of the variant. What belongs to the checkpoint is a property of the row.

Source: tt-metal contract, sections 0 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .names import bare_name

DataParallel = Literal["standard", "lanes"]
"""How `--data_parallel_size N` is run.

standard: N engine processes, each with its own submesh.
lanes:    one engine process, N lanes inside one mesh program.
"""

TTT = "{ttt}"
"""In a target: the package of the tt_transformers stack, under the name that the installed tt-metal gives it."""

TTT_ROOTS = ("models.ttt_compat", "models.tt_transformers")
"""Names of that package, newest first. A tree has one or both; the class names inside are the same."""

TTT_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
"""Rows a submesh that classes of that stack can be loaded with; any other number is an error there (contract 7)."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One implementation of an architecture.

    name:   the value of the architecture's variable that picks it
    target: `module:Class`; may begin with `TTT`
    """

    name: str
    target: str
    data_parallel: DataParallel = "standard"
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row of the table.

    name:       as in a checkpoint's config.json, without the TT prefix
    variable:   environment variable that picks the variant, if there is a choice
    multimodal: the class takes images or video
    moe:        mixture of experts; standard data parallel cannot serve it
    also_bare:  registered under the bare name too, not only as TT<name>
    permanent:  stays registered when the built-in map is switched off
    test_only:  registered only when the option `register_test_models` is on
    """

    name: str
    variants: tuple[Variant, ...]
    variable: str | None = None
    multimodal: bool = False
    moe: bool = False
    also_bare: bool = False
    permanent: bool = False
    test_only: bool = False
    notes: str = ""

    @property
    def variant_names(self) -> tuple[str, ...]:
        """Values that the variable may have, default first. Empty when there is no variable."""
        return tuple(v.name for v in self.variants) if self.variable else ()

    def select(self, environ: Mapping[str, str]) -> Variant:
        """The variant that the environment asks for; the first one when the variable is unset or empty.

        Raises:
            UnknownVariant: the variable has a value that is not in the table.
        """
        asked = environ.get(self.variable, "").strip() if self.variable else ""
        for variant in self.variants:
            if asked in ("", variant.name):
                return variant
        raise UnknownVariant(self, asked)


class UnknownVariant(ValueError):
    """The environment picks an implementation that the table does not have."""

    def __init__(self, architecture: Architecture, asked: str) -> None:
        self.architecture = architecture
        self.asked = asked
        allowed = ", ".join(architecture.variant_names)
        super().__init__(
            f"{architecture.variable}={asked!r} is not an implementation of {architecture.name}: allowed {allowed}; "
            f"unset it to get {architecture.variants[0].name}"
        )


def _one(name: str, target: str, **properties: bool | str) -> Architecture:
    return Architecture(name, (Variant("", target),), **properties)  # type: ignore[arg-type]


_GENERATOR = f"{TTT}.tt.generator_vllm"
_GEMMA4 = "models.demos.gemma4.tt.generator_vllm:Gemma4ForCausalLM"
_DIFFUSION_GEMMA = "models.experimental.diffusion_gemma.tt.generator_vllm:DiffusionGemmaForCausalLM"
_TEST = "models.vllm_test_utils"

LLAMA = Architecture(
    "LlamaForCausalLM",
    (
        Variant("tt_transformers", f"{_GENERATOR}:LlamaForCausalLM"),
        Variant("llama3_70b_galaxy", "models.demos.llama3_70b_galaxy.tt.generator_vllm:LlamaForCausalLM", "lanes"),
        Variant("llama2_70b", "models.demos.t3000.llama2_70b.tt.generator_vllm:TtLlamaForCausalLM"),
        Variant("llama31_8b_qb2", "models.demos.llama31_8b_qb2.tt.generator_vllm:LlamaForCausalLM"),
    ),
    variable="TT_LLAMA_TEXT_VER",
    notes="Llama 3.1, 3.2, 3.3 text",
)
QWEN3 = Architecture(
    "Qwen3ForCausalLM",
    (
        Variant("tt_transformers", f"{_GENERATOR}:QwenForCausalLM"),
        Variant("qwen3_32b_galaxy", "models.demos.llama3_70b_galaxy.tt.generator_vllm:QwenForCausalLM", "lanes"),
    ),
    variable="TT_QWEN3_TEXT_VER",
    notes="Qwen 3 text",
)
QWEN3_5 = Architecture(
    "Qwen3_5ForConditionalGeneration",
    (Variant("qwen36_blackhole", "models.demos.blackhole.qwen36.tt.qwen36_vllm:Qwen36ForCausalLM"),),
    variable="TT_QWEN35_TEXT_VER",
    multimodal=True,
    notes="Qwen 3.5 and 3.6 on Blackhole; images or video with one request at a time, text in batches",
)
GPT_OSS = Architecture(
    "GptOssForCausalLM",
    (Variant("", f"{_GENERATOR}:GptOssForCausalLM", "lanes"),),
    moe=True,
    notes="GPT-OSS 20B and 120B; top-32 log probabilities on the device",
)

BUILT_IN: tuple[Architecture, ...] = (
    LLAMA,
    _one(
        "MllamaForConditionalGeneration",
        f"{_GENERATOR}:MllamaForConditionalGeneration",
        multimodal=True,
        notes="Llama 3.2 Vision; encoder-decoder, which the V1 engine does not run",
    ),
    _one("Qwen2ForCausalLM", f"{_GENERATOR}:QwenForCausalLM", notes="Qwen 2.5 text"),
    QWEN3,
    QWEN3_5,
    _one(
        "Qwen2_5_VLForConditionalGeneration",
        "models.demos.qwen25_vl.tt.generator_vllm:Qwen2_5_VLForConditionalGeneration",
        multimodal=True,
        notes="Qwen 2.5-VL; one image a request",
    ),
    _one(
        "Qwen3VLForConditionalGeneration",
        "models.demos.qwen3_vl.tt.generator_vllm:Qwen3VLForConditionalGeneration",
        multimodal=True,
        notes="Qwen 3-VL; one image a request",
    ),
    _one("MistralForCausalLM", f"{_GENERATOR}:MistralForCausalLM", notes="Mistral text"),
    _one(
        "Mistral3ForConditionalGeneration",
        f"{_GENERATOR}:Mistral3ForConditionalGeneration",
        multimodal=True,
        notes="Mistral 3; the adapter ignores images under the V1 engine",
    ),
    _one(
        "Gemma3ForConditionalGeneration",
        f"{_GENERATOR}:Gemma3ForConditionalGeneration",
        multimodal=True,
        notes="Gemma 3",
    ),
    _one("Gemma4ForCausalLM", _GEMMA4, also_bare=True, notes="Gemma 4, text only"),
    _one("Gemma4ForConditionalGeneration", _GEMMA4, also_bare=True, notes="Gemma 4, text only"),
    _one("Gemma4UnifiedForConditionalGeneration", _GEMMA4, also_bare=True, notes="Gemma 4, text only"),
    _one(
        "DiffusionGemmaForCausalLM",
        _DIFFUSION_GEMMA,
        also_bare=True,
        permanent=True,
        notes="DiffusionGemma; 256 tokens a step",
    ),
    _one(
        "DiffusionGemmaForBlockDiffusion",
        _DIFFUSION_GEMMA,
        permanent=True,
        notes="DiffusionGemma; 256 tokens a step",
    ),
    _one(
        "DeepseekV3ForCausalLM",
        "models.demos.deepseek_v3.tt.generator_vllm:DeepseekV3ForCausalLM",
        moe=True,
        notes="DeepSeek V3; prefill is not traced",
    ),
    GPT_OSS,
    _one("ArceeForCausalLM", f"{_GENERATOR}:TTArceeForCausalLM", notes="Arcee; the class is not in every tree"),
    _one(
        "DummyNoOpModel",
        f"{_TEST}.no_op_test.test_model:DummyNoOpModel",
        test_only=True,
        notes="answers without computing; needs no card",
    ),
    _one(
        "DummySpecDecodeModel",
        f"{_TEST}.spec_test.test_model:DummySpecDecodeModel",
        test_only=True,
        notes="speculative decoding contract; needs no card",
    ),
    _one(
        "DummyT3000MultiProcessModel",
        f"{_TEST}.t3000_multiproc_test.test_model:DummyT3000MultiProcessModel",
        test_only=True,
        notes="one process a chip on T3000",
    ),
    _one(
        "DummyDualGlxModel",
        f"{_TEST}.dual_glx_ccl_test.test_model:DummyDualGlxModel",
        test_only=True,
        notes="collectives over two Galaxies",
    ),
)

_BY_NAME: Mapping[str, Architecture] = {row.name: row for row in BUILT_IN}


def built_in(architecture: str) -> Architecture | None:
    """The row of the table for a bare or TT-prefixed name."""
    return _BY_NAME.get(bare_name(architecture))


def served(environ: Mapping[str, str], *, register_test_models: bool = False) -> tuple[Architecture, ...]:
    """The rows that this environment offers.

    `TT_VLLM_BUILTIN_MODELS` set to 0, false, no or off leaves the permanent ones only. Test models come on request.
    """
    on = built_ins_enabled(environ)
    return tuple(
        row
        for row in BUILT_IN
        if (on or row.permanent or row.test_only) and (register_test_models or not row.test_only)
    )


def built_ins_enabled(environ: Mapping[str, str]) -> bool:
    """False when `TT_VLLM_BUILTIN_MODELS` is 0, false, no or off, in any case."""
    return environ.get("TT_VLLM_BUILTIN_MODELS", "").strip().lower() not in ("0", "false", "no", "off")
