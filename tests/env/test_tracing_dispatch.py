"""Groups with compiled functions give the same results as groups with called functions."""

import warnings
from dataclasses import replace

import pytest
import torch
from shaping_fakes import NARROW, OTHER, PLAIN, WIDE, Groups, close, same

from envcoder_bench.compile.values import RULES
from envcoder_bench.env import compiled
from envcoder_bench.env.compiled import SAMPLE
from envcoder_bench.env.stages import Call
from envcoder_bench.shaping.contract import Fault

FINAL = """
def compute_goal(commands):
    return {"commands": commands.double() * 0.5}
def compute_terminal(dof_pos):
    return (dof_pos[:, 0] > 0.2).int() * 2
"""
CODES = [NARROW, WIDE, OTHER, PLAIN, FINAL]
STAGES = ("command", "reward", "terminal", "initial_state", "goal", "observation")


def is_compiled(groups, group, name):
    stage = groups.dispatch.stages[name]
    return any(call.group == group for call, _ in stage.traced)


@pytest.mark.parametrize("n, deferred", [(1, True), (33, False)])
def test_compiled_results_match_eager(n, deferred):
    seeds = [0, 1, 2, 3, 1]
    compiled = Groups(CODES, n=n, seeds=seeds, compiled=True, deferred_faults=deferred)
    eager = Groups(CODES, n=n, seeds=seeds, deferred_faults=deferred)
    assert compiled.refused == [] and not any(stage.calls for stage in compiled.dispatch.stages.values())
    assert not any(stage.traced for stage in eager.dispatch.stages.values())
    for t in range(8):
        close(compiled.step(t), eager.step(t))
    assert all(compiled.dispatch.stages[name].traced for name in STAGES)  # none was taken back
    for one, two in zip(compiled.dispatch.components.means(), eager.dispatch.components.means()):
        assert one.keys() == two.keys() and one == pytest.approx(two, rel=1e-5, abs=1e-6)
    compiled.step(8), eager.step(8)  # the sums began anew
    for one, two in zip(compiled.dispatch.components.means(), eager.dispatch.components.means()):
        assert one == pytest.approx(two, rel=1e-5, abs=1e-6)
    compiled.dispatch.poll()
    assert compiled.dispatch.failures == {} and compiled.dispatch.alive == [True] * 5


@pytest.mark.slow
def test_compiled_group_is_bitwise_independent_of_other_groups():
    n = 33
    alone = Groups([NARROW], n=n, seeds=[3], compiled=True)
    expected, sums = alone.run(6), alone.dispatch.components.means()[0]
    crowds = [
        ([WIDE, NARROW, PLAIN], 1), ([NARROW.replace("0.1", "0.2"), OTHER, FINAL, NARROW], 3), ([NARROW, NARROW], 0),
        ([PLAIN.replace("exp", name) for name in ("sin", "cos", "tanh", "sigmoid", "abs")] * 4 + [WIDE, NARROW], 21),
    ]  # fmt: skip
    for codes, place in crowds:
        crowd = Groups(codes, n=n, seeds=[5] * place + [3] + [6] * (len(codes) - place - 1), compiled=True)
        for made, own in zip(crowd.run(6), expected):
            assert same(crowd.of(made, place), alone.of(own, 0))
        assert crowd.dispatch.components.means()[place] == sums


def test_compiled_group_is_bitwise_independent_of_eager_groups():
    expected = Groups([NARROW], n=6, compiled=True).run(4)
    crowd = Groups([WIDE, NARROW, OTHER], n=6, compiled=[False, True, False])
    alone = Groups([WIDE], n=6)
    for made, own, neighbour in zip(crowd.run(4), expected, alone.run(4)):
        mine = crowd.of(made, 1)
        assert same(mine, {key: x[:, : mine[key].shape[1]] if key == "observation" else x for key, x in own.items()})
        assert same(crowd.of(made, 0), alone.of(neighbour, 0))


# which groups run


