"""Means, minima and maxima of rewards and their components, compared with lists of all values."""

import itertools
import math

import numpy as np
import pytest
import torch
from shaping_fakes import Groups

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.components import Components
from envcoder_bench.shaping.outputs import TOTAL

WAVES = """
def compute_reward(dof_pos, progress_buf):
    wave = torch.sin(progress_buf + 3.0 * dof_pos[:, 0])
    return wave - 7.0, {"wave": wave, "late": progress_buf > 3, "steps": progress_buf}
"""
ALONE = "def compute_reward(dof_pos, progress_buf):\n    return dof_pos[:, 0] * progress_buf\n"
N = 5


def expected(groups, t):
    """What both functions give at step t: for each, the reward and its components, ``(N,)`` each."""
    x = groups.task.state["dof_pos"][:N, 0].double().numpy()
    wave = np.sin(t + 3.0 * x)
    return [
        {TOTAL: wave - 7.0, "wave": wave, "late": np.full(N, t > 3), "steps": np.full(N, t)},
        {TOTAL: x * t},
    ]


def spread(values):
    joined = np.stack(values).astype(float)
    return pytest.approx((joined.mean(), joined.min(), joined.max()), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("deferred", [False, True])
def test_component_spreads_cover_all_values_since_the_last_call(compiled, deferred):
    groups = Groups([WAVES, ALONE], n=N, compiled=compiled, deferred_faults=deferred)
    assert all(bool(stage.traced) == compiled for name, stage in groups.dispatch.stages.items() if name == "reward")
    assert groups.dispatch.components.spreads() == [{}, {}]
    step = itertools.count(1)
    for length in (1, 4, 3):
        seen = []
        for t in itertools.islice(step, length):
            groups.progress_buf.fill_(t)
            groups.dispatch.reward(t)
            seen.append(expected(groups, t))
            if t % 2:  # curves are logged more often than points: that changes nothing
                means = groups.dispatch.components.means()
                assert list(means[0]) == ["wave", "late", "steps"]
                assert not means[1]
        found = groups.dispatch.components.spreads()
        for group in range(2):
            assert set(found[group]) == set(seen[0][group])
            for name in found[group]:
                assert found[group][name] == spread([values[group][name] for values in seen])
    assert bool(groups.dispatch.stages["reward"].traced) == compiled  # no kernel was taken back


def test_component_means_and_spreads_have_separate_windows():
    groups = Groups([WAVES], n=N)
    for t in (1, 2, 3, 4):
        groups.progress_buf.fill_(t)
        groups.dispatch.reward(t)
        if t == 2:
            assert groups.dispatch.components.spreads()[0]["steps"] == (1.5, 1.0, 2.0)
    assert groups.dispatch.components.means()[0]["steps"] == 2.5
    assert groups.dispatch.components.spreads()[0]["steps"] == (3.5, 3.0, 4.0)


def test_failed_group_has_no_component_spreads():
    breaks = "def compute_reward(dof_pos, progress_buf):\n    return dof_pos[:, 0] / (progress_buf < 3)\n"
    groups = Groups([breaks, WAVES], n=N)
    for t in (1, 2, 3, 4):
        groups.progress_buf.fill_(t)
        groups.dispatch.reward(t)
    dead, alive = groups.dispatch.components.spreads()
    assert dead == {}
    assert alive["steps"] == (2.5, 1.0, 4.0)


@pytest.mark.parametrize("compiled", [False, True])
def test_nan_in_a_component_affects_its_mean_but_not_min_and_max(compiled):
    code = """
    def compute_reward(dof_pos, progress_buf):
        some = torch.where(progress_buf == 2, torch.sqrt(-1.0 - dof_pos[:, 0] ** 2), progress_buf.float())
        return dof_pos[:, 0], {"some": some, "all": some * float("nan")}
    """
    groups = Groups([code], n=N, compiled=compiled)
    for t in (1, 2, 3):
        groups.progress_buf.fill_(t)
        groups.dispatch.reward(t)
    found = groups.dispatch.components.spreads()[0]
    assert math.isnan(found["some"][0])
    assert found["some"][1:] == (1.0, 3.0)
    assert all(math.isnan(x) for x in found["all"])
    assert groups.dispatch.alive == [True]


def test_components_resume_bitwise_from_their_state():
    rng = torch.Generator().manual_seed(0)
    values = torch.randn(9, 2, 3, N, generator=rng)

    def fresh():
        return Components(GroupLayout(2, N), [("a", "b"), ("a",)], [True, True], torch.device("cpu"))

    def count(components, step):
        counts, x = components.counts, values[step]
        counts[:, :, 0] += x
        counts[:, :, 1] = torch.minimum(counts[:, :, 1], x)
        counts[:, :, 2] = torch.maximum(counts[:, :, 2], x)
        components.count_step()

    def first(components):
        for step in range(5):
            count(components, step)
            if step == 2:
                components.means()
        return components

    def rest(components):
        for step in range(5, 9):
            count(components, step)
        return components.means(), components.spreads(), components.means()

    resumed = fresh()
    resumed.set_state(first(fresh()).get_state())
    through = rest(first(fresh()))
    assert rest(resumed) == through
    assert through[2] == [{}, {}]
    x = values[:, 0, 2].double()
    assert through[1][0]["b"] == (pytest.approx(x.mean().item(), abs=1e-5), x.min().item(), x.max().item())
    assert through[0][1]["a"] == pytest.approx(values[3:, 1, 1].mean().item(), abs=1e-5)
