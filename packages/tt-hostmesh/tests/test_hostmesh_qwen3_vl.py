"""Qwen 3-VL on the software mesh: greedy tokens equal those of transformers in float32, with and without images."""

import sys
from functools import partial
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from seeing import (
    ASKED,
    END,
    IMAGE,
    START,
    VIDEO,
    Seer,
    check_cached_prefix,
    check_chunks,
    check_lanes,
    check_mixed_rows,
    generated,
    image,
)

from tt_hostmesh.adapter.images import Image
from tt_hostmesh.errors import ContractError
from tt_hostmesh.qwen2_5_vl.positions import axes_by_turns, axes_of_sections
from tt_hostmesh.qwen3_vl.config import Qwen3VLConfig
from tt_hostmesh.qwen3_vl.generator import Qwen3VL
from tt_hostmesh.qwen3_vl.tower import VisionTower
from tt_hostmesh.qwen3_vl.weights import load_weights

transformers = pytest.importorskip("transformers")

SECTIONS = (4, 2, 2)


@pytest.fixture(scope="module")
def sight(tmp_path_factory):
    """Configuration of a random Qwen 3-VL on disk: the decoder gets something of two layers of the tower more."""
    folder = tmp_path_factory.mktemp("tiny-qwen3-vl")
    torch.manual_seed(3)
    text_config = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 160,
        "max_position_embeddings": 256,
        "initializer_range": 0.3,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": list(SECTIONS),
            "mrope_interleaved": True,
        },
        "bos_token_id": None,
        "eos_token_id": None,
    }
    vision = {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "patch_size": 4,
        "out_hidden_size": 64,
        "num_position_embeddings": 36,
        "deepstack_visual_indexes": [0, 1],
        "initializer_range": 0.3,
    }
    config = transformers.Qwen3VLConfig(
        text_config=text_config,
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=START,
        vision_end_token_id=END,
    )
    model = transformers.Qwen3VLForConditionalGeneration(config)
    for name, tensor in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            tensor.data += torch.empty_like(tensor).uniform_(-0.3, 0.3)
    model.save_pretrained(folder)
    loaded = transformers.AutoConfig.from_pretrained(folder)
    loaded.num_key_value_heads, loaded.head_dim, loaded.num_hidden_layers = 2, 16, 3
    return loaded


@pytest.fixture(scope="module")
def reference(sight):
    model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(sight._name_or_path, dtype=torch.float32)
    return model.eval()


@pytest.fixture(scope="module")
def answer(reference):
    """answer(tokens, images, count): what transformers generates."""
    return partial(generated, reference)


@pytest.fixture
def see(load, sight):
    return lambda **more: Seer(load(Qwen3VL, config=sight, **more))


@pytest.mark.parametrize("device", [True, False], ids=["device", "host"])
def test_H1_rows_with_and_without_images_decode_like_transformers(see, answer, tools, device):
    check_mixed_rows(see, answer, tools, device)


@pytest.mark.parametrize("cut", [[41], [51], [53], [51, 63], [16, 41, 64]])
def test_H1_chunks_may_end_beside_an_image_and_begin_in_the_middle_of_one(see, answer, cut):
    """What an image gives to the first layers is cut where the chunk begins."""
    check_chunks(see, answer, cut)


def test_H1_a_cached_prefix_may_hold_images(see, answer):
    check_cached_prefix(see, answer)


def test_H1_lanes_have_rope_deltas_of_their_own_rows(see, answer, tools):
    check_lanes(see, answer, tools)


def test_H14_strict_mode_finds_an_image_without_its_grid(see):
    seer = see()
    request = seer.admit(ASKED[1], 0)
    with pytest.raises(ContractError, match="with its grid"):
        seer.prefill([request], image_grid_thw=[None])


@pytest.mark.parametrize("size", [(3, 3), (2, 5), (1, 1)])
def test_the_tower_gives_what_transformers_gives(sight, reference, size):
    """Also where the square of learned positions is stretched or pressed together."""
    pixels, grid = image(*size)
    config = Qwen3VLConfig.of(sight)
    with torch.no_grad():
        wanted = reference.model.get_image_features(pixels, grid[None])
        found = VisionTower(config.vision, load_weights(sight._name_or_path, config).tower).embed(
            Image(pixels, tuple(grid.tolist()))
        )
    assert len(found) == 3
    for one, other in zip(found, (wanted.pooler_output[0], *wanted.deepstack_features), strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_frequencies_take_the_axes_by_turns_as_long_as_there_are_some():
    assert axes_by_turns(SECTIONS).tolist() == [0, 1, 2, 0, 1, 2, 0, 0]
    assert axes_of_sections(SECTIONS).tolist() == [0, 0, 0, 0, 1, 1, 2, 2]


def test_sections_that_do_not_fill_a_head_are_refused(sight):
    config = transformers.Qwen3VLConfig(**sight.to_dict())
    config.text_config.rope_parameters["mrope_section"] = [4, 2, 1]
    with pytest.raises(ValueError, match=r"mrope_section \[4, 2, 1\] does not add up to 8"):
        Qwen3VLConfig.of(config)
