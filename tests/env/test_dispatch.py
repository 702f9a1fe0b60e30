import math

import pytest
import torch
from shaping_fakes import NARROW, OTHER, PLAIN, WIDE, Groups, same

from envcoder_bench.env.dispatch import Dispatcher
from envcoder_bench.shaping.contract import Fault


def later(name, fault, step=3, width=3):
    """A candidate that is fine until its function has been called ``step`` times after the check's call."""
    signature = {"compute_torque": "action, state_dict", "compute_dof_target": "action, state_dict"}.get(
        name, "state_dict"
    )
    fine = {
        "compute_reward": "state_dict['dof_pos'].sum(dim=-1)",
        "compute_observation": "state_dict['dof_pos'] * 1.0",
        "compute_terminal": "state_dict['dof_pos'][:, 0] > 1e9",
        "compute_torque": "action[:, :3] * 1.0",
        "compute_dof_target": "action[:, :3] * 1.0",
        "compute_initial_state": "{'dof_pos': state_dict['dof_pos'] * 0.5}",
        "compute_goal": "{'commands': state_dict['commands'] * 0.5}",
    }[name]
    return (
        (f"ACTION_DIM = {width}\n" if "action" in signature else "")
        + f"calls = 0\ndef {name}({signature}):\n    global calls\n    calls += 1\n    result = {fine}\n"
        + (f"    if calls > {step} + 1:\n        {fault}\n    return result\n")
    )


# what comes out


def test_results_have_expected_shapes_padding_and_dtypes():
    groups = Groups([NARROW, WIDE, PLAIN], n=4)
    made = groups.run(3)[-1]
    assert groups.dispatch.failures == {} and groups.dispatch.alive == [True] * 3
    assert made["command"].shape == (12, 3) and made["command"].dtype is torch.float32
    assert made["reward"].shape == (12,) and made["terminal"].dtype is torch.bool
    assert made["observation"].shape == (12, 10)
    assert not made["observation"][:4, 7:].any() and not made["observation"][8:, 6:].any()
    dof_pos, actions = groups.task.state["dof_pos"][4:8], groups.actions[4:8]
    expected = torch.cat((torch.tanh(dof_pos), torch.atan2(actions, actions + 0.1)), dim=-1)
    assert torch.equal(made["observation"][4:8, :8], expected)


def test_commands_come_from_the_candidate_or_the_default_drives():
    torque = "ACTION_DIM = 3\ndef compute_torque(action, state_dict):\n    return 2.0 * action\n"
    groups = Groups([torque, PLAIN], n=4)
    actions = torch.arange(24.0).view(8, 3)
    command = groups.dispatch.command(actions, 0)
    assert torch.equal(command[:4], 2.0 * actions[:4])
    assert torch.equal(command[4:], 0.5 * actions[4:] + torch.tanh(groups.task.state["dof_pos"][4:]))
    assert [s.effort for s in groups.shapings] == [True, False]


def test_action_argument_is_the_current_action():
    groups = Groups(["ACTION_DIM = 3\ndef compute_dof_target(actions, action):\n    return actions + action\n"], n=2)
    groups.actions.fill_(9.0)
    assert torch.equal(groups.dispatch.command(torch.ones(2, 3), 0), torch.full((2, 3), 2.0))


def test_state_views_are_live_and_actions_are_cut_to_the_group_width():
    seen = "def compute_reward(actions, progress_buf):\n    return actions.sum(dim=-1) + progress_buf.float()\n"
    groups = Groups([seen, NARROW, WIDE], n=2)
    groups.actions.copy_(torch.arange(30.0).view(6, 5))
    groups.progress_buf += 10
    assert groups.dispatch.reward(0)[:2].tolist() == [0 + 1 + 2 + 10.0, 5 + 6 + 7 + 10.0]
    groups.actions.masked_fill_(torch.tensor([True, False] * 3).unsqueeze(1), 0.0)
    assert groups.dispatch.reward(1)[:2].tolist() == [10.0, 28.0]


@pytest.mark.parametrize("stored, expected", [("dof_pos", 0.0), ("dof_pos.clone()", 3.0)])
def test_stored_tensors_of_the_state_change_with_it(stored, expected):
    code = """
    LAST = []
    def compute_reward(dof_pos):
        LAST.append({})
        return (dof_pos - LAST[-2 if len(LAST) > 1 else -1]).sum(dim=1)
    """
    groups = Groups([code.format(stored)], n=2)
    groups.dispatch.reward(0)
    groups.task.state["dof_pos"] += 1.0
    torch.testing.assert_close(groups.dispatch.reward(1), torch.full((2,), expected))


