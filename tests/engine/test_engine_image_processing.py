"""How vLLM processes images for the software mesh's class: what it may be sent, and what comes out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "families"))

from launch import HOST
from qwen2_5_vl_family import IMAGE, MOST_TOKENS, write

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """vLLM's processor of a small checkpoint."""
    folder = tmp_path_factory.mktemp("sight")
    write(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in HOST.items():
            patch.setenv(name, value)
        from vllm.engine.arg_utils import EngineArgs
        from vllm.multimodal import MULTIMODAL_REGISTRY

        config = EngineArgs(model=str(folder), dtype="float32", max_model_len=384).create_model_config()
        yield MULTIMODAL_REGISTRY.create_processor(config)


def test_engine_images_are_all_that_it_takes(processor: Any) -> None:
    assert dict(processor.info.get_supported_mm_limits()) == {"image": None}


def test_engine_the_largest_image_has_as_many_tokens_as_the_processor_allows(processor: Any) -> None:
    """vLLM refuses a launch whose budget does not hold it, and measures by the dummy inputs."""
    assert processor.info.get_mm_max_tokens_per_item(384, {"image": 1}) == {"image": MOST_TOKENS}
    dummy = processor.dummy_inputs
    images = dummy.get_dummy_mm_data(384, {"image": 2}, {})["image"]
    given = processor.info.get_hf_processor()(text=dummy.get_dummy_text({"image": 2}), images=images)
    assert [grid.prod() // 4 for grid in given["image_grid_thw"]] == [MOST_TOKENS] * 2
    assert given["input_ids"][0].count(IMAGE) == 2 * MOST_TOKENS


def test_engine_a_chat_without_a_template_for_images_gets_the_marks_of_one() -> None:
    from tt_hostmesh.vllm.qwen2_5_vl import Qwen2_5_VLForConditionalGeneration as Model

    assert Model.get_placeholder_str("image", 1) == "<|vision_start|><|image_pad|><|vision_end|>"
    assert Model.get_placeholder_str("video", 1) is None


def test_engine_a_budget_that_cannot_hold_an_image_is_refused(tmp_path: Path) -> None:
    """Such an image could never be scheduled: its request would wait for ever."""
    from launch import Run, launched

    write(tmp_path / "model")
    run = Run({"max_model_len": 384, "max_num_batched_tokens": MOST_TOKENS - 16, "enable_chunked_prefill": True})
    with pytest.raises(ValueError, match="max_tokens_per_mm_item"), launched(run, tmp_path / "model", tmp_path):
        pass
