"""The recurrent model: exact against transformers, its state by slot."""

import random
from types import SimpleNamespace

import pytest
import torch

from tt_hostmesh.errors import ContractError
from tt_hostmesh.qwen3_5.generator import Qwen35ForCausalLM

VOCABULARY = 160


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A random Qwen 3.5 of five layers, every third of full attention, as transformers writes it."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny-qwen3_5")
    torch.manual_seed(5)
    config = transformers.Qwen3_5TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        full_attention_interval=3,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        initializer_range=0.3,
        max_position_embeddings=256,
    )
    model = transformers.Qwen3_5ForCausalLM(config)
    model.save_pretrained(folder)
    said = transformers.AutoConfig.from_pretrained(folder)
    fields = {name: getattr(said, name) for name in ("hidden_act", "attention_bias", "layer_types", "rope_parameters")}
    sizes = {name: value for name, value in said.to_dict().items() if isinstance(value, int | float)}
    hf_config = SimpleNamespace(**{**sizes, **fields}, _name_or_path=str(folder))
    # The driver allocates this many layers of cache: those with attention.
    driver = SimpleNamespace(**{**vars(hf_config), "num_hidden_layers": said.layer_types.count("full_attention")})
    return SimpleNamespace(config=driver, model=model.eval())


@pytest.fixture
def reference(checkpoint):
    def greedy(prompt, count):
        ids = torch.tensor([prompt])
        for _ in range(count):
            with torch.no_grad():
                ids = torch.cat([ids, checkpoint.model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
        return ids[0, len(prompt) :].tolist()

    return greedy


@pytest.fixture
def driver(load, checkpoint):
    def make(**options):
        return load(Qwen35ForCausalLM, config=checkpoint.config, **options)

    return make


def prompt(length, seed=0):
    rng = random.Random(seed)
    return [rng.randrange(VOCABULARY) for _ in range(length)]


def test_greedy_tokens_are_those_of_transformers(driver, reference, tools):
    """Fails when a gate, a norm, the rotation or the order of forget and recall is wrong."""
    run = driver()
    run.warm_up()  # leaves something in every slot
    asked = [prompt(n, n) for n in (1, 3, 40, 70)]
    requests = [run.admit(tokens, row) for row, tokens in enumerate(asked)]
    run.prefill(requests)
    for _ in range(12):
        run.decode(tools.params(4))
    for tokens, request in zip(asked, requests, strict=True):
        assert request.tokens[len(tokens) :] == reference(tokens, 13)


def test_chunks_go_on_from_the_slots_state(driver, reference):
    """To the token: a chunk may end anywhere, another row may decode in between."""
    run = driver()
    other = run.admit(prompt(9, 1), 2)
    run.prefill([other])
    split = run.admit(prompt(50, 2), 1)
    for end in (1, 19, 20, 47):
        run.prefill([split], [end], final=False)
        del run.live[1]  # half a prompt does not decode
        run.decode()
        run.live[1] = split
    run.prefill([split])
    run.decode()
    assert split.tokens[50:] == reference(prompt(50, 2), 2)
    assert other.tokens[9:] == reference(prompt(9, 1), 6)


def test_a_reused_slot_begins_anew_and_its_neighbour_goes_on(driver, reference):
    """Fails when a prefill at 0 keeps the state of the slot's last sequence, or clears another slot's."""
    run = driver()
    first, neighbour = run.admit(prompt(30, 3), 0), run.admit(prompt(12, 4), 1)
    run.prefill([first, neighbour])
    run.decode()
    run.finish(first)
    run.model.release_request(0)
    again = run.admit(prompt(7, 5), 0)
    run.prefill([again])
    run.decode()
    assert again.tokens[7:] == reference(prompt(7, 5), 2)
    assert neighbour.tokens[12:] == reference(prompt(12, 4), 3)


def test_slot_remap_takes_the_state_along(driver, reference, tools):
    """Fails when the token moves and the memory stays."""
    run = driver()
    first, second = run.admit(prompt(20, 6), 0), run.admit(prompt(33, 7), 1)
    run.prefill([first, second])
    run.decode(tools.params(4))
    first.row, second.row = 3, 0
    run.live = {3: first, 0: second}
    run.forget()
    run.decode(tools.params(4), slot_remap=torch.tensor([1, 2, 3, 0], dtype=torch.int32))
    run.decode(tools.params(4))
    assert first.tokens[20:] == reference(prompt(20, 6), 4)
    assert second.tokens[33:] == reference(prompt(33, 7), 4)


def test_lanes_share_the_slots_and_nothing_else(driver, reference, tools):
    run = driver(lanes=2, batch=4)
    requests = {row: run.admit(prompt(11 + row, row), row) for row in (0, 3)}
    run.prefill(list(requests.values()))
    for _ in range(4):
        run.decode(tools.params(4))
    for row, request in requests.items():
        assert request.tokens[11 + row :] == reference(prompt(11 + row, row), 5)


def test_a_prefill_on_another_sequences_state_is_refused(driver):
    """A page table that is right does not help: the state is the slot's."""
    run = driver()
    first, second = run.admit(prompt(32, 8), 0), run.admit(prompt(40, 9), 1)
    run.prefill([first], [32], final=False)
    run.prefill([second], [16], final=False)
    second.row = 0
    with pytest.raises(ContractError, match=r"slot 0 holds the state of another sequence"):
        run.prefill([second])


@pytest.mark.parametrize(("start", "text"), [(16, "stands at 20"), (24, "never written|stands at 20")])
def test_a_state_cannot_go_back_nor_leap(driver, start, text):
    """Fails when first positions are rounded down for a model that cannot compute a token twice."""
    run = driver()
    request = run.admit(prompt(40, 10), 0)
    run.prefill([request], [20], final=False)
    request.computed = start
    with pytest.raises(ContractError, match=text):
        run.prefill([request])


def test_a_cache_for_the_recurrent_layers_is_refused(load, checkpoint):
    wrong = SimpleNamespace(**{**vars(checkpoint.config), "num_hidden_layers": 5})
    with pytest.raises(ValueError, match="1 attention layers"):
        load(Qwen35ForCausalLM, config=wrong)
