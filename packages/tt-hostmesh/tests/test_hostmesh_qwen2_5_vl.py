"""Qwen 2.5-VL on the software mesh: greedy tokens equal those of transformers in float32, with and without images."""

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
    prompt,
    text,
)

from tt_hostmesh.adapter.images import Image
from tt_hostmesh.errors import ContractError
from tt_hostmesh.qwen2_5_vl.generator import Qwen25VL
from tt_hostmesh.qwen2_5_vl.placeholder import PatchPlaceholder
from tt_hostmesh.qwen2_5_vl.positions import rope_delta, rotary_positions
from tt_hostmesh.qwen2_5_vl.windows import patch_places, windows

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def sight(tmp_path_factory):
    """Configuration of a random Qwen 2.5-VL on disk: windows of 2 x 2 merged patches, one layer without windows."""
    folder = tmp_path_factory.mktemp("tiny-qwen2.5-vl")
    torch.manual_seed(3)
    text = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 160,
        "max_position_embeddings": 256,
        "initializer_range": 0.3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
        "bos_token_id": None,
        "eos_token_id": None,
    }
    vision = {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "patch_size": 4,
        "window_size": 16,
        "out_hidden_size": 64,
        "fullatt_block_indexes": [1],
        "initializer_range": 0.3,
    }
    config = transformers.Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=START,
        vision_end_token_id=END,
    )
    transformers.Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    loaded = transformers.AutoConfig.from_pretrained(folder)
    loaded.num_key_value_heads, loaded.head_dim, loaded.num_hidden_layers = 2, 16, 3
    return loaded


@pytest.fixture(scope="module")
def answer(sight):
    """answer(tokens, images, count): what transformers generates."""
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(
        sight._name_or_path, dtype=torch.float32
    ).eval()

    return partial(generated, model)


@pytest.fixture
def see(load, sight):
    return lambda **more: Seer(load(Qwen25VL, config=sight, **more))


@pytest.mark.parametrize("device", [True, False], ids=["device", "host"])
def test_rows_with_and_without_images_decode_like_transformers(see, answer, tools, device):
    check_mixed_rows(see, answer, tools, device)


@pytest.mark.parametrize("cut", [[41], [51], [53], [51, 63], [16, 41, 64]])
def test_chunks_may_end_beside_an_image_and_begin_in_the_middle_of_one(see, answer, cut):
    """An image at 41..50, one at 53..62, 65 tokens. A chunk's start is rounded down, so it may lie in an image."""
    check_chunks(see, answer, cut)


def test_a_cached_prefix_may_hold_images(see, answer):
    check_cached_prefix(see, answer)


def test_lanes_have_rope_deltas_of_their_own_rows(see, answer, tools):
    check_lanes(see, answer, tools)


def test_strict_mode_finds_a_cut_image(see):
    seer = see()
    request = seer.admit(ASKED[4], 0)
    with pytest.raises(ContractError, match="an image is cut by the chunk's end, missing"):
        seer.prefill([request], [45], final=False)


def test_strict_mode_finds_an_image_that_was_not_handed_over(see):
    seer = see()
    request = seer.admit(ASKED[1], 0)
    with pytest.raises(ContractError, match="its 0 images need 0"):
        seer.prefill([request], pixel_values=[None], image_grid_thw=[None])


def test_strict_mode_finds_a_cached_prefix_with_another_image(see):
    seer = see()
    tokens, images = prompt(10, (4, 5), 30)
    first = seer.admit((tokens, images), 0)
    seer.prefill([first])
    second = seer.admit((tokens, [image(4, 5, seed=1)]), 1, blocks=first.blocks[:3], computed=48)
    with pytest.raises(ContractError, match="holds other tokens"):
        seer.prefill([second])


def test_strict_mode_finds_rope_deltas_that_were_forgotten_or_shifted(see, tools):
    seer = see()
    requests = [seer.admit(ASKED[2], 0), seer.admit(ASKED[1], 2)]
    seer.prefill(requests, sampling=tools.params(2))
    assert [request.delta for request in requests] == [-15, -3]
    for wrong in (None, [-15, -3], [-15, 0, 0]):
        with pytest.raises(ContractError, match="rope_deltas_all_users"):
            seer.decode(tools.params(4), rope_deltas_all_users=wrong)


def test_a_text_model_takes_no_images(load):
    driver = load()
    request = driver.admit(text(9), 0)
    call = driver.prefill_call([request])
    with pytest.raises(ContractError, match="unknown keyword image_grid_thw, pixel_values"):
        driver.model.prefill_forward(**call, pixel_values=[None], image_grid_thw=[None])


def test_positions_are_those_of_transformers(sight):
    tokens, images = ASKED[4]
    ids = torch.tensor([tokens])
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(sight._name_or_path).model
    wanted, delta = model.get_rope_index(
        ids, image_grid_thw=torch.stack([grid for _, grid in images]), mm_token_type_ids=(ids == IMAGE).int()
    )
    seen = [Image(pixels, tuple(grid.tolist())) for pixels, grid in images]
    mine = rotary_positions(ids[0], seen, PatchPlaceholder(IMAGE, 2))
    assert torch.equal(mine, wanted[:, 0])
    assert rope_delta(mine) == delta.item()


@pytest.mark.parametrize("grid", [(1, 8, 12), (1, 10, 6), (2, 2, 2), (1, 4, 14)])
def test_windows_and_places_are_those_of_transformers(grid):
    vision_utils = pytest.importorskip("transformers.vision_utils")
    order, bounds = vision_utils.get_vision_window_index(
        torch.tensor([grid]), spatial_merge_size=2, window_size=16, patch_size=4
    )
    mine = windows(grid, merge=2, side=2)
    assert torch.equal(mine.order, order)
    assert [size * 4 for size in mine.sizes] == [n for n in bounds.diff().tolist() if n]
    assert torch.equal(patch_places(grid, 2), vision_utils.get_vision_position_ids(torch.tensor([grid]), 2))
