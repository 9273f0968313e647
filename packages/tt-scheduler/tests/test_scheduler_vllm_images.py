"""TTScheduler with images in prompts: they stay whole, and reach the worker complete."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.vllm


@pytest.fixture
def make(scripted: ModuleType) -> Any:
    """make(blocks=..., **config) -> engine around a TTScheduler that keeps images whole and has room for them."""
    from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

    from tt_scheduler.vllm.scheduler import TTScheduler

    def build(blocks: int = 200, asynchronous: bool = False, **config: Any) -> Any:
        settings = scripted.make_config(asynchronous=asynchronous, disable_chunked_mm_input=True, **config)
        scheduler = scripted.make_scheduler(TTScheduler, settings, blocks)
        scheduler.encoder_cache_manager = EncoderCacheManager(1_000_000)
        scheduler.max_num_encoder_input_tokens = 1_000_000
        engine = scripted.ScriptedEngine(scheduler, asynchronous, settings.cache_config.enable_prefix_caching)
        engine.outputs_of_scheduler = []
        schedule = scheduler.schedule

        def noted(*arguments: Any) -> Any:
            output = schedule(*arguments)
            engine.outputs_of_scheduler.append(output)
            return output

        scheduler.schedule = noted
        return engine

    return build


def with_images(scripted: ModuleType, name: str, prompt: list[int], spans: list[tuple[int, int]], cached: bool) -> Any:
    """A request whose prompt has an image at each [first, end)."""
    from vllm.multimodal.inputs import MultiModalFeatureSpec, MultiModalKwargsItem, PlaceholderRange
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request

    plain = scripted.make_request(name, prompt, 6)
    features = [
        MultiModalFeatureSpec(
            data=MultiModalKwargsItem.dummy(),
            modality="image",
            identifier=f"image of {end - first}",
            mm_position=PlaceholderRange(offset=first, length=end - first),
        )
        for first, end in spans
    ]
    return Request(
        request_id=name,
        prompt_token_ids=prompt,
        sampling_params=plain.sampling_params,
        pooling_params=None,
        arrival_time=0.0,
        mm_features=features,
        block_hasher=get_request_block_hasher(scripted.BLOCK, scripted.sha256) if cached else None,
    )


def load(scripted: ModuleType, engine: Any, seed: int, *, cached: bool) -> dict[str, list[tuple[int, int]]]:
    """Twelve requests of 30 to 250 tokens with up to three images of at most 60."""
    rng = random.Random(seed)
    images: dict[str, list[tuple[int, int]]] = {}
    for i in range(12):
        spans, at = [], 0
        for _ in range(rng.randrange(4)):
            first = at + rng.randrange(20)
            at = first + rng.randrange(1, 60)
            spans.append((first, at))
        prompt = [7] * (at + rng.randrange(1, 40))
        images[f"r{i}"] = spans
        engine.add(with_images(scripted, f"r{i}", prompt, spans, cached))
    return images


@pytest.mark.parametrize("cached", [False, True], ids=["plain", "prefix cache"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_P1_no_chunk_ends_inside_an_image(scripted: ModuleType, make: Any, asynchronous: bool, cached: bool) -> None:
    """A budget of 64 tokens: chunks begin at images, and cached prefixes end in the middle of some."""
    for seed in range(4):
        engine = make(24, asynchronous, max_num_batched_tokens=64, prefix_caching=cached)
        images = load(scripted, engine, seed, cached=cached)
        ends = chunk_ends(engine)
        assert ends
        for name, end in ends:
            assert not any(first < end < last for first, last in images[name]), (name, end, images[name])


def chunk_ends(engine: Any) -> list[tuple[str, int]]:
    """Runs the engine to the end. Request and position of every chunk's end."""
    engine.run()
    found: list[tuple[str, int]] = []
    for output in engine.outputs_of_scheduler:
        cached = output.scheduled_cached_reqs
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        computed |= {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        found += [(name, computed[name] + count) for name, count in output.num_scheduled_tokens.items()]
    return found


def test_P2_images_in_a_cached_prefix_reach_the_worker_with_their_pixels(scripted: ModuleType, make: Any) -> None:
    engine = make(prefix_caching=True)
    prompt = [7] * 80
    engine.add(with_images(scripted, "first", prompt, [(3, 20)], True))
    engine.run()
    engine.add(with_images(scripted, "second", prompt, [(3, 20)], True))
    engine.run()
    new = [one for output in engine.outputs_of_scheduler for one in output.scheduled_new_reqs][-1]
    assert new.num_computed_tokens >= 32
    assert [feature.data is None for feature in new.mm_features] == [False]
    assert new.mm_features[0].data is not None
    assert len(new.mm_features[0].data) == 1


def test_P3_where_inputs_may_be_split_nothing_is_changed(scripted: ModuleType, make: Any) -> None:
    engine = make(max_num_batched_tokens=64)
    engine.scheduler.scheduler_config.disable_chunked_mm_input = False
    engine.add(with_images(scripted, "long", [7] * 150, [(10, 140)], False))
    assert ("long", 64) in chunk_ends(engine)
