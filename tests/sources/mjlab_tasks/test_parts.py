"""Parts of a step that are captured, against the same parts as they are."""

import pytest

pytest.importorskip("mjlab")  # the parts import it

import torch
from driven import CARTPOLE, GO1, LIFT, Driven, actions
from recorded_ops import capture

from envcoder_bench.sources.term_tasks import task as task_module
from envcoder_bench.sources.term_tasks.graphs.env_ids import FixedShapes
from envcoder_bench.sources.term_tasks.graphs.parts import Parts

pytestmark = pytest.mark.slow


class Captured(Driven):
    """A task whose parts are captured as on a device, with the counters of steps in tensors."""

    def __init__(self, name, size, groups, monkeypatch, **options):
        monkeypatch.setattr(task_module, "capture_on", lambda device: capture)
        super().__init__(name, size, groups, "warp", begin=False, **options)
        task = self.task
        task._clock, task.world._clock = torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int32)
        everyone = torch.ones(size * groups, dtype=torch.bool)
        self._begin(everyone)
        task.world.episode_length_buf.zero_()

    def _begin(self, mask):
        task, FixedShapes.asks = self.task, False
        task.step_count = self.steps
        task.prepare_reset(mask)
        task.settle()
        FixedShapes.asks = True


def equal_steps(name, size, groups, steps, monkeypatch, **options):
    plain = Driven(name, size, groups, "warp", **options)
    captured = Captured(name, size, groups, monkeypatch, **options)
    ended = 0
    for k, action in enumerate(actions(size, plain.task.num_dofs, steps)):
        expected, results = plain.step(action), captured.step(action)
        ended += int(expected["ended"].sum())
        for key, x in expected.items():
            assert torch.equal(x, results[key]), (k, key)
    return captured.task.world.parts, ended


def waits(env):
    force = env.scene["feet_ground_contact"].data.force.sum(dim=(1, 2))
    return force if float(force[0]) > 0 else -force


WAITS = {"rewards": {"waits": waits}}
HISTORY = {"observations": {"actor": {"cart_vel": {"history_length": 3}, "pole_vel": {"delay_max_lag": 2}}}}


@pytest.mark.parametrize(
    "name, steps, eager, patches",
    [
        (CARTPOLE, 40, set(), [{}, HISTORY]),
        (GO1, 40, {"rewards/waits"}, [{}, WAITS]),
        (LIFT, 70, {"command"}, ()),
    ],
)
def test_captured_parts_have_the_bits_of_mjlabs_code(name, steps, eager, patches, monkeypatch, short_episodes):
    parts, ended = equal_steps(name, 4, 2, steps, monkeypatch, patches=patches)
    assert ended >= 4 and parts._reasons.keys() == eager  # the lifted cube is moved by a command, and simulated
    assert parts._graphs.keys() >= {"control 0", "control 1", "judge", "begin", "observe"}


def test_a_restart_in_the_middle_of_a_step_begins_as_the_first_time(monkeypatch):
    """An evaluation ends with a step whose episodes do not go on; the next evaluation restarts the task."""
    captured, results = Captured(GO1, 4, 1, monkeypatch), []
    task, everyone = captured.task, torch.ones(4, dtype=torch.bool)
    for _ in range(2):
        captured.steps = 0
        task.restart()
        captured._begin(everyone)
        results.append([captured.step(action) for action in actions(4, task.num_dofs, 6)])
        task.step(torch.empty(0))
    for first, second in zip(*results):
        assert all(torch.equal(x, second[key]) for key, x in first.items())


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [CARTPOLE, GO1])
def test_graphs_wait_for_nothing_and_have_the_numbers_of_parts_that_are_called(name, monkeypatch, short_episodes):
    graphs = Driven(name, 64, 2, "warp", device="cuda:0")
    monkeypatch.setattr(task_module, "capture_on", lambda device: None)
    plain = Driven(name, 64, 2, "warp", device="cuda:0")
    for k, action in enumerate(actions(64, plain.task.num_dofs, 40)):
        expected, results = plain.step(action.cuda()), graphs.step(action.cuda())
        # MuJoCo Warp adds the forces of contacts in any order
        tolerance = 0.0 if name == CARTPOLE else 0.01 if k < 8 else float("inf")
        for key, x in expected.items():
            assert (x.float() - results[key].float()).abs().max() <= tolerance, (k, key)
    assert len(graphs.task.world.parts._graphs) >= 8 and not graphs.task.world.parts._reasons


