"""Gemma 3 with images on the software mesh: tokens equal those of transformers in float32, with and without images."""

import json
import random
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from layered_checkpoints import BEGIN_IMAGE, END_IMAGE, IMAGE, write_gemma3_with_images
from layered_driver import LayeredDriver

from tt_hostmesh import ContractError, HostRuntime
from tt_hostmesh.gemma.forward import runs
from tt_hostmesh.gemma.generator import SeeingGemma3
from tt_hostmesh.gemma.tower import VisionConfig, VisionTower
from tt_hostmesh.gemma.tower_weights import TowerCheckpoint
from tt_hostmesh.layers.step import ALONE
from tt_hostmesh.llama.weights import Checkpoint

transformers = pytest.importorskip("transformers")

SIDE, TOKENS, GROUPS = 32, 16, [1, 2, 3, 4, 5, 0]
WINDOWS = (40, 10)
"""One that holds a picture, and one that does not."""


@pytest.fixture(scope="module")
def sights(tmp_path_factory):
    """sights(window) -> (the configuration as a model gets it, transformers' model); written once a module."""
    known = {}

    def make(window=WINDOWS[0]):
        if window not in known:
            folder = tmp_path_factory.mktemp(f"gemma3-{window}")
            write_gemma3_with_images(folder, window=window, side=SIDE, tokens=TOKENS)
            model = transformers.Gemma3ForConditionalGeneration.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager"
            )
            known[window] = (transformers.AutoConfig.from_pretrained(folder), model.eval())
        return known[window]

    return make


@pytest.fixture
def see(machine, sights):
    """see(window) -> Seer over a loaded model."""
    runtime = HostRuntime(machine)
    meshes = []

    def make(window=WINDOWS[0], margin=0):
        config, reference = sights(window)
        mesh = runtime.open_mesh_device((1, 1), trace_region_size=1)
        meshes.append(mesh)
        model = SeeingGemma3.initialize_vllm_model(config, mesh, 4, max_seq_len=256)
        windows = [None] + [window + margin] * max(GROUPS)
        return Seer(LayeredDriver(model, [(2, 16)] * len(GROUPS), GROUPS, windows), reference)

    yield make
    for mesh in meshes:
        runtime.close_mesh_device(mesh)


def text(count, seed=0):
    return [random.Random(f"{count}/{seed}").randrange(3, BEGIN_IMAGE) for _ in range(count)]


