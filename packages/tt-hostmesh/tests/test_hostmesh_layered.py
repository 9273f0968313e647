"""Gemma 3, GPT-OSS and DeepSeek V3 against transformers, and what strict mode says of their page tables."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from layered_checkpoints import VOCABULARY, write_deepseek_v3, write_gemma3, write_gemma4, write_gpt_oss
from layered_driver import LayeredDriver

from tt_hostmesh import ContractError, HostRuntime
from tt_hostmesh.deepseek_v3.generator import DeepseekV3ForCausalLM
from tt_hostmesh.gemma.generator import Gemma3ForCausalLM, Gemma4ForCausalLM
from tt_hostmesh.gpt_oss.generator import GptOssForCausalLM

WINDOW = 40
GROUPS = {"gemma3": [1, 2, 3, 4, 5, 0], "gemma4": [0, 0, 0, 0, 0, 0], "gpt_oss": [1, 0, 1, 0], "deepseek_v3": [0, 0, 0]}
WRITERS = {
    "gemma3": lambda folder: write_gemma3(folder, window=WINDOW),
    "gemma4": lambda folder: write_gemma4(folder, window=WINDOW),
    "gpt_oss": lambda folder: write_gpt_oss(folder, window=WINDOW),
    "deepseek_v3": write_deepseek_v3,
}
CLASSES = {
    "gemma3": Gemma3ForCausalLM,
    "gemma4": Gemma4ForCausalLM,
    "gpt_oss": GptOssForCausalLM,
    "deepseek_v3": DeepseekV3ForCausalLM,
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """checkpoints(name) -> (the configuration as a model gets it, transformers' model); written once a module."""
    transformers = pytest.importorskip("transformers")
    known = {}

    def make(name):
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            WRITERS[name](folder)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager"
            )
            known[name] = (transformers.AutoConfig.from_pretrained(folder), model)
        return known[name]

    return make


@pytest.fixture
def drive(machine, checkpoints):
    """drive(name, margin=0) -> LayeredDriver; sliding groups keep their window and `margin` tokens."""
    runtime = HostRuntime(machine)
    meshes = []

    def make(name, margin=0):
        config, _ = checkpoints(name)
        mesh = runtime.open_mesh_device((1, 1), trace_region_size=1)
        meshes.append(mesh)
        model = CLASSES[name].initialize_vllm_model(config, mesh, 4, max_seq_len=256)
        windows = [None] + [WINDOW + margin] * max(GROUPS[name])
        shapes = [(2, 16)] * len(GROUPS[name])
        if name == "deepseek_v3":
            shapes = [(1, 32)] * 3
        elif name == "gemma4":
            shapes[-1] = (1, 32)
        return LayeredDriver(model, shapes, GROUPS[name], windows)

    yield make
    for mesh in meshes:
        runtime.close_mesh_device(mesh)


