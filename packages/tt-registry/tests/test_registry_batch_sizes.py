"""Rows that a class can be loaded with, as far as its place tells."""

from __future__ import annotations

import pytest

from tt_registry.resolution import Resolution


@pytest.mark.parametrize(
    ("target", "sizes"),
    [
        ("models.tt_transformers.tt.generator_vllm:LlamaForCausalLM", (1, 2, 4, 8, 16, 32)),
        ("models.ttt_compat.tt.generator_vllm:QwenForCausalLM", (1, 2, 4, 8, 16, 32)),
        ("models.tt_transformers_new.generator:Llama", ()),
        ("models.demos.gpt_oss.tt.generator_vllm:GptOssForCausalLM", ()),
    ],
)
def test_classes_of_the_tt_transformers_stack_take_powers_of_two(target: str, sizes: tuple[int, ...]) -> None:
    assert Resolution("X", target, "built-in", "table").batch_sizes == sizes
