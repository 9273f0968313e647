"""Names of architectures and targets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_registry import Target, TargetError, bare_name, tt_name


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "TTLlamaForCausalLM"])
def test_both_spellings_of_an_architecture_mean_the_same(name: str) -> None:
    assert (bare_name(name), tt_name(name)) == ("LlamaForCausalLM", "TTLlamaForCausalLM")


def test_a_name_that_is_only_the_prefix_is_a_name() -> None:
    assert (bare_name("TT"), tt_name("TT")) == ("TT", "TTTT")


@given(st.from_regex(r"[A-Za-z_]\w{0,12}", fullmatch=True))
def test_prefixing_is_idempotent_and_undone_by_bare_name(name: str) -> None:
    assert tt_name(tt_name(name)) == tt_name(name)
    assert tt_name(bare_name(name)) == tt_name(name)


@pytest.mark.parametrize("text", ["", ":", "a", "a:", ":B", "a.:B", ".a:B", "a b:C", "a:B:C", "a:B.c", "1a:B", "a/b:C"])
def test_a_target_that_is_not_module_and_class_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match=r"module\.path:ClassName"):
        Target.parse(text)


@given(st.text())
def test_target_parsing_is_total_and_round_trips(text: str) -> None:
    try:
        target = Target.parse(text)
    except TargetError:
        return
    assert Target.parse(str(target)) == target
