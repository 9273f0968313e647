"""The names of the speculative-decoding contract: a wrong declaration or tensor is refused where it is made."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_registry.capabilities import Capabilities
from vllm_tt_plugin import spec_decode
from vllm_tt_plugin.spec_decode import (
    ACCEPT_MODE_ARGMAX_IDS,
    ACCEPT_MODES,
    DRAFTER_STATE_INTERNAL,
    DRAFTER_STATE_PAGED,
    DraftOutput,
    SpecContractError,
    SpecPlan,
    SpecReject,
    VerifyOutput,
    check_spec_side_tensors,
    normalize_declared_values,
)

WRONG_PLANS = [
    {"effective_k": 0},
    {"effective_k": True},
    {"lanes_per_request": 0},
    {"extra_bytes_per_seq": -1},
    {"extra_bytes_per_token": 1.5},
    {"accept_modes": ()},
    {"accept_modes": ["argmax"]},
    {"drafter_state": DRAFTER_STATE_PAGED},
    {"drafter_state": "elsewhere"},
    {"drafter_target_cache_requires": "all_layers"},
    {"supports_narrow_decode": 1},
]


def test_a_plan_is_plain_json_values_whatever_collection_declared_it() -> None:
    plan = SpecPlan(effective_k=3, accept_modes={ACCEPT_MODE_ARGMAX_IDS}, drafter_state=DRAFTER_STATE_INTERNAL)
    assert json.loads(json.dumps(plan.as_dict())) == {
        "effective_k": 3,
        "lanes_per_request": 1,
        "extra_bytes_per_seq": 0,
        "extra_bytes_per_token": 0,
        "accept_modes": ["argmax_ids"],
        "drafter_state": "internal",
        "drafter_target_cache_requires": [],
        "supports_narrow_decode": False,
    }


@pytest.mark.parametrize("wrong", WRONG_PLANS, ids=str)
def test_a_plan_with_a_wrong_value_names_the_field_and_what_is_allowed(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecContractError, match=rf"SpecPlan\.{next(iter(wrong))}.*allowed"):
        SpecPlan(**{"effective_k": 2, **wrong})  # type: ignore[arg-type]


def test_a_refusal_says_why() -> None:
    assert SpecReject("too long", supported_k=2).supported_k == 2
    for wrong in ({"reason": ""}, {"reason": "x", "supported_k": -1}):
        with pytest.raises(SpecContractError):
            SpecReject(**wrong)  # type: ignore[arg-type]


def test_a_verify_answer_has_a_column_for_each_draft_and_one_more() -> None:
    assert VerifyOutput(argmax_ids=np.zeros((4, 3), np.int32)).argmax_ids is not None
    for wrong in ({}, {"argmax_ids": np.zeros((4, 1))}, {"argmax_ids": np.zeros(4)}, {"logits": np.zeros((4, 3))}):
        with pytest.raises(SpecContractError):
            VerifyOutput(**wrong)


def test_drafts_are_counted_row_by_row() -> None:
    ids = np.zeros((2, 3), np.int32)
    assert DraftOutput(ids, np.array([0, 3])).draft_scores is None
    for counts in ([0], [0, 4], [-1, 0], [0.0, 1.0]):
        with pytest.raises(SpecContractError, match="num_valid"):
            DraftOutput(ids, np.array(counts))


@given(st.integers(1, 6), st.lists(st.tuples(st.integers(-1, 7), st.integers(-1, 8)), min_size=1, max_size=5))
def test_side_tensors_pass_exactly_when_every_count_is_in_its_range(drafts: int, rows: list[tuple[int, int]]) -> None:
    valid, accepted = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    right = all(0 <= n <= drafts and 1 <= c <= 1 + drafts for n, c in rows)
    if right:
        check_spec_side_tensors(valid, accepted, len(rows), drafts)
        with pytest.raises(SpecContractError, match="shape"):
            check_spec_side_tensors(valid, accepted, len(rows) + 1, drafts)
    else:
        with pytest.raises(SpecContractError, match=r"\[\d\]"):
            check_spec_side_tensors(valid, accepted, len(rows), drafts)


@given(st.lists(st.sampled_from(sorted(ACCEPT_MODES))), st.sampled_from([list, tuple, set, frozenset, iter]))
def test_a_declaration_is_the_same_in_every_collection(names: list[str], kind: type) -> None:
    assert normalize_declared_values(kind(names), ACCEPT_MODES) == tuple(sorted(set(names)))


@pytest.mark.parametrize("wrong", [3, {"logits": 1}, ["logits", 3], b"logits", ["greedy"]], ids=str)
def test_a_declaration_of_something_else_is_refused(wrong: object) -> None:
    with pytest.raises(SpecContractError, match="the declaration is"):
        normalize_declared_values(wrong, ACCEPT_MODES)


def test_none_and_one_name_are_declarations_too() -> None:
    assert normalize_declared_values(None) == ()
    assert normalize_declared_values("logits", ACCEPT_MODES) == ("logits",)


def test_the_registry_takes_the_same_names_from_a_class() -> None:
    declared = {
        "spec_requirements": sorted(spec_decode.SPEC_REQUIREMENTS),
        "spec_hidden_handoff": sorted(spec_decode.HIDDEN_HANDOFFS),
    }
    read = Capabilities.parse(declared)
    assert read.spec_requirements == spec_decode.SPEC_REQUIREMENTS
    assert read.spec_hidden_handoff == spec_decode.HIDDEN_HANDOFFS
    for key, names in declared.items():
        with pytest.raises(TypeError):
            Capabilities.parse({key: [*names, "another"]})
