"""The embedding model: exact against transformers, strict about clause 1.13."""

import pytest
import torch

from tt_hostmesh import HostRuntime
from tt_hostmesh.bert.embedder import BertModel
from tt_hostmesh.errors import ContractError


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny-bert")
    torch.manual_seed(4)
    config = transformers.BertConfig(
        vocab_size=120,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(folder)
    config._name_or_path = str(folder)
    return config, model


@pytest.fixture
def bert(machine, checkpoint):
    runtime = HostRuntime(machine)
    mesh = runtime.open_mesh_device((1, 1))
    yield BertModel.initialize_vllm_model(checkpoint[0], mesh, 4, max_seq_len=48)
    runtime.close_mesh_device(mesh)


def padded(prompts):
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(prompt) for prompt in prompts], batch_first=True)
    lengths = torch.tensor([[len(prompt)] for prompt in prompts])
    return ids, (torch.arange(ids.shape[1]) < lengths).float()


def test_embeddings_are_those_of_transformers_whatever_the_padding(bert, checkpoint):
    prompts = [[5], [7, 8, 9], list(range(40)), [3, 3]]
    embeddings = bert.forward(*padded(prompts))
    for prompt, embedding in zip(prompts, embeddings, strict=True):
        with torch.no_grad():
            expected = checkpoint[1](torch.tensor([prompt])).last_hidden_state[0, 0]
        assert torch.allclose(embedding, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda ids, mask: (ids.int(), mask), "input_ids are torch.int32"),
        (lambda ids, mask: (ids, mask.bool()), "attention_mask is torch.bool"),
        (lambda ids, mask: (ids.repeat(3, 1), mask.repeat(3, 1)), "6 rows in a model of max_batch_size 4"),
        (lambda ids, mask: (ids.repeat(1, 20), mask.repeat(1, 20)), "60 positions"),
        (lambda ids, mask: (ids + 115, mask), "leave the vocabulary"),
        (lambda ids, mask: (ids, mask.flip(1)), "hole"),
        (lambda ids, mask: (ids, mask * torch.tensor([[1.0], [0.0]])), "no tokens"),
    ],
)
def test_a_call_that_breaks_the_contract_is_refused(bert, change, text):
    with pytest.raises(ContractError, match=text):
        bert.forward(*change(*padded([[5], [7, 8, 9]])))
