"""Every sampling parameter of the installed vLLM has its effect or is refused; none is ignored in silence."""

from __future__ import annotations

import pytest

from tt_platform.admission import AROUND, REFUSED, SAMPLED, refuse_request

pytestmark = pytest.mark.vllm

# A value that asks for something, for each refused parameter of any supported release.
ASKING = {
    "prompt_logprobs": 0,
    "prompt_logprob_token_ids": [[1, 2]],
    "prompt_logprob_start": 1,
    "routed_experts_prompt_start": 3,
    "trace_decode_token_ids": [5],
    "watermarking": True,
}


def test_every_parameter_of_this_release_is_known():
    """A release that adds one fails here, until somebody decides: it has an effect, or it is refused."""
    from vllm.sampling_params import SamplingParams

    assert set(SamplingParams.__struct_fields__) - SAMPLED - AROUND - REFUSED.keys() == set()
    assert ASKING.keys() == REFUSED.keys()


@pytest.mark.parametrize("name", ASKING)
def test_a_refused_parameter_is_refused_when_it_asks_for_something(name):
    from vllm.sampling_params import SamplingParams

    from tt_platform.vllm.requests import request_facts

    if name not in SamplingParams.__struct_fields__:
        pytest.skip("not in this release")
    params = SamplingParams()
    assert refuse_request(request_facts({"prompt_token_ids": [1]}, params)) is None
    if getattr(params, name) == ASKING[name]:
        pytest.skip("the default of this release: nobody asked")
    setattr(params, name, ASKING[name])
    refusal = refuse_request(request_facts({"prompt_token_ids": [1]}, params))
    assert refusal is not None
    assert refusal.parameter == name


def test_a_parameter_that_is_switched_off_is_not_refused():
    from vllm.sampling_params import SamplingParams

    from tt_platform.vllm.requests import request_facts

    params = SamplingParams()
    if "watermarking" in SamplingParams.__struct_fields__:
        params.watermarking = False
    assert refuse_request(request_facts({"prompt_token_ids": [1]}, params)) is None


def test_a_parameter_that_a_release_adds_is_refused_before_anybody_knows_it():
    """The fields are looked at, not the version. An array as a value is fine too."""
    import numpy as np
    from vllm.sampling_params import SamplingParams

    from tt_platform.vllm.requests import request_facts

    class Newer(SamplingParams):
        levitation: object = None

    params = Newer()
    assert refuse_request(request_facts({"prompt_token_ids": [1]}, params)) is None
    params.levitation = np.arange(3)
    refusal = refuse_request(request_facts({"prompt_token_ids": [1]}, params))
    assert refusal is not None
    assert refusal.parameter == "levitation"