def test_groups_outside_the_mask_keep_their_rows():
    groups = Groups([NARROW, WIDE, PLAIN], n=4, compiled=True)
    dispatch, state = groups.dispatch, groups.task.state
    groups.step(0)
    before = {"command": dispatch.command(groups.actions, 1).clone(), "observation": dispatch.observation(1).clone()}
    mask = torch.zeros(12, dtype=torch.bool)
    mask[5] = True
    state["dof_pos"] += 0.25
    state["dof_vel"] += 0.25
    own = slice(4, 8)
    for name, now in (
        ("command", dispatch.command(groups.actions, 2, mask)),
        ("observation", dispatch.observation(2, mask)),
    ):
        assert torch.equal(now[:4], before[name][:4]) and torch.equal(now[8:], before[name][8:])
        assert not torch.equal(now[own], before[name][own])
    initial = dispatch.initial_state(mask, 2)["dof_pos"]
    assert torch.equal(initial[:4], state["dof_pos"][:4]) and not torch.equal(initial[own], state["dof_pos"][own])
    goal = dispatch.goal(mask, 2)["commands"]
    assert torch.equal(goal[:4], state["commands"][:4]) and not torch.equal(goal[own], state["commands"][own])


def test_failed_compiled_group_returns_zeros_without_affecting_others():
    groups = Groups([NARROW, WIDE, PLAIN], n=4, compiled=True)
    groups.step(0)
    groups.dispatch.fail(1, Fault("on purpose"))
    expected = Groups([NARROW, WIDE, PLAIN], n=4, compiled=True)
    expected.step(0)
    for t in range(1, 4):
        made, other = groups.step(t), expected.step(t)
        assert same(groups.of(made, 0), expected.of(other, 0)) and same(groups.of(made, 2), expected.of(other, 2))
        assert not made["command"][4:8].any() and not made["observation"][4:8].any()
        assert not made["reward"][4:8].any() and not made["terminal"][4:8].any()
    assert groups.dispatch.components.means()[1] == {}


def test_failed_groups_are_skipped_when_the_mask_includes_them():
    groups = Groups([NARROW, WIDE], n=4, compiled=True)
    groups.step(0)
    groups.dispatch.fail(1, Fault("on purpose"))
    everyone, state = torch.ones(8, dtype=torch.bool), groups.task.state
    assert not groups.dispatch.command(groups.actions, 1, everyone)[4:].any()
    assert not groups.dispatch.observation(1, everyone)[4:].any()
    assert torch.equal(groups.dispatch.initial_state(everyone, 1)["dof_pos"][4:], state["dof_pos"][4:])
    assert torch.equal(groups.dispatch.goal(everyone, 1)["commands"][4:], state["commands"][4:])


# faults


NAN_LATER = """
def compute_reward(dof_pos, progress_buf):
    return torch.where(progress_buf > 3, math.nan, dof_pos[:, 0])
"""


@pytest.mark.parametrize("deferred", (False, True))
def test_non_finite_rewards_are_reported_with_candidate_line_and_function(deferred):
    groups = Groups([PLAIN, NAN_LATER, WIDE], n=4, compiled=True, deferred_faults=deferred)
    clean = Groups([PLAIN, PLAIN, WIDE], n=4, compiled=True, deferred_faults=deferred)
    for t in range(6):
        made, expected = groups.step(t), clean.step(t)
        assert same(groups.of(made, 0), clean.of(expected, 0)) and same(groups.of(made, 2), clean.of(expected, 2))
        assert bool(made["reward"].isfinite().all())
        assert bool(made["observation"][4:8].any()) == (t < 3)
    groups.dispatch.poll()
    assert groups.dispatch.alive == [True, False, True]
    assert str(groups.dispatch.failures[1]) == (
        "c1.py:3: in compute_reward: returned NaN or infinity in 4 of 4 values (environment step 3)"
    )


def test_non_finite_observations_are_counted_in_their_own_columns():
    code = NARROW.replace('torch.tanh(state_dict["dof_pos"])', '1.0 / (state_dict["progress_buf"] - 2).unsqueeze(-1)')
    groups = Groups([WIDE, code], n=4, compiled=True)
    groups.run(3)
    assert groups.dispatch.alive == [True, False]
    assert "returned NaN or infinity in 4 of 20 values (environment step 1)" in str(groups.dispatch.failures[1])


# kernels that disagree

