"""How vLLM processes images for the software mesh's class: what it may be sent, and what comes out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "families"))

import gemma3_vl_family
from family import Asked
from gemma3_vl_family import BEGIN_IMAGE
from launch import HOST
from qwen2_5_vl_family import IMAGE, MOST_TOKENS, write

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

CROPS = {
    "do_pan_and_scan": True,
    "pan_and_scan_max_num_crops": 3,
    "pan_and_scan_min_crop_size": 16,
    "pan_and_scan_min_ratio_to_activate": 1.2,
}


@contextmanager
def processing(folder: Path, **more: Any) -> Iterator[Any]:
    """vLLM's processor of a checkpoint. more: engine arguments."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in HOST.items():
            patch.setenv(name, value)
        from vllm.engine.arg_utils import EngineArgs
        from vllm.multimodal import MULTIMODAL_REGISTRY

        config = EngineArgs(model=str(folder), dtype="float32", max_model_len=384, **more).create_model_config()
        yield MULTIMODAL_REGISTRY.create_processor(config)


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Of a small Qwen 2.5-VL."""
    folder = tmp_path_factory.mktemp("sight")
    write(folder)
    with processing(folder) as processor:
        yield processor


@pytest.fixture(scope="module")
def cropping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Of a small Gemma 3 that crops wide images up to three times."""
    folder = tmp_path_factory.mktemp("crops")
    gemma3_vl_family.write(folder)
    with processing(folder, mm_processor_kwargs=CROPS) as processor:
        yield processor


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


def test_engine_an_image_that_is_cropped_has_the_tokens_of_its_crops(cropping: Any) -> None:
    """Behind words that say so, as transformers puts them: they are tokens of the placeholder, and no crops."""
    from gemma3_vl_family import IMAGE, TOKENS

    dummy = cropping.dummy_inputs
    images = dummy.get_dummy_mm_data(384, {"image": 1}, {})["image"]
    given = cropping.info.get_hf_processor()(text=dummy.get_dummy_text({"image": 1}), images=images, **CROPS)
    most = cropping.info.get_mm_max_tokens_per_item(384, {"image": 1})["image"]
    assert given["num_crops"] == [3]
    assert given["input_ids"][0].count(IMAGE) == 4 * TOKENS
    assert most == len(given["input_ids"][0])
    assert len(cropping.info.get_hf_processor().tokens_of(0)) == TOKENS + 2


def test_engine_cropped_images_are_answered_as_transformers_does(tmp_path: Path) -> None:
    from gemma3_vl_family import FAMILY, IMAGE, TOKENS, VisionReference, picture
    from launch import Run, launched
    from vllm import SamplingParams

    model = tmp_path / "model"
    model.mkdir()
    gemma3_vl_family.write(model)
    wide = (picture(96, 32, seed=3), picture(32, 32, seed=4), picture(32, 80, seed=5))
    requests = [
        Asked([*range(5, 30), BEGIN_IMAGE, 7], 12, wide[:1]),
        Asked([9, BEGIN_IMAGE, 10, BEGIN_IMAGE, *range(40, 60)], 12, wide[1:]),
        Asked([*range(60, 99)], 12),
    ]
    limits = {"max_model_len": 384, "max_num_seqs": 4, "max_num_batched_tokens": 128, "enable_chunked_prefill": True}
    run = FAMILY.settings.over(Run({**limits, "mm_processor_kwargs": CROPS}))
    with launched(run, model, tmp_path) as engine:
        params = [SamplingParams(temperature=0, max_tokens=one.max_tokens, detokenize=False) for one in requests]
        outputs = engine.generate([FAMILY.prompt(one) for one in requests], params)
    reference = VisionReference(model, **CROPS)
    assert [list(output.outputs[0].token_ids) for output in outputs] == [reference.answer(one) for one in requests]
    assert [output.prompt_token_ids.count(IMAGE) // TOKENS for output in outputs] == [4, 5, 0]
