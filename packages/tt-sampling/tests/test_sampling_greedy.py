"""The best token of each line: torch's argmax, with numpy and without."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from tt_sampling.host import greedy  # noqa: E402


@pytest.mark.parametrize("numpy", [greedy.numpy, None], ids=["numpy", "torch alone"])
@given(seed=st.integers(0, 999), vocab=st.sampled_from([1, 31, 96, 513, 1000]), ties=st.booleans())
def test_the_best_token_is_the_first_of_the_largest(numpy, seed: int, vocab: int, ties: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, vocab, generator=generator)
    logits = logits.round() if ties else logits
    logits[0, : vocab // 2] = float("-inf")
    expected = [line.tolist().index(max(line.tolist())) for line in logits]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(greedy, "numpy", numpy)
        assert greedy.best_of_lines(logits).tolist() == expected