# the number of environments is Python's alone: what a function does with few of them, no recording shows
UNSEEN = {
    "reward": "def compute_reward(dof_pos):\n    return dof_pos[:, 0] + (1.0 if len(dof_pos) < 99 else 2.0)\n",
    "observation": "def compute_observation(dof_pos):\n    return dof_pos / min(dof_pos.shape[0], 99) + 1.0\n",
    "terminal": "def compute_terminal(dof_pos):\n    return dof_pos[:, 0] * 0 > 20 - min(99, len(dof_pos))\n",
    "command": "ACTION_DIM = 3\ndef compute_torque(action):\n    return action + 0.1 * min(99, action.shape[0])\n",
    "initial_state": "def compute_initial_state(dof_pos):\n    return {'dof_pos': dof_pos * 0 + (len(dof_pos) > 99)}\n",
    "goal": "def compute_goal(commands):\n    return {'commands': commands * 0 + 0.1 * min(99, len(commands))}\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("stage, deferred", [(stage, k % 2 == 0) for k, stage in enumerate(UNSEEN)])
def test_disagreeing_kernel_is_replaced_by_its_function(stage, deferred):
    code = UNSEEN[stage]
    line = 2 if "ACTION_DIM" in code else 1
    groups = Groups([NARROW, code, PLAIN], n=6, compiled=True, deferred_faults=deferred)
    eager = Groups([NARROW, code, PLAIN], n=6, compiled=[True, False, True], deferred_faults=deferred)
    with pytest.warns(RuntimeWarning, match=rf"c1\.py:{line}: in compute_\w+: its compiled form gives other numbers"):
        first = groups.step(0)
    close(first, eager.step(0))
    for t in range(1, 5):
        close(groups.step(t), eager.step(t))
    assert not is_compiled(groups, 1, stage) and all(is_compiled(groups, 0, name) for name in STAGES)
    for one, two in zip(groups.dispatch.components.means(), eager.dispatch.components.means()):
        assert one == pytest.approx(two, rel=1e-5)
    assert groups.dispatch.alive == [True] * 3


def test_another_dispatcher_verifies_kernels_again():
    groups = Groups([UNSEEN["observation"]], n=6, compiled=True)
    with pytest.warns(RuntimeWarning, match="other numbers"):
        expected = groups.step(0)
    again = Groups([UNSEEN["observation"]], n=6)
    again.shapings = groups.shapings  # the programs of the first, as evaluations have those of training
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again.renew()
        second = again.step(0)
    assert torch.equal(second["observation"], expected["observation"])


ONE_WRONG = """
def compute_observation(dof_pos):
    x = torch.cat([dof_pos] * {repeats}, dim=-1)
    return torch.cat((x, dof_pos[:, :1] + min(99, dof_pos.shape[0])), dim=-1)
"""
WIDE_OBSERVATION = "def compute_observation(dof_pos):\n    return torch.cat([dof_pos] * 200, dim=-1)\n"


@pytest.mark.parametrize("codes", ([ONE_WRONG.format(repeats=2), WIDE_OBSERVATION], [ONE_WRONG.format(repeats=50)]))
def test_single_wrong_value_is_detected(codes):
    groups, eager = Groups(codes, n=6, compiled=True), Groups(codes, n=6)
    with pytest.warns(RuntimeWarning, match="other numbers"):
        made = groups.step(0)
    assert torch.equal(made["observation"], eager.step(0)["observation"])


# a rule that is wrong where positions are large, which they are not at first

RARE = """
def compute_reward(dof_pos):
    return torch.where(dof_pos[:, 0] > 3.0, torch.abs(dof_pos[:, 0]), dof_pos[:, 1])
def compute_observation(dof_pos):
    return torch.abs(dof_pos)
"""


@pytest.fixture
def wrong_abs(monkeypatch):
    def wrong(rec, a, result):
        kind, p = "f32", rec.program
        large = p.const(3.0, kind)

        def make(x):
            size = p.add("abs", kind, x)
            return p.add("select", kind, p.add("gt", "b", size, large), p.add("mul", kind, size, large), size)

        return rec.elementwise([rec.nodes(a["self"], kind)], kind, make, result)

    monkeypatch.setitem(RULES, "abs", wrong)


@pytest.mark.parametrize("deferred", (False, True))
def test_recheck_replaces_disagreeing_kernels(wrong_abs, deferred):
    codes = [NARROW, RARE, PLAIN]
    groups = Groups(codes, n=6, compiled=True, deferred_faults=deferred)
    eager = Groups(codes, n=6, compiled=[True, False, True], deferred_faults=deferred)
    for t in range(2):
        close(groups.step(t), eager.step(t))
    for own in (groups, eager):
        own.task.state["dof_pos"][8:10] += 5.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not torch.equal(groups.step(2)["observation"], eager.step(2)["observation"])  # nobody asked
    groups.dispatch.recheck()
    with pytest.warns(RuntimeWarning, match="its compiled form gives other numbers") as told:
        close(groups.step(3), eager.step(3))
    assert sorted(str(one.message).split(":")[1] for one in told) == ["2", "4"]  # both functions, by their lines
    for t in range(4, 7):
        close(groups.step(t), eager.step(t))
    assert not is_compiled(groups, 1, "reward") and not is_compiled(groups, 1, "observation")
    assert all(is_compiled(groups, 0, name) for name in STAGES)


def observed(monkeypatch) -> list[int]:
    """A list to which every call of an observation function adds its group."""
    called: list[int] = []
    call = Call.__call__

    def counting(own, step):
        if own.function is not None and own.function.type == "compute_observation":
            called.append(own.group)
        call(own, step)

    monkeypatch.setattr(Call, "__call__", counting)
    return called


@pytest.mark.parametrize("deferred", (False, True))
def test_groups_of_a_shared_program_are_compared_in_turn_on_cuda_and_all_at_once_elsewhere(
    wrong_abs, deferred, monkeypatch
):
    count, n, late = 20, 6, 17
    groups = Groups([RARE] * count, n=n, compiled=True)
    programs = groups.shapings[0].programs
    groups.shapings = [replace(own, programs=programs) for own in groups.shapings]
    groups.renew(deferred_faults=deferred)
    called = observed(monkeypatch)

    def compared(t: int) -> list[int]:
        called.clear()
        groups.dispatch.recheck()
        groups.step(t)
        return called[:count] if not deferred else called[:SAMPLE]  # replaced functions run once more

    everyone = list(range(count))
    groups.step(0)
    groups.task.state["dof_pos"][late * n : (late + 1) * n] += 5.0
    if deferred:  # the first step compared groups 0 to 7
        assert compared(1) == list(range(8, 16))
        assert all(is_compiled(groups, g, "observation") for g in everyone)
        with pytest.warns(RuntimeWarning, match="its compiled form gives other numbers"):
            assert compared(2) == [16, 17, 18, 19, 0, 1, 2, 3]
        assert not any(is_compiled(groups, g, "observation") for g in everyone)
    else:  # what happens to a group must not depend on the others
        with pytest.warns(RuntimeWarning, match="its compiled form gives other numbers"):
            assert compared(1) == everyone
        assert [g for g in everyone if not is_compiled(groups, g, "observation")] == [late]


def test_programs_are_compared_in_turn_on_cuda(wrong_abs, monkeypatch):
    monkeypatch.setattr(compiled, "PROGRAMS", 2)
    codes = [PLAIN, RARE, PLAIN, RARE, PLAIN]
    groups = Groups(codes, n=6, compiled=True, deferred_faults=True)
    called = observed(monkeypatch)

    def compared(t: int) -> list[int]:
        called.clear()
        groups.dispatch.recheck()
        groups.step(t)
        return called[:2]

    groups.step(0)
    assert called[:5] == [0, 1, 2, 3, 4]  # the first check is of all
    assert [compared(1), compared(2)] == [[2, 3], [4, 0]]
    saved = groups.dispatch.get_state()
    groups.renew(deferred_faults=True)
    groups.dispatch.set_state(saved)
    called.clear()
    groups.dispatch.recheck()
    groups.step(2)
    assert called[:5] == [0, 1, 2, 3, 4]  # after a resume these are other kernels
    groups.task.state["dof_pos"][3 * 6 : 4 * 6] += 5.0
    with pytest.warns(RuntimeWarning, match="its compiled form gives other numbers"):
        assert compared(3) == [3, 4]
    assert [g for g in range(5) if not is_compiled(groups, g, "observation")] == [3]


def test_recheck_does_not_change_results():
    groups, asked = Groups(CODES, n=6, compiled=True), Groups(CODES, n=6, compiled=True)
    for t in range(6):
        if t % 2:
            asked.dispatch.recheck()
        assert same(asked.step(t), groups.step(t))
    assert asked.dispatch.components.means() == groups.dispatch.components.means()
    mask = torch.zeros(30, dtype=torch.bool)
    before = asked.dispatch.observation(7).clone()
    asked.dispatch.recheck()
    assert torch.equal(asked.dispatch.observation(7, mask), before)  # nobody is called: rows are kept


@pytest.mark.parametrize("in_parts", [False, True])
def test_replaced_kernels_stay_replaced_after_resume(wrong_abs, in_parts):
    groups = Groups([NARROW, RARE], n=6, compiled=True)
    groups.step(0)
    groups.task.state["dof_pos"][8:10] += 5.0
    groups.dispatch.recheck()
    with pytest.warns(RuntimeWarning):
        groups.step(1)
    groups.task.state["dof_pos"][8:10] -= 5.0
    later = Groups([NARROW, RARE], n=6, compiled=True)
    later.task.set_state(groups.task.get_state())
    later.progress_buf.copy_(groups.progress_buf)
    state = groups.dispatch.get_state()
    later.dispatch.set_state(later.dispatch.join_states(groups.dispatch.split_state(state)) if in_parts else state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for t in range(2, 5):
            assert same(later.step(t), groups.step(t))
    assert not is_compiled(later, 1, "reward") and is_compiled(later, 0, "reward")


# compiled and eager functions side by side

MIXED = """
def compute_reward(dof_pos):
    return dof_pos[:, 0] * (1.0 if dof_pos[:, 0].sum() > 0 else -1.0), {"part": dof_pos[:, 1]}
def compute_observation(state_dict):
    return torch.tanh(torch.cat((state_dict["dof_pos"], state_dict["dof_vel"]), dim=-1))
def compute_initial_state(dof_pos):
    return {"dof_pos": torch.randn(dof_pos.shape, device=dof_pos.device)}
def compute_done(dof_pos):
    return dof_pos[:, 0] > 0.4
"""


def test_stages_mix_compiled_and_eager_functions():
    codes = [WIDE, MIXED, PLAIN, MIXED, NARROW]
    groups, eager = Groups(codes, n=7, compiled=True), Groups(codes, n=7)
    refused = [(x.function.file, x.line, x.function.type) for x in groups.refused]
    assert refused == [(f"c{i}.py", 3, "compute_reward") for i in (1, 3)]
    for t in range(6):
        close(groups.step(t), eager.step(t))
    assert [is_compiled(groups, 1, name) for name in ("reward", "observation", "initial_state", "terminal")] == [
        False, True, True, True,
    ]  # fmt: skip
    for one, two in zip(groups.dispatch.components.means(), eager.dispatch.components.means()):
        assert one == pytest.approx(two, rel=1e-5, abs=1e-6)


def test_in_place_state_change_by_an_eager_function_is_detected():
    bad = (
        "def compute_reward(dof_pos, progress_buf):\n    if progress_buf.sum() > 12:\n        dof_pos += 1\n"
        "    return dof_pos[:, 0]\n"
    )
    groups = Groups([WIDE, bad, NARROW], n=4, compiled=True)
    groups.run(5)
    assert groups.dispatch.alive == [True, False, True]
    assert "changed 'dof_pos' in place" in str(groups.dispatch.failures[1])


def test_functions_run_eagerly_without_a_working_compiler(monkeypatch):
    def broken(*_):
        raise RuntimeError("no compiler\nin this place")

    monkeypatch.setattr("envcoder_bench.compile.native.load", broken)
    codes = [WIDE, PLAIN, NARROW]
    with pytest.warns(RuntimeWarning, match="cannot be compiled here.*RuntimeError: no compiler$"):
        groups = Groups(codes, n=5, compiled=True)
    eager = Groups(codes, n=5)
    for t in range(4):
        one, two = groups.step(t), eager.step(t)
        assert all(torch.equal(one[key], two[key]) for key in one)
    assert not any(stage.traced or stage.launches for stage in groups.dispatch.stages.values())


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_compiled_results_in_cuda_graphs_match_eager():
    codes, seeds = [*CODES, MIXED] * 5, [i % 3 for i in range(30)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = Groups(codes, n=33, seeds=seeds, device="cuda:0", compiled=True)
        eager = Groups(codes, n=33, seeds=seeds, device="cuda:0", deferred_faults=False)
        for t in range(8):
            one, two = compiled.step(t), eager.step(t)
            for key in one:
                torch.testing.assert_close(one[key], two[key], rtol=1e-4, atol=1e-5)
    for one, two in zip(compiled.dispatch.components.means(), eager.dispatch.components.means()):
        assert one == pytest.approx(two, rel=1e-4, abs=1e-5)
    compiled.dispatch.poll()
    assert compiled.dispatch.failures == {}
    assert all(compiled.dispatch.stages[name].traced for name in STAGES)
    assert compiled.dispatch.stages["reward"].replay is not None


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("stage", list(UNSEEN))
def test_disagreeing_kernel_is_replaced_by_its_function_on_cuda(stage):
    codes = [NARROW, UNSEEN[stage], PLAIN]
    groups = Groups(codes, n=6, device="cuda:0", compiled=True)
    eager = Groups(codes, n=6, device="cuda:0", deferred_faults=False)
    with pytest.warns(RuntimeWarning, match="its compiled form gives other numbers"):
        groups.step(0)
    eager.step(0)
    for t in range(1, 5):
        one, two = groups.step(t), eager.step(t)
        for key in one:
            torch.testing.assert_close(one[key], two[key], rtol=1e-4, atol=1e-5)
