"""A tiny checkpoint, a mesh, and a driver that calls a model as the plugin does."""

from dataclasses import make_dataclass
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tt_hostmesh import HostRuntime, Machine  # noqa: E402
from tt_hostmesh.llama.generator import LegacyLlamaForCausalLM, LlamaForCausalLM  # noqa: E402

BLOCK = 16
MAX_LEN = 256


def tiny_config(**changes):
    values = {
        "vocab_size": 160,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": MAX_LEN,
        "tie_word_embeddings": False,
        "initializer_range": 0.25,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return transformers.LlamaConfig(**{**values, **changes})


def save_checkpoint(directory, seed=0, shard_size="5GB", **changes):
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(tiny_config(**changes)).eval().float()
    model.save_pretrained(directory, max_shard_size=shard_size)
    return model


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """(directory, transformers model) of a random Llama."""
    directory = tmp_path_factory.mktemp("tiny-llama")
    return directory, save_checkpoint(directory)


@pytest.fixture
def make_checkpoint(tmp_path):
    """Save a random Llama with changed configuration; gives (directory, transformers model)."""

    def make(**changes):
        return tmp_path, save_checkpoint(tmp_path, **changes)

    return make


@pytest.fixture
def machine():
    """A machine of its own for each test; every mesh must be closed at the end."""
    own = Machine({})
    yield own
    assert not own.open_meshes, "the test left a mesh open"


@pytest.fixture
def load(machine, checkpoint):
    """Load the tiny model: load(lanes=1, batch=4, ...) -> Driver. Closes the mesh afterwards."""
    runtime = HostRuntime(machine)
    opened = []

    def make(cls=LlamaForCausalLM, *, directory=None, lanes=1, batch=4, blocks=64, max_len=MAX_LEN, block=BLOCK):
        if lanes > 1:
            machine.environ = {"TT_HOST_CLUSTER": "T3K"}
            runtime.set_fabric_config(config="FABRIC_1D")
        mesh = runtime.open_mesh_device((1, lanes), trace_region_size=50_000_000)
        opened.append(mesh)
        config = transformers.AutoConfig.from_pretrained(directory or checkpoint[0])
        model = cls.initialize_vllm_model(config, mesh, batch, max_seq_len=max_len, tt_data_parallel=lanes)
        return Driver(model, runtime, batch, lanes, blocks, block, max_len, config)

    yield make
    for mesh in opened:
        if mesh.is_open:
            for submesh in mesh.get_submeshes():
                runtime.close_mesh_device(submesh)
            runtime.close_mesh_device(mesh)


def greedy(rows):
    """Sampling parameters of `rows` greedy rows."""
    return params(rows)


def params(rows, **columns):
    neutral = {
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
    lists = {name: [value] * rows for name, value in neutral.items()}
    for name, value in columns.items():
        lists[name] = value if isinstance(value, list) else [value] * rows
    return PARAMS(**lists)


FIELDS = "temperature top_k top_p presence_penalty frequency_penalty repetition_penalty seed num_logprobs"
PARAMS = make_dataclass("TTSamplingParams", [*FIELDS.split(), "enable_log_probs"], frozen=True)


class Request(SimpleNamespace):
    """tokens: all ids so far; row; blocks: lane-local ids."""


class Driver:
    """Rows, blocks and calls of a plugin, one simple request table; `decode` is one synchronous step."""

    def __init__(self, model, runtime, batch, lanes, blocks, block, max_len, config):
        self.model, self.runtime, self.config = model, runtime, config
        self.batch, self.lanes, self.block = batch, lanes, block
        self.width = min(-(-max_len // block), blocks)
        heads = config.num_key_value_heads
        self.kv = model.allocate_kv_cache(
            (blocks, heads, block, config.head_dim), torch.float32, config.num_hidden_layers
        )
        self.free = [list(range(1, blocks)) for _ in range(lanes)]
        self.live = {}
        self.fresh = True
        self.v1 = getattr(model, "decode_input_update_contract", 0) >= 1

    def warm_up(self):
        self.model.warmup_model_prefill(self.kv, True, True)
        self.model.warmup_model_decode(self.kv, True, self.batch, self.width, True)

    def lane(self, row):
        return row * self.lanes // self.batch

    def admit(self, prompt, row, blocks=()):
        request = Request(tokens=list(prompt), row=row, blocks=list(blocks), computed=0)
        self.live[row] = request
        return request

    def finish(self, request, keep_blocks=False):
        del self.live[request.row]
        if not keep_blocks:
            self.free[self.lane(request.row)] = request.blocks + self.free[self.lane(request.row)]
        self.fresh = True

    def grow(self, request, length):
        while len(request.blocks) * self.block < length:
            request.blocks.append(self.free[self.lane(request.row)].pop())

    def prefill_call(self, requests, ends=None, sampling=None):
        ends = ends or [len(request.tokens) for request in requests]
        tokens = torch.zeros(len(requests), max(ends), dtype=torch.int32)
        table = torch.zeros(len(requests), self.width, dtype=torch.int32)
        for i, (request, end) in enumerate(zip(requests, ends, strict=True)):
            self.grow(request, end)
            tokens[i, :end] = torch.tensor(request.tokens[:end])
            table[i, : len(request.blocks)] = torch.tensor(request.blocks)
        call = {
            "tokens": tokens,
            "page_table": table,
            "kv_cache": self.kv,
            "enable_trace": True,
            "prompt_lens": torch.tensor(ends).numpy(),
            "start_pos": torch.tensor([request.computed for request in requests], dtype=torch.int32),
            "empty_slots": [request.row for request in requests],
        }
        return {**call, "sampling_params": sampling} if sampling is not None else call

    def prefill(self, requests, ends=None, sampling=None, final=True):
        """One prefill call; with `final` the sampled (or greedy) token is appended. Gives the raw result."""
        call = self.prefill_call(requests, ends, sampling)
        out = self.model.prefill_forward(**call)
        for request, end in zip(requests, ends or [len(r.tokens) for r in requests], strict=True):
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
        transition = self.fresh or (sampling is None) != self.host
        if not self.v1:
            return {} if sampling is None else {"reset_batch": transition}
        reload = sampling is None or transition
        return {
            "reload_inputs": reload,
            "reload_page_table": not reload and not torch.equal(table, self.table),
            "reload_sampling_params": sampling is not None and transition,
            "reset_sampling_state": sampling is not None and transition,
        }

    host = None
    table = None

    def accepted(self, call, sampling):
        self.table, self.host, self.fresh = call["page_table"].clone(), sampling is None, False
        for request in self.live.values():
            request.computed = len(request.tokens)

    def append(self, out, sampling):
        tokens = out[0].tolist() if sampling is not None else out[0][:, -1].argmax(-1).tolist()
        for row, request in self.live.items():
            request.tokens.append(tokens[row])

    def decode(self, sampling=None, **changes):
        """One step, result appended to every live request. Gives the raw result."""
        call = self.decode_call(sampling, **changes)
        out = self.model.decode_forward(**call)
        self.accepted(call, sampling)
        self.append(out, sampling)
        return out


@pytest.fixture
def reference(checkpoint):
    """Greedy continuation by transformers: reference(prompt, n) -> token ids."""
    return reference_of(checkpoint[1])


def reference_of(model):
    def generate(prompt, count):
        ids = torch.tensor([prompt])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0
        )
        return out[0, len(prompt) :].tolist()

    return generate


@pytest.fixture
def tools():
    """The helpers above, for tests."""
    return SimpleNamespace(
        params=params, greedy=greedy, reference_of=reference_of, Legacy=LegacyLlamaForCausalLM, V1=LlamaForCausalLM
    )