def test_initial_state_and_goal_keep_unset_values():
    sets = "def compute_initial_state(dof_pos):\n    return {'dof_vel': dof_pos * 0 + 7.0}\n"
    goal = "def compute_goal(commands):\n    return {'commands': commands.double() * 0 + 3.0}\n"
    groups = Groups([sets, goal, PLAIN], n=2)
    state, mask = groups.task.state, torch.ones(6, dtype=torch.bool)
    initial = groups.dispatch.initial_state(mask, 0)
    assert set(initial) == {"root_states", "dof_pos", "dof_vel"}
    assert torch.equal(initial["root_states"], state["root_states"]) and torch.equal(
        initial["dof_pos"], state["dof_pos"]
    )
    assert torch.equal(initial["dof_vel"], torch.cat((torch.full((2, 3), 7.0), state["dof_vel"][2:])))
    commands = groups.dispatch.goal(mask, 0)["commands"]
    assert torch.equal(commands, torch.cat((state["commands"][:2], torch.full((2, 3), 3.0), state["commands"][4:])))


def test_initial_state_and_goal_run_only_for_groups_with_resets():
    code = """
    calls = 0
    def compute_goal(commands):
        global calls
        calls += 1
        return {"commands": commands * 0 + calls}
    """
    groups = Groups([code, code], n=2)
    first = groups.dispatch.goal(torch.tensor([False, True, False, False]), 0)["commands"][:2].clone()
    both = groups.dispatch.goal(torch.tensor([False, True, True, False]), 0)["commands"]
    assert first.unique().item() == 2.0  # the check's call was the first
    assert both[:2].unique().item() == 3.0 and both[2:].unique().item() == 2.0


def test_mismatched_dispatcher_arguments_raise():
    groups = Groups([PLAIN], n=2)
    with pytest.raises(ValueError, match="1 groups, but 2 shapings, 1 views, 1 seeds"):
        Dispatcher(groups.layout, groups.shapings * 2, [{}], {}, groups.task, [0], groups.task.device)


# isolation


@pytest.mark.parametrize("n", [1, 5, 33])
def test_group_results_are_bitwise_independent_of_other_groups(n):
    bad = later("compute_torque", "raise ValueError('boom')", step=2, width=7)
    alone = Groups([NARROW], n=n).run(8)
    for codes, at in (
        ([NARROW, WIDE, OTHER], 0),
        ([WIDE, PLAIN, NARROW, OTHER], 2),
        ([bad, OTHER, WIDE, NARROW, PLAIN], 3),
    ):
        among = Groups(codes, n=n)
        for one, made in zip(alone, among.run(8)):
            assert same(one, among.of(made, at))
        assert list(among.dispatch.failures) == ([0] if codes[0] is bad else [])


# faults, each found at the step where it happens

FUNCTIONS = [
    "compute_reward",
    "compute_observation",
    "compute_terminal",
    "compute_torque",
    "compute_dof_target",
    "compute_initial_state",
    "compute_goal",
]
CHANGED = "changed 'dof_vel' in place (x += 1, x[...] = 1 and x.add_(1) do)"


FAULTS = [
    ("raise ValueError('boom')", 7, "raised ValueError: boom (environment step 3)"),
    ("exit(2)", 7, "raised SystemExit: 2 (environment step 3)"),
    ("raise KeyboardInterrupt('mine')", 7, "raised KeyboardInterrupt: mine (environment step 3)"),
    ("result = None", 8, None),
    ("state_dict['dof_vel'][0, 0] = 1.0", 2, f"{CHANGED} (environment step 3)"),
    ("state_dict['mine'] = 1", 7, None),
]
# every fault of a reward, and in each other function another one
EACH_FAULT = [("compute_reward", *fault) for fault in FAULTS]
EACH_FAULT += [(name, *FAULTS[k % len(FAULTS)]) for k, name in enumerate(FUNCTIONS[1:])]


