"""The cost of one call: of the right function, the fastest call, without effects on training."""

import random

import pytest
import torch
from shaping_fakes import Groups

from envcoder_bench.env import cost
from envcoder_bench.env.cost import measure_cost, ways

PLAIN = """
def compute_reward(dof_pos):
    return dof_pos[:, 0]
"""
# draws from all generators and changes what it is given
ROUGH = """
import random

def compute_reward(dof_pos, progress_buf):
    noise = torch.rand(dof_pos.shape[0]) + random.random()
    if LATE:
        dof_pos.zero_()
    return noise, {"noise": noise}

def compute_goal(commands):
    return {"commands": torch.randn_like(commands)}
"""


def measure(groups, g, limit=0.0):
    state = {**groups.task.state, "progress_buf": groups.progress_buf}
    view = groups.layout.views(state)[g]
    view["actions"] = groups.actions[groups.layout.slice(g), : groups.shapings[g].action_dim]
    return measure_cost(groups.shapings[g], view, groups.task.constants, seed=0, step=3, limit=limit)


def test_cost_of_a_function_is_its_fastest_call(monkeypatch):
    code = """
    clock = [0.0]
    takes = iter(range(99))

    def compute_reward(state_dict):
        clock[0] += next(takes)
        return state_dict["dof_pos"][:, 0]

    def compute_torque(action):
        clock[0] += 7.0
        return action
    """
    groups = Groups([code])
    own = groups.shapings[0].functions["reward"].call.__globals__
    monkeypatch.setattr(cost, "_now", lambda device: own["clock"][0])
    own["takes"] = iter([9, 8, 9, 3, *range(4, 99)])
    costs = measure(groups, 0, limit=float("inf"))
    assert set(costs) == {"command", "reward", "terminal", "observation"}
    assert costs["command"] == 7.0
    assert costs["reward"] == 3.0
    assert costs["terminal"] == costs["observation"] == 0.0


def test_slow_function_is_measured_once_after_the_warm_up():
    groups = Groups(["calls = []\ndef compute_reward(dof_pos):\n    calls.append(1)\n    return dof_pos[:, 0]\n"])
    calls = groups.shapings[0].functions["reward"].call.__globals__["calls"]
    before = len(calls)
    measure(groups, 0, limit=0.0)
    assert len(calls) - before == cost.WARM_UPS + 1


@pytest.mark.slow
def test_measuring_costs_does_not_change_training():
    def run(measured):
        torch.manual_seed(0)
        random.seed(0)
        groups = Groups([f"LATE = False\n{ROUGH}", PLAIN])
        made = groups.run(3)
        for own in groups.shapings:
            own.functions["reward"].call.__globals__["LATE"] = measured  # it changes its input only when it is measured
        if measured:
            assert all(measure(groups, g) for g in range(2))
        for own in groups.shapings:
            own.functions["reward"].call.__globals__["LATE"] = False
        made += groups.run(3, first=3)
        assert groups.dispatch.alive == [True, True]
        return made, groups.dispatch.components.means(), torch.rand(3).tolist(), random.random()

    (plain, *rest), (profiled, *others) = run(False), run(True)
    for a, b in zip(plain, profiled):
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert rest == others


def test_measuring_a_function_that_raises_returns_none():
    groups = Groups(["LATE = False\ndef compute_reward(dof_pos):\n    assert not LATE\n    return dof_pos[:, 0]\n"])
    groups.shapings[0].functions["reward"].call.__globals__["LATE"] = True
    assert measure(groups, 0) is None
    assert groups.dispatch.alive == [True]


def test_measuring_restores_the_default_dtype():
    code = """
    LATE = False

    def compute_reward(dof_pos):
        if LATE:
            getattr(torch, "set_default_" + "dtype")(torch.float64)
        return dof_pos[:, 0]
    """
    groups = Groups([code])
    groups.shapings[0].functions["reward"].call.__globals__["LATE"] = True
    before = torch.get_default_dtype()
    try:
        assert measure(groups, 0) is None
        assert torch.get_default_dtype() == before
    finally:
        torch.set_default_dtype(before)


def test_ways_lists_every_function_of_the_candidate():
    groups = Groups(["def compute_goal(commands):\n    return {'commands': commands}\n", PLAIN])
    groups.run(1)
    common = {"reward": "Python", "terminal": "Python", "observation": "Python"}
    assert ways(groups.dispatch, 0) == {**common, "goal": "Python"}
    assert ways(groups.dispatch, 1) == common  # the task's own drives are nobody's function


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:.*cannot be captured:RuntimeWarning")
def test_ways_distinguishes_cuda_graphs_from_functions_that_synchronize():
    groups = Groups(["def compute_reward(dof_pos):\n    return dof_pos[:, 0] * dof_pos.sum().item()\n"], device="cuda")
    groups.run(1)
    assert ways(groups.dispatch, 0)["reward"] == "Python"
    assert ways(groups.dispatch, 0)["observation"] == "CUDA graph"
    assert all(seconds > 0 for seconds in measure(groups, 0).values())
