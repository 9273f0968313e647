"""A plugin in small for models whose layers have page tables of their own."""

from __future__ import annotations

from types import SimpleNamespace

import torch

BLOCK = 16
PARAMETERS = ("temperature", "top_k", "top_p", "presence_penalty", "frequency_penalty", "repetition_penalty")


class LayeredDriver:
    """Calls a model as the plugin does, host-sampled and greedy.

    shapes:  for each layer, heads and head size of its cache
    groups:  for each layer, the number of its group; layers of a group have one page table
    windows: for each group, tokens whose blocks are kept; None: all
    Groups take their blocks from one pool: the i-th layers of all groups lie in buffer i.
    """

    def __init__(self, model, shapes, groups, windows, *, batch=4, blocks=200, max_len=256):
        self.model, self.groups, self.windows, self.batch = model, groups, windows, batch
        self.width = -(-max_len // BLOCK)
        places = [groups[:layer].count(group) for layer, group in enumerate(groups)]
        layers = [
            ((blocks, heads, BLOCK, size), torch.bfloat16, place)
            for (heads, size), place in zip(shapes, places, strict=True)
        ]
        self.kv = model.allocate_kv_cache_per_layer(layers)
        self.free = list(range(blocks - 1, 0, -1))
        self.live = {}

    def admit(self, prompt, row):
        request = SimpleNamespace(tokens=list(prompt), row=row, computed=0, blocks=[[] for _ in self.windows])
        self.live[row] = request
        return request

    def finish(self, request):
        del self.live[request.row]
        self.model.release_request(request.row)
        self.free += [block for blocks in request.blocks for block in blocks if block]

    def grow(self, request, length):
        """Blocks up to `length`; what no later token sees goes back to the pool."""
        for blocks, window in zip(request.blocks, self.windows, strict=True):
            for column in range(max(0, request.computed + 1 - window) // BLOCK if window else 0):
                if blocks[column]:
                    self.free.insert(0, blocks[column])
                    blocks[column] = 0
            while len(blocks) * BLOCK < length:
                blocks.append(self.free.pop())

    def tables(self, requests, rows):
        """Page tables by layer, [B, W] each; line rows[i] belongs to requests[i]."""
        tables = [torch.zeros(self.batch, self.width, dtype=torch.int32) for _ in self.windows]
        for request, row in zip(requests, rows, strict=True):
            for table, blocks in zip(tables, request.blocks, strict=True):
                table[row, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
        return [tables[group] for group in self.groups]

    def prefill_call(self, requests, ends=None):
        ends = ends or [len(request.tokens) for request in requests]
        tokens = torch.zeros(len(requests), max(ends), dtype=torch.int32)
        for i, (request, end) in enumerate(zip(requests, ends, strict=True)):
            self.grow(request, end)
            tokens[i, :end] = torch.tensor(request.tokens[:end])
        tables = self.tables(requests, range(len(requests)))
        return {
            "tokens": tokens,
            "page_table": tables[0][: len(requests)],
            "page_tables_per_layer": tables,
            "kv_cache": self.kv,
            "prompt_lens": ends,
            "start_pos": torch.tensor([request.computed for request in requests], dtype=torch.int32),
            "empty_slots": [request.row for request in requests],
        }

    def prefill(self, requests, ends=None):
        """Logits of each row's last position, float32 [n, vocab]."""
        call = self.prefill_call(requests, ends)
        out = self.model.prefill_forward(**call)
        for request, end in zip(requests, call["prompt_lens"], strict=True):
            request.computed = end
        return out[:, -1]

    def decode_call(self):
        """The tokens of all live requests that are not computed yet: one each."""
        tokens = torch.zeros(self.batch, 1, dtype=torch.int32)
        positions = torch.full((self.batch,), -1, dtype=torch.int32)
        requests = list(self.live.values())
        for request in requests:
            self.grow(request, request.computed + 1)
            tokens[request.row] = request.tokens[request.computed]
            positions[request.row] = request.computed
        tables = self.tables(requests, [request.row for request in requests])
        return {
            "tokens": tokens,
            "start_pos": positions,
            "page_table": tables[0],
            "page_tables_per_layer": tables,
            "kv_cache": self.kv,
            "reload_inputs": True,
            "reload_page_table": False,
            "reload_sampling_params": False,
            "reset_sampling_state": False,
        }

    def decode(self):
        """Logits of all rows, float32 [B, vocab]."""
        out, _ = self.model.decode_forward(**self.decode_call())
        for request in self.live.values():
            request.computed += 1
        return out[:, 0]
