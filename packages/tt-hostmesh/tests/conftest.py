"""A tiny checkpoint, a mesh, and a driver that calls a model as the plugin does."""

import json
from dataclasses import make_dataclass
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from tt_hostmesh import HostRuntime, Machine
from tt_hostmesh.llama.generator import LegacyLlamaForCausalLM, LlamaForCausalLM

BLOCK = 16
MAX_LEN = 256
VOCABULARY = 160

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": MAX_LEN,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": None,
    "eos_token_id": None,
}


def shapes(config):
    """Tensor name -> shape of a Llama checkpoint."""
    c = SimpleNamespace(**config)
    query, key = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    out = {"model.embed_tokens.weight": (c.vocab_size, c.hidden_size), "model.norm.weight": (c.hidden_size,)}
    if not c.tie_word_embeddings:
        out["lm_head.weight"] = (c.vocab_size, c.hidden_size)
    for i in range(c.num_hidden_layers):
        layer = f"model.layers.{i}."
        linear = {
            "self_attn.q_proj": (query, c.hidden_size, c.attention_bias),
            "self_attn.k_proj": (key, c.hidden_size, c.attention_bias),
            "self_attn.v_proj": (key, c.hidden_size, c.attention_bias),
            "self_attn.o_proj": (c.hidden_size, query, c.attention_bias),
            "mlp.gate_proj": (c.intermediate_size, c.hidden_size, c.mlp_bias),
            "mlp.up_proj": (c.intermediate_size, c.hidden_size, c.mlp_bias),
            "mlp.down_proj": (c.hidden_size, c.intermediate_size, c.mlp_bias),
        }
        for name, (rows, columns, bias) in linear.items():
            out[f"{layer}{name}.weight"] = (rows, columns)
            if bias:
                out[f"{layer}{name}.bias"] = (rows,)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            out[f"{layer}{norm}.weight"] = (c.hidden_size,)
    return out


