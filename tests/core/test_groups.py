import pytest
import torch

from envcoder_bench.core.groups import GroupLayout, common


def test_groups_are_contiguous_views_of_one_size():
    layout = GroupLayout(3, 4)
    x = torch.arange(12.0).view(12, 1)
    views = layout.views({"x": x})
    assert [v["x"].flatten().tolist() for v in views] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    x[5] = -1.0  # a view sees what is written to the whole
    assert views[1]["x"][1].item() == -1.0
    assert layout.split(x).data_ptr() == x.data_ptr()
    assert torch.equal(layout.merge(layout.split(x)), x)


def test_per_group_values_are_repeated_for_each_environment():
    layout = GroupLayout(2, 3)
    assert layout.per_env(torch.tensor([True, False])).tolist() == [True] * 3 + [False] * 3


@pytest.mark.parametrize("groups, envs", [(0, 1), (1, 0)])
def test_empty_layout_is_refused(groups, envs):
    with pytest.raises(ValueError, match="at least one"):
        GroupLayout(groups, envs)


def test_group_out_of_range_is_refused():
    with pytest.raises(IndexError):
        GroupLayout(2, 3).slice(2)


def test_groups_at_different_iterations_have_nothing_in_common():
    parts = [{"powers": torch.tensor([0.9, 0.99])}, {"powers": torch.tensor([0.9, 0.98])}]
    assert common(parts[:1] * 2, "powers") is parts[0]["powers"]
    with pytest.raises(ValueError, match="not at the same iteration"):
        common(parts, "powers")