def text(length, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()


@pytest.mark.parametrize("name", GROUPS)
def test_H1_a_model_whose_layers_differ_is_transformers_in_chunks_and_decode(drive, checkpoints, name):
    """Rows of different lengths, chunks that end anywhere, steps over several rows, blocks that change hands."""
    _, reference = checkpoints(name)
    driver = drive(name)
    first, second, third = (driver.admit(text(length, length), row) for row, length in enumerate((150, 9, 97)))
    checked = [(first, driver.prefill([first], [50])[0], 50), (third, driver.prefill([third], [90])[0], 90)]
    driver.live.pop(1)
    one, two = driver.prefill([first, second], [113, 5])
    checked += [(first, one, 113), (second, two, 5)]
    driver.live[1] = second
    for _ in range(4):
        out = driver.decode()
        checked += [(request, out[request.row], request.computed) for request in driver.live.values()]
    driver.finish(second)
    again = driver.admit(text(60, 5), 1)
    checked.append((again, driver.prefill([again])[0], 60))
    for request, found, length in checked:
        with torch.no_grad():
            expected = reference(torch.tensor([request.tokens[:length]])).logits[0, -1]
        assert torch.allclose(found, expected, atol=2e-3), (name, request.row, length)


def test_a_prefill_of_deepseek_answers_all_positions(drive, checkpoints):
    """Rows that are shorter repeat their last position, so that the last one is every row's (contract 1.5)."""
    _, reference = checkpoints("deepseek_v3")
    driver = drive("deepseek_v3")
    requests = [driver.admit(text(length, length), row) for row, length in enumerate((20, 12))]
    out = driver.model.prefill_forward(**driver.prefill_call(requests))
    assert out.shape == (2, 20, VOCABULARY)
    with torch.no_grad():
        expected = reference(torch.tensor([requests[0].tokens])).logits[0]
    assert torch.allclose(out[0], expected, atol=1e-3)
    assert torch.equal(out[1, 11:], out[1, 11:12].expand(9, -1))


def swapped(tables, layer, other):
    """The page tables with those of two layers exchanged."""
    tables = list(tables)
    tables[layer], tables[other] = tables[other], tables[layer]
    return tables


def changed(tables, layer, row, column, block):
    """The page tables with one cell of one layer changed."""
    tables = list(tables)
    tables[layer] = tables[layer].clone()
    tables[layer][row, column] = block
    return tables


BREACHES = {
    "tables of two layers exchanged": (lambda t: swapped(t, 1, 2), "layers? .* another block|is another block"),
    "a block of another group": (lambda t: changed(t, 3, 0, 7, int(t[1][0, 7])), "share a buffer"),
    "a block that the layer does not have": (lambda t: changed(t, 2, 0, 6, 199), "is another block than when"),
    "a hole in the window": (lambda t: changed(t, 4, 0, 6, 0), "column 6 is 0, the padding block"),
    "a hole before the end of a full layer": (lambda t: changed(t, 5, 0, 0, 0), "column 0 is 0, the padding block"),
    "a table too few": (lambda t: t[:-1], "must be a list of 6 tables"),
    "no tables": (lambda t: None, "page_tables_per_layer is missing"),
    "rows as packed": (lambda t: [table[:1] for table in t], r"must have shape \[4, 16\]"),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_H7_a_wrong_page_of_any_layer_is_refused(drive, breach):
    driver = drive("gemma3")
    driver.prefill([driver.admit(text(120, 1), 0)])
    driver.live[0].tokens.append(5)
    call = driver.decode_call()
    change, words = BREACHES[breach]
    with pytest.raises(ContractError, match=words) as caught:
        driver.model.decode_forward(**{**call, "page_tables_per_layer": change(call["page_tables_per_layer"])})
    assert caught.value.clause == "1.6"


def test_H7_a_block_that_another_layer_still_sees_is_not_written(drive):
    """It left the window of nobody: the pool gave it away too early."""
    driver = drive("gemma3")
    first = driver.admit(text(60, 1), 0)
    driver.prefill([first])
    driver.finish(first)
    driver.prefill([driver.admit(text(60, 3), 0)])
    second = driver.admit(text(30, 4), 1)
    driver.grow(second, 30)
    taken = driver.live[0].blocks[2][-1]
    second.blocks[1][0] = taken
    with pytest.raises(ContractError, match=f"into block {taken}, which slot 0 still uses"):
        driver.prefill([second])


def test_H7_what_is_computed_again_sees_all_that_it_saw(drive):
    """A first position that was rounded down needs blocks that are before the window of the next token."""
    driver = drive("gemma3")
    request = driver.admit(text(120, 1), 0)
    driver.prefill([request], [100])
    driver.grow(request, 120)
    request.computed = 84
    with pytest.raises(ContractError, match="column 2 is 0, the padding block"):
        driver.prefill([request])


def test_a_margin_keeps_what_is_computed_again(drive, checkpoints):
    _, reference = checkpoints("gemma3")
    driver = drive("gemma3", margin=31)
    request = driver.admit(text(120, 1), 0)
    driver.prefill([request], [100])
    driver.grow(request, 120)
    request.computed = 84
    found = driver.prefill([request])[0]
    with torch.no_grad():
        expected = reference(torch.tensor([request.tokens])).logits[0, -1]
    assert torch.allclose(found, expected, atol=2e-3)
