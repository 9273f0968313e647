"""Log probabilities that come from the device."""

import pytest

torch = pytest.importorskip("torch")

from tt_sampling.host.device_logprobs import from_top, sampled_only  # noqa: E402
from tt_sampling.result import holds_logits  # noqa: E402


def test_one_number_per_row_has_a_rank_only_where_no_token_can_be_better() -> None:
    found = sampled_only(torch.tensor([7, 9]), torch.tensor([-0.69, -0.7]))
    assert found.ids.tolist() == [[7], [9]]
    assert found.values.flatten().tolist() == pytest.approx([-0.69, -0.7])
    assert found.ranks.tolist() == [1, -1]


def test_top_lists_become_the_sampled_token_and_the_best() -> None:
    """Lists that are not sorted are; the rank is the place of the sampled token among them."""
    values = torch.tensor([[-2.0, -0.1, -3.0], [-1.0, -2.0, -0.5]])
    ids = torch.tensor([[5, 6, 7], [1, 2, 3]], dtype=torch.int32)
    found = from_top(torch.tensor([5, 3]), values, ids, [2, 0])
    assert found.ids.tolist() == [[5, 6, 5], [3, 3, 1]]
    assert found.values[0].tolist() == pytest.approx([-2.0, -0.1, -2.0])
    assert found.ranks.tolist() == [2, 1]


def test_rows_that_ask_for_the_sampled_token_only_get_one_column() -> None:
    found = from_top(torch.tensor([6]), torch.tensor([[-1.0, -2.0]]), torch.tensor([[6, 5]]), [0])
    assert found.ids.tolist() == [[6]]


def test_a_sampled_token_outside_the_list_has_no_rank() -> None:
    found = from_top(torch.tensor([9]), torch.tensor([[-1.0, -2.0]]), torch.tensor([[6, 5]]), [1])
    assert found.values[0, 0] == float("-inf")
    assert found.ranks.tolist() == [-1]


@pytest.mark.parametrize("shape", [(4, 1, 1000), (4, 1000), (4, 7, 1000), (4, 1, 1024)])
def test_logits_are_known_by_their_last_dimension(shape: tuple[int, ...]) -> None:
    """Some models return logits although tokens were asked for."""
    assert holds_logits(shape, 1000)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 1, 1), (4, 256), (2000,)])
def test_tokens_are_not_logits(shape: tuple[int, ...]) -> None:
    assert not holds_logits(shape, 1000)