class Remembers:
    """A reward that replaces what it keeps."""

    def __init__(self, cfg, env):
        self.last = torch.zeros(env.num_envs, device=env.device)

    def __call__(self, env):
        old, self.last = self.last, env.action_manager.action.sum(dim=1)
        return self.last - old


def counts(env):
    return env.common_step_counter * torch.ones(env.num_envs, device=env.device)


def asks(env):
    x = env.action_manager.action.sum(dim=1)
    return x if float(x[0]) > 0 else -x


kept = None


def keeps(env):
    global kept
    x = env.action_manager.action.sum(dim=1)
    old, kept = x if kept is None else kept, x
    return old


keeps.__module__ = "envcoder_candidate_keeps"


class Ages:
    def __init__(self, cfg, env):
        self.age = 0

    def __call__(self, env):
        self.age += 1
        return env.action_manager.action.sum(dim=1) * self.age


@pytest.mark.parametrize(
    "function, reason",
    [
        (Remembers, ""),
        (counts, "reads the counter"),
        (asks, "raises in a capture"),
        (Ages, "changes what"),
        (keeps, "changes what"),
    ],
)
def test_a_term_that_no_graph_can_contain_is_called(function, reason, monkeypatch):
    from mjlab.managers.reward_manager import RewardTermCfg

    if function is keeps:  # the two tasks take steps in turn, and would share it
        monkeypatch.setattr(
            Driven, "step", lambda self, action, step=Driven.step: (globals().update(kept=None), step(self, action))[1]
        )
    patches = [{"rewards": {"mine": RewardTermCfg(func=function, weight=1.0)}}]
    parts, _ = equal_steps(CARTPOLE, 4, 2, 8, monkeypatch, patches=[{}, *patches])
    assert set(parts._reasons) == ({"rewards/mine"} if reason else set())
    assert reason in parts._reasons.get("rewards/mine", "")
    assert {"judge", "observe"} <= set(parts._graphs) and ("rewards" in parts._graphs) == bool(reason)


def test_a_termination_that_waits_costs_no_other_term_its_graph(monkeypatch):
    from mjlab.managers.termination_manager import TerminationTermCfg

    def falls(env):
        x = env.action_manager.action.sum(dim=1)
        return x > 0.5 if float(x[0]) > 0 else x < -0.5

    terms = {"falls": TerminationTermCfg(func=falls), "late": TerminationTermCfg(func=falls, time_out=True)}
    parts, ended = equal_steps(CARTPOLE, 4, 1, 10, monkeypatch, patches=[{"terminations": terms}])
    assert ended and set(parts._reasons) == {"terminations/falls", "terminations/late"}
    assert {"judge", "ends", "begin", "observe"} <= set(parts._graphs)


def test_graphs_have_the_numbers_that_a_curriculum_sets_for_each_group(monkeypatch, short_episodes):
    from mjlab.managers.curriculum_manager import CurriculumTermCfg

    def harder(env, env_ids):
        """Set the commands, and a reward's weight, by what the group's environments did, in few steps."""
        if env.common_step_counter % 7 == 2:
            done = float(torch.mean(env.reward_manager._episode_sums["track_linear_velocity"][env_ids]))
            env.command_manager.get_term("twist").cfg.ranges.lin_vel_x = (done, done + 1.0)
            env.reward_manager.get_term_cfg("upright").weight = 1.0 + done
        return {}

    dropped = []
    monkeypatch.setattr(
        Parts, "drop", lambda self, drop=Parts.drop: (dropped.append(getattr(self, "_graphs", {})), drop(self))
    )
    patches = {"curriculum": {"command_vel": CurriculumTermCfg(func=harder)}}
    patches = [patches, {**patches, "rewards": {"track_linear_velocity": 3.0}}]
    plain = Driven(GO1, 4, 2, "warp", patches=patches)
    captured = Captured(GO1, 4, 2, monkeypatch, patches=patches)
    for driven in (captured, plain):
        driven.task.world.episode_length_buf.copy_(torch.arange(8) % 4 * 7)
    for k, action in enumerate(actions(4, plain.task.num_dofs, 24)):
        expected, results = plain.step(action), captured.step(action)
        for key, x in expected.items():
            assert torch.equal(x, results[key]), (k, key)
    parts, (block,) = captured.task.world.parts, captured.task.blocks
    assert len(block.settings.commands["twist"].variants) == 2
    assert 1 <= sum(bool(graphs) for graphs in dropped) <= 4 and parts._graphs and not parts._reasons