def save_checkpoint(directory, *, shards=1, seed=0, **changes):
    """Random weights and a config.json; returns the configuration as the model gets it."""
    config = {**CONFIG, **changes}
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes(config).items():
        noise = torch.randn(shape, generator=generator)
        tensors[name] = 1 + 0.1 * noise if "norm" in name else 0.25 * noise
    (directory / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    else:
        names = {f"model-{i}.safetensors": sorted(tensors)[i::shards] for i in range(shards)}
        for file, members in names.items():
            save_file({name: tensors[name] for name in members}, directory / file, metadata={"format": "pt"})
        index = {name: file for file, members in names.items() for name in members}
        (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return SimpleNamespace(**config, _name_or_path=str(directory))


def greedy_reference(config):
    """Greedy continuation by transformers on the same weights: reference(prompt, count) -> ids."""
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM.from_pretrained(config._name_or_path, dtype=torch.float32).eval()

    def reference(prompt, count):
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        out = model.generate(ids, attention_mask=mask, max_new_tokens=count, do_sample=False, pad_token_id=0)
        return out[0, len(prompt) :].tolist()

    return reference


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Configuration of a random Llama on disk."""
    return save_checkpoint(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="session")
def reference(tiny):
    return greedy_reference(tiny)


@pytest.fixture
def machine():
    """A machine of its own for each test; every mesh must be closed at the end."""
    own = Machine({})
    yield own
    assert not own.open_meshes, "the test left a mesh open"


@pytest.fixture
def load(machine, tiny):
    """load(cls, lanes=1, batch=4, ...) -> Driver over a loaded model. The mesh is closed at the end of the test."""
    runtime = HostRuntime(machine)
    opened = []

    def make(cls=LlamaForCausalLM, *, config=tiny, lanes=1, batch=4, blocks=64, max_len=MAX_LEN, trace=50_000_000):
        if lanes > 1:
            machine.environ = {"TT_HOST_CLUSTER": "T3K"}
            runtime.set_fabric_config(config="FABRIC_1D")
        mesh = runtime.open_mesh_device((1, lanes), trace_region_size=trace)
        opened.append(mesh)
        model = cls.initialize_vllm_model(config, mesh, batch, max_seq_len=max_len, tt_data_parallel=lanes)
        return Driver(model, runtime, mesh, batch, lanes, blocks, max_len, config)

    yield make
    for mesh in opened:
        if mesh.is_open:
            for submesh in mesh.get_submeshes():
                runtime.close_mesh_device(submesh)
            runtime.close_mesh_device(mesh)


NEUTRAL = {
    "temperature": 0.0,
    "top_k": 1,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "seed": None,
    "num_logprobs": -2,
    "enable_log_probs": False,
}
Params = make_dataclass("Params", list(NEUTRAL), frozen=True)


def params(rows, **columns):
    """Sampling parameters of `rows` rows, greedy but for `columns` (a list, or one value for all)."""
    lists = {name: [value] * rows for name, value in NEUTRAL.items()}
    for name, value in columns.items():
        lists[name] = list(value) if isinstance(value, list) else [value] * rows
    return Params(**lists)


class Driver:
    """A plugin in small: rows, blocks and the calls. `live` maps rows to requests; a request has `tokens`, `row`,
    `blocks` (lane-local) and `computed`."""

    def __init__(self, model, runtime, mesh, batch, lanes, blocks, max_len, config):
        self.model, self.runtime, self.mesh, self.config = model, runtime, mesh, config
        self.batch, self.lanes = batch, lanes
        self.width = min(-(-max_len // BLOCK), blocks)
        shape = (blocks, config.num_key_value_heads, BLOCK, config.head_dim)
        self.kv = model.allocate_kv_cache(shape, torch.float32, config.num_hidden_layers)
        self.free = [list(range(blocks - 1, 0, -1)) for _ in range(lanes)]
        self.live = {}
        self.v1 = getattr(model, "decode_input_update_contract", 0) >= 1
        self.forget()

    def forget(self):
        """Nothing is resident: the next decode brings everything."""
        self.fresh, self.host, self.table, self.rows = True, None, None, ()

    def warm_up(self):
        self.model.warmup_model_prefill(self.kv, True, True)
        self.model.warmup_model_decode(self.kv, True, self.batch, self.width, True)
        self.forget()

    def lane(self, row):
        return row * self.lanes // self.batch

    def admit(self, prompt, row, blocks=(), computed=0):
        request = SimpleNamespace(tokens=list(prompt), row=row, blocks=list(blocks), computed=computed)
        self.live[row] = request
        return request

    def finish(self, request, keep=0):
        """The request leaves; its blocks but for the first `keep` are free, next to be used."""
        del self.live[request.row]
        self.free[self.lane(request.row)] += reversed(request.blocks[keep:])

    def grow(self, request, length):
        while len(request.blocks) * BLOCK < length:
            request.blocks.append(self.free[self.lane(request.row)].pop())

    def prefill_call(self, requests, ends=None, sampling=None):
        ends = ends or [len(request.tokens) for request in requests]
        tokens = torch.zeros(len(requests), max(ends), dtype=torch.int32)
        table = torch.zeros(len(requests), self.width, dtype=torch.int32)
        for i, (request, end) in enumerate(zip(requests, ends, strict=True)):
            self.grow(request, end)
            tokens[i, :end] = torch.tensor(request.tokens[:end])
            table[i, : len(request.blocks)] = torch.tensor(request.blocks)
        return {
            "tokens": tokens,
            "page_table": table,
            "kv_cache": self.kv,
            "enable_trace": True,
            "prompt_lens": torch.tensor(ends).numpy(),
            "start_pos": torch.tensor([request.computed for request in requests], dtype=torch.int32),
            "empty_slots": [request.row for request in requests],
            **({} if sampling is None else {"sampling_params": sampling}),
        }

    def prefill(self, requests, ends=None, sampling=None, final=True):
        """One prefill; with `final` the next token is appended to every request. Gives the raw result."""
        call = self.prefill_call(requests, ends, sampling)
        out = self.model.prefill_forward(**call)
        for request, end in zip(requests, call["prompt_lens"].tolist(), strict=True):
            request.computed = end
        if final:
            tokens = out[0][:, 0] if sampling is not None else out[:, -1].argmax(-1)
            for request, token in zip(requests, tokens.tolist(), strict=True):
                request.tokens.append(token)
        self.fresh = True
        return out

    def decode_call(self, sampling=None, **changes):
        tokens = torch.zeros(self.batch, 1, dtype=torch.int32)
        positions = torch.full((self.batch,), -1, dtype=torch.int32)
        table = torch.zeros(self.batch, self.width, dtype=torch.int32)
        for row, request in self.live.items():
            self.grow(request, len(request.tokens))
            tokens[row] = request.tokens[-1]
            positions[row] = len(request.tokens) - 1
            table[row, : len(request.blocks)] = torch.tensor(request.blocks)
        call = {"tokens": tokens, "start_pos": positions, "page_table": table, "kv_cache": self.kv}
        call |= {"enable_trace": True, "read_from_device": True}
        if sampling is not None:
            call["sampling_params"] = sampling
        return {**call, **self.commands(sampling, table), **changes}

    def commands(self, sampling, table):
        transition = self.fresh or self.host is not (sampling is None) or self.rows != tuple(sorted(self.live))
        if not self.v1:
            return {} if sampling is None else {"reset_batch": transition}
        reload = sampling is None or transition
        return {
            "reload_inputs": reload,
            "reload_page_table": not reload and not torch.equal(table, self.table),
            "reload_sampling_params": sampling is not None and transition,
            "reset_sampling_state": sampling is not None and transition,
        }

    def accepted(self, call):
        """The model took a decode call."""
        self.table, self.host, self.fresh = call["page_table"].clone(), "sampling_params" not in call, False
        self.rows = tuple(sorted(self.live))
        for request in self.live.values():
            request.computed += 1

    def append(self, out, sampling):
        tokens = out[0] if sampling is not None else out[0][:, -1].argmax(-1)
        for row, request in self.live.items():
            request.tokens.append(int(tokens[row]))

    def decode(self, sampling=None, **changes):
        """One synchronous step; its tokens are appended to every live request. Gives the raw result."""
        call = self.decode_call(sampling, **changes)
        out = self.model.decode_forward(**call)
        self.accepted(call)
        self.append(out, sampling)
        return out


@pytest.fixture
def tools():
    """Helpers for tests: params, save_checkpoint, greedy_reference, the two classes."""
    return SimpleNamespace(
        params=params,
        save_checkpoint=save_checkpoint,
        greedy_reference=greedy_reference,
        V1=LlamaForCausalLM,
        Legacy=LegacyLlamaForCausalLM,
        vocabulary=VOCABULARY,
        block=BLOCK,
    )