def image(seed=0, pictures=1):
    return torch.randn(pictures, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def prompt(*parts):
    """Tokens and images: numbers stand for so many tokens of text, images for their tokens between two marks."""
    tokens, images = [], []
    for i, part in enumerate(parts):
        if isinstance(part, int):
            tokens += text(part, i)
        else:
            images.append(part)
            tokens += [BEGIN_IMAGE, *[IMAGE] * TOKENS, END_IMAGE] * len(part)
    return tokens, images


class Seer:
    """The plugin in small for a model with images: hands them over with every chunk that ends behind them."""

    def __init__(self, driver, reference):
        self.driver = driver
        self.reference = reference

    def admit(self, asked, row, **more):
        request = self.driver.admit(asked[0], row)
        request.images, request.logits = asked[1], []
        for name, value in more.items():
            setattr(request, name, value)
        return request

    def prefill_call(self, requests, ends=None, **changes):
        call = self.driver.prefill_call(requests, ends)
        pixels = [_begun(request, end) for request, end in zip(requests, call["prompt_lens"], strict=True)]
        return {**call, "pixel_values": pixels, "image_grid_thw": [None] * len(pixels), **changes}

    def prefill(self, requests, ends=None, **changes):
        call = self.prefill_call(requests, ends, **changes)
        out = self.driver.model.prefill_forward(**call)[:, -1]
        for request, end, logits in zip(requests, call["prompt_lens"], out, strict=True):
            request.computed = end
            if end == len(request.tokens):
                take(request, logits)

    def decode(self, steps):
        for _ in range(steps):
            logits = self.driver.decode()
            for request in self.driver.live.values():
                take(request, logits[request.row])

    def require_exact(self, request, asked):
        """Every token was chosen by the logits that transformers gives."""
        ids = torch.tensor([request.tokens[:-1]])
        more = {"pixel_values": torch.cat(asked[1])} if asked[1] else {}
        with torch.no_grad():
            wanted = self.reference(ids, token_type_ids=(ids == IMAGE).long(), **more).logits[0, len(asked[0]) - 1 :]
        assert torch.allclose(torch.stack(request.logits), wanted, atol=5e-3)
        assert request.tokens[len(asked[0]) :] == wanted.argmax(-1).tolist()


def take(request, logits):
    request.logits.append(logits)
    request.tokens.append(int(logits.argmax()))


def _begun(request, end):
    """The images whose tokens lie before `end`; None without any."""
    pictures = request.tokens[:end].count(IMAGE) / TOKENS
    mine = []
    for one in request.images:
        if pictures > 0:
            mine.append(one)
        pictures -= len(one)
    return mine or None


ASKED = (
    prompt(20),
    prompt(5, image(1), 9),
    prompt(image(2), 3, image(3), image(4), 12),
    prompt(60, image(5, pictures=3), 1),
)
EDGES = prompt(40, image(6), image(7), 30)
"""Images at 40..57 and 58..75, their tokens at 41..56 and 59..74; 106 tokens."""


@pytest.mark.parametrize("window", WINDOWS)
def test_H1_rows_with_and_without_images_decode_like_transformers(see, window):
    seer = see(window)
    requests = [seer.admit(asked, row) for row, asked in enumerate(ASKED[:2])]
    seer.prefill(requests)
    seer.decode(1)
    requests += [seer.admit(asked, row) for row, asked in enumerate(ASKED[2:], 2)]
    seer.prefill(requests[2:])
    seer.decode(12)
    for request, asked in zip(requests, ASKED, strict=True):
        seer.require_exact(request, asked)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("cut", [[40], [40, 58], [58], [76], [16, 58, 80]])
def test_H1_chunks_may_end_beside_an_image_and_begin_in_the_middle_of_one(see, window, cut):
    """A chunk's start is rounded down, so it may lie in an image: what was computed is computed again, the same."""
    seer = see(window, margin=15)
    request = seer.admit(EDGES, 1)
    for end in [*cut, len(EDGES[0])]:
        seer.driver.grow(request, end)
        request.computed -= request.computed % 16
        seer.prefill([request], [end])
    seer.decode(6)
    seer.require_exact(request, EDGES)


def test_H1_a_cached_prefix_may_end_in_an_image(see):
    seer = see()
    first = seer.admit(EDGES, 0)
    seer.prefill([first], [76])
    asked = (EDGES[0][:76] + text(9, 99), EDGES[1])
    shared = [blocks[:4] for blocks in first.blocks]
    second = seer.admit(asked, 1, blocks=[list(blocks) for blocks in shared], computed=64)
    seer.prefill([second])
    del seer.driver.live[0]
    seer.decode(6)
    seer.require_exact(second, asked)


def test_the_tower_gives_what_transformers_gives(sights):
    config, reference = sights()
    pixels = image(8, pictures=3)
    with torch.no_grad():
        wanted = reference.model.get_image_features(pixels).pooler_output.flatten(0, 1)
        found = _tower(config).embed(pixels)
    assert found.shape == (3 * TOKENS, 48)
    assert torch.allclose(found, wanted, atol=1e-4)


def test_the_tower_is_found_under_its_older_name(sights, tmp_path):
    from safetensors.torch import load_file, save_file

    config, _ = sights()
    tensors = load_file(Path(config._name_or_path) / "model.safetensors")
    older = {name.replace("vision_tower.", "vision_tower.vision_model."): value for name, value in tensors.items()}
    save_file(older, tmp_path / "model.safetensors")
    pixels = image(9)
    vision = VisionConfig.of(config)
    found = VisionTower(vision, TowerCheckpoint(vision, Checkpoint(tmp_path)).weights()).embed(pixels)
    assert torch.equal(found, _tower(config).embed(pixels))


def _tower(config):
    vision = VisionConfig.of(config)
    return VisionTower(vision, TowerCheckpoint(vision, Checkpoint(config._name_or_path)).weights())


@pytest.mark.parametrize(
    ("change", "words"),
    [({"mm_tokens_per_image": 15}, "mm_tokens_per_image=15"), ({"mm_tokens_per_image": 9}, "mm_tokens_per_image=9")],
)
def test_a_picture_that_is_not_pooled_to_a_square_is_refused(sights, change, words):
    config = transformers.Gemma3Config(**{**json.loads(sights()[0].to_json_string()), **change})
    with pytest.raises(ValueError, match=words):
        VisionConfig.of(config)


def test_an_activation_that_the_tower_does_not_have_is_refused(sights):
    config = transformers.Gemma3Config(**json.loads(sights()[0].to_json_string()))
    config.vision_config.hidden_act = "silu"
    with pytest.raises(ValueError, match=r"vision_config.hidden_act='silu'"):
        VisionConfig.of(config)


def test_images_that_touch_are_groups_of_their_own_where_a_mark_is_between_them():
    marked = torch.tensor([True, True, False, True, False])
    assert runs(marked).tolist() == [1, 1, ALONE, 2, ALONE]


def test_H14_strict_mode_finds_a_cut_image(see):
    seer = see()
    request = seer.admit(EDGES, 0)
    with pytest.raises(ContractError, match="an image is cut by the chunk's end, missing"):
        seer.prefill([request], [45])


def test_H14_strict_mode_finds_a_crop_that_was_not_handed_over(see):
    seer = see()
    request = seer.admit(ASKED[3], 0)
    with pytest.raises(ContractError, match="its 1 images need 32"):
        seer.prefill([request], pixel_values=[[image(5, pictures=3)[:2]]])


@pytest.mark.parametrize(
    ("pixels", "grid"),
    [(image(1)[0], None), (image(1)[..., :16], None), (image(1), torch.tensor([1, 8, 8]))],
    ids=["no pictures", "half a picture", "with a grid"],
)
def test_H14_strict_mode_finds_an_image_in_another_form(see, pixels, grid):
    seer = see()
    request = seer.admit(ASKED[1], 0)
    with pytest.raises(ContractError, match=r"row 0: an image is not \[pictures, 3, 32, 32\] without a grid"):
        seer.prefill([request], pixel_values=[[pixels]], image_grid_thw=[None if grid is None else [grid]])


def test_H14_strict_mode_finds_a_cached_prefix_with_another_image(see):
    seer = see()
    first = seer.admit(EDGES, 0)
    seer.prefill([first], [76])
    blocks = [list(blocks[:4]) for blocks in first.blocks]
    second = seer.admit((EDGES[0], [EDGES[1][0], image(70)]), 1, blocks=blocks, computed=64)
    with pytest.raises(ContractError, match="holds other tokens"):
        seer.prefill([second])


def test_a_model_without_axes_answers_no_rope_deltas_and_takes_none(see):
    seer = see()
    request = seer.admit(ASKED[1], 0)
    assert seer.driver.model.prefill_forward(**seer.prefill_call([request])).dim() == 3
    request.computed = len(request.tokens)
    request.tokens.append(5)
    with pytest.raises(ContractError, match="unknown keyword rope_deltas_all_users"):
        seer.driver.model.decode_forward(**seer.driver.decode_call(), rope_deltas_all_users=None)
