"""TT_MODEL_CLASS_OVERRIDES."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tt_registry import Override, OverrideError, Target, parse_overrides
from tt_registry.overrides import read_overrides

GEMMA = Override("Gemma4ForCausalLM", Target("models.demos.gemma4.tt.generator_vllm", "Gemma4DFlashForCausalLM"))


@pytest.mark.parametrize("name", ["Gemma4ForCausalLM", "TTGemma4ForCausalLM"])
def test_an_entry_is_read_with_and_without_the_prefix(name: str) -> None:
    assert parse_overrides(f"{name}={GEMMA.target}") == (GEMMA,)


def test_several_entries_with_blanks_and_a_trailing_comma() -> None:
    found = parse_overrides(" A = a:B , TTC=c.d:E ,, ")
    assert found == (Override("A", Target("a", "B")), Override("C", Target("c.d", "E")))


@pytest.mark.parametrize("text", ["", " ", ","])
def test_nothing_is_no_override(text: str) -> None:
    assert parse_overrides(text) == ()
    assert read_overrides({"TT_MODEL_CLASS_OVERRIDES": text}) == read_overrides({}) == ()


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("A", "no '='"),
        ("a.b:C", "no '='"),
        ("=a:B", "'' is not an architecture name"),
        ("A B=a:B", "'A B' is not an architecture name"),
        ("A=", "has no ':'"),
        ("A=a.b.C", "has no ':'"),
        ("A=a:B:C", "'B:C'"),
        ("A=a:B=c", "'B=c'"),
        ("A=a..b:C", "'a..b'"),
    ],
)
def test_a_malformed_entry_names_the_variable_the_entry_and_the_form(entry: str, why: str) -> None:
    with pytest.raises(OverrideError) as caught:
        parse_overrides(f"Good=a:B,{entry}")
    text = str(caught.value)
    assert "TT_MODEL_CLASS_OVERRIDES" in text
    assert repr(entry) in text
    assert why in text
    assert "Architecture=module.path:ClassName" in text


def test_two_classes_for_one_architecture_are_refused_even_across_spellings() -> None:
    assert len(parse_overrides("A=a:B,TTA=a:B")) == 1
    with pytest.raises(OverrideError, match="already set to a:B"):
        parse_overrides("A=a:B,TTA=a:C")


@given(st.one_of(st.text(), st.text(alphabet="AT=:,. b")))
@example("A=a:B,=")
def test_parsing_is_total(text: str) -> None:
    """A value or an OverrideError, never another exception; and what was read says the same again."""
    try:
        found = parse_overrides(text)
    except OverrideError:
        return
    assert parse_overrides(",".join(f"{o.architecture}={o.target}" for o in found)) == found