@pytest.mark.parametrize("name, fault, line, message", EACH_FAULT)
def test_fault_fails_only_its_own_group(name, fault, line, message):
    codes = [NARROW, later(name, fault), PLAIN]
    line += "ACTION_DIM" in codes[1]
    groups = Groups(codes, n=4)
    clean = Groups([NARROW, PLAIN], n=4)
    for t in range(6):
        made, expected = groups.step(t), clean.step(t)
        assert same(groups.of(made, 0), clean.of(expected, 0)) and same(groups.of(made, 2), clean.of(expected, 1))
        assert groups.dispatch.alive == [True, t < 3, True]
    error = groups.dispatch.failures[1]
    assert (error.file, error.line, error.function) == ("c1.py", line, name)
    assert error.message.endswith("(environment step 3)")
    if message:
        assert error.message == message
    dead = groups.of(made, 1)
    assert not dead["reward"].any() and not dead["observation"].any() and not dead["command"].any()
    assert not dead["terminal"].any()


def test_failed_group_is_no_longer_called_and_keeps_its_first_fault():
    code = later("compute_reward", "raise ValueError(f'call {calls}')", step=0)
    groups = Groups([code, PLAIN], n=2)
    groups.run(5)
    assert groups.dispatch.failures[0].message == "raised ValueError: call 2 (environment step 0)"
    assert groups.task.state["dof_pos"].isfinite().all()


NON_FINITE = [("nan", False), ("inf", True), ("-inf", True), ("nan", True)]


@pytest.mark.parametrize(
    "name, value, deferred",
    [(name, *NON_FINITE[k % 4]) for k, name in enumerate(FUNCTIONS)] + [("compute_reward", *x) for x in NON_FINITE[1:]],
)
def test_non_finite_results_fail_the_group_and_are_masked(name, value, deferred):
    spoil = "result = (result if not isinstance(result, dict) else next(iter(result.values()))) * 1.0; "
    spoil += f"result.view(-1)[1] = float('{value}'); "
    spoil += {
        "compute_initial_state": "result = {'dof_pos': result}",
        "compute_goal": "result = {'commands': result}",
    }.get(name, "")
    groups = Groups([PLAIN, later(name, spoil), NARROW], n=4, deferred_faults=deferred)
    clean = Groups([PLAIN, NARROW], n=4, deferred_faults=deferred)
    for t in range(6):
        made, expected = groups.step(t), clean.step(t)
        assert same(groups.of(made, 0), clean.of(expected, 0)) and same(groups.of(made, 2), clean.of(expected, 1))
        assert all(bool(x.isfinite().all()) for x in made.values())
        groups.dispatch.poll()
        assert groups.dispatch.alive == [True, t < 3, True]
    total = 4 if name in ("compute_reward", "compute_terminal") else 12
    of_state = {"compute_initial_state": 4 * (13 + 3 + 3)}.get(name, total)
    error = groups.dispatch.failures[1]
    assert error.message == f"returned NaN or infinity in 1 of {of_state} values (environment step 3)"
    assert (error.file, error.function) == ("c1.py", name)


@pytest.mark.parametrize(("early", "late", "line"), [("* 1.0", "* math.nan", 6), ("* math.nan", "* 1.0", 5)])
def test_non_finite_result_names_the_return_that_ran(early, late, line):
    code = "calls = 0\ndef compute_reward(dof_pos):\n    global calls\n    calls += 1\n    if calls OP 4: "
    code = (
        code.replace("OP", "<" if line == 6 else ">=")
        + f"return dof_pos[:, 0] {early}\n    return dof_pos[:, 0] {late}\n"
    )
    groups = Groups([PLAIN, code], n=4)
    groups.run(6)
    assert groups.dispatch.alive == [True, False] and groups.dispatch.failures[1].line == line


def test_poll_reports_the_first_of_many_faulty_steps():
    groups = Groups([later("compute_reward", "result = result * math.nan"), PLAIN], n=4, deferred_faults=True)
    groups.run(8)
    assert groups.dispatch.alive == [True, True]
    groups.dispatch.poll()
    groups.dispatch.poll()
    assert groups.dispatch.failures[0].message == "returned NaN or infinity in 4 of 4 values (environment step 3)"
    assert groups.dispatch.alive == [False, True]


@pytest.mark.parametrize("deferred", [False, True])
def test_non_finite_actions_are_reported_as_diverged_policy(deferred):
    groups = Groups([NARROW, WIDE], n=4, deferred_faults=deferred)
    actions = torch.zeros(8, 5)
    actions[1, 1] = math.nan
    actions[2, 4] = math.nan  # padding of the narrow group
    command = groups.dispatch.command(actions, 7)
    groups.dispatch.poll()
    assert bool(command.isfinite().all()) and not command[:4].any() and bool(command[4:].any())
    assert groups.dispatch.alive == [False, True]
    assert str(groups.dispatch.failures[0]) == (
        "c0.py: the policy's action held NaN or infinity in 1 of 8 values (environment step 7); its training diverged, "
        "are rewards or observations too large?"
    )
    assert bool(groups.dispatch.command(actions, 8).isfinite().all())


def test_huge_finite_rewards_are_accepted():
    groups = Groups(["def compute_reward(dof_pos):\n    return dof_pos[:, 0] * 0 + 3e38\n"] * 2, n=8)
    assert bool((groups.dispatch.reward(0) > 1e38).all()) and groups.dispatch.alive == [True, True]


def test_exceptions_of_default_drives_are_not_attributed_to_candidates(monkeypatch):
    groups = Groups([PLAIN], n=2)
    monkeypatch.setattr(type(groups.task), "default_dof_target", lambda *_: 1 / 0)
    groups = Groups([PLAIN], n=2)
    with pytest.raises(ZeroDivisionError):
        groups.dispatch.command(groups.actions, 0)


def test_ctrl_c_of_the_user_inside_a_candidate_stops_the_run():
    signalled = "__import__('signal').raise_signal(2)"  # what the terminal sends
    groups = Groups([later("compute_reward", signalled, step=1), PLAIN], n=2)
    groups.step(0)
    with pytest.raises(KeyboardInterrupt):
        groups.step(1)
    assert groups.dispatch.failures == {}


def test_externally_failed_group_stays_failed_after_resume():
    groups = Groups([WIDE, NARROW, PLAIN], n=4)
    groups.run(2)
    groups.dispatch.fail(1, Fault("out of memory", "c1.py"))
    saved, task = groups.dispatch.get_state(), groups.task.get_state()
    buffers = groups.actions.clone(), groups.progress_buf.clone()
    expected = groups.run(3, first=2)
    components = groups.dispatch.components.means()

    resumed = Groups([WIDE, NARROW, PLAIN], n=4)
    resumed.task.set_state(task)
    resumed.actions.copy_(buffers[0])
    resumed.progress_buf.copy_(buffers[1])
    resumed.dispatch.set_state(saved)
    assert resumed.dispatch.alive == [True, False, True]
    assert resumed.dispatch.failures == {1: Fault("out of memory", "c1.py")}
    assert all(same(one, two) for one, two in zip(expected, resumed.run(3, first=2)))
    assert resumed.dispatch.components.means() == components and components[1] == {}


# random numbers

DRAWS = """
import random
from isaacgym.torch_utils import torch_rand_float
def compute_reward(dof_pos):
    return {}
"""
SOURCES = [
    "torch.rand(dof_pos.shape[0])",
    "torch_rand_float(0.0, 1.0, (dof_pos.shape[0], 1), 'cpu').squeeze(-1)",
    "torch.tensor([random.random() for _ in range(dof_pos.shape[0])])",
    "torch.from_numpy(np.random.rand(dof_pos.shape[0]))",
    "torch.empty_like(dof_pos).uniform_()[:, 0]",
]


@pytest.mark.parametrize("source", SOURCES)
def test_random_numbers_depend_only_on_the_group_seed(source):
    code = DRAWS.format(source)
    groups = Groups([code, code, code, PLAIN], n=4, seeds=[0, 0, 1, 0])
    torch.manual_seed(0)
    generator = torch.get_rng_state()
    rewards = [groups.layout.split(groups.dispatch.reward(t).clone()) for t in range(3)]
    assert torch.equal(torch.get_rng_state(), generator)
    for reward in rewards:
        assert torch.equal(reward[0], reward[1])  # paired
        assert not torch.equal(reward[0], reward[2])  # another seed, other numbers
        assert len(reward[0].unique()) == 4
    assert not torch.equal(rewards[0][0], rewards[1][0])
    alone = Groups([code], n=4)
    torch.rand(7)
    for t in range(3):  # the neighbours and the state of the generators make no difference
        assert torch.equal(alone.dispatch.reward(t), rewards[t][0])


def test_deferred_faults_do_not_change_results():
    now, later_on = Groups([NARROW, WIDE, PLAIN], n=5), Groups([NARROW, WIDE, PLAIN], n=5, deferred_faults=True)
    assert all(same(one, two) for one, two in zip(now.run(5), later_on.run(5)))
    assert now.dispatch.components.means() == later_on.dispatch.components.means()
