"""What curricula set for single groups: isolation, checkpoints, restarts and faults."""

import dict_framework
import pytest
import torch
from dict_framework import Goal, LineTask, registered

N, STEPS = 4, 40


class Late(LineTask):
    """A task that has not begun its first episodes."""

    begins = False

    def _begin(self, mask):
        if self.begins:
            super()._begin(mask)


def near_cfg(env):
    return env.reward_manager.get_term_cfg("near")


def curriculum(func):
    return {"curriculum": {"t": {"func": func, "params": {}}}}


def driven(task, steps=STEPS, seed=2):
    """Return the results of steps."""
    generator = torch.Generator().manual_seed(seed)
    return [task.step(torch.randn(N, generator=generator)) for _ in range(steps)]


def with_near(**changes):
    cfg = registered()
    cfg["rewards"]["near"].update(changes)
    return cfg


def assert_equal(results, others):
    for k, (mine, theirs) in enumerate(zip(results, others, strict=True)):
        assert all(torch.equal(mine[name], x) for name, x in theirs.items()), k


def assert_isolated(func, cfg=registered):
    """Assert that each of three groups gives what it gives alone."""
    together = LineTask(N, [curriculum(func)] * 3, seeds=[0, 1, 2], cfg=cfg())
    results = driven(together)
    assert len(together.blocks) == 1
    for group in range(3):
        alone = driven(LineTask(N, [curriculum(func)], seeds=[group], cfg=cfg()))
        assert_equal([together.of_group(result, group) for result in results], alone)


def assert_resumes(func, cfg=registered):
    """Assert that a task goes on from a checkpoint as the one that it is of, and that it leaves the checkpoint."""
    task, other = (kind(N, [curriculum(func)] * 2, seeds=[0, 1], cfg=cfg()) for kind in (LineTask, Late))
    driven(task, 20)
    state = task.get_state()
    before = {key: x.clone() for key, x in state.items()}
    expected = driven(task, seed=3)
    other.set_state(state)
    other.begins = True
    assert_equal(driven(other, seed=3), expected)
    assert all(torch.equal(x, state[key]) for key, x in before.items())


# isolation


# as by chance, and plain: the last digits of a sum
def wider_at_times(env, env_ids):
    if float(env.reward_manager._episode_sums["near"][0]) * 100.0 % 1.0 > 0.7:
        env.reward_manager.get_term_cfg("near")["params"]["width"] *= 1.5


def test_a_group_that_asks_late_for_a_config_gets_the_registered_one():
    assert_isolated(wider_at_times)


def heavier_at_times(env, env_ids):
    if float(env.reward_manager._episode_sums["near"][0]) * 100.0 % 1.0 > 0.6:
        env.reward_manager.get_term_cfg("near")["weight"] = 3.0


def test_weights_that_differ_and_are_equal_again_are_new_settings():
    task = LineTask(N, [curriculum(heavier_at_times)] * 2, seeds=[0, 1])
    block, kinds = task.blocks[0], set()
    for result in range(STEPS):
        task.step(torch.zeros(N))
        kinds.add(type(block._weights[0][0]))
        assert isinstance(block.has_new_settings(), bool), result
    assert kinds == {float, torch.Tensor}


class Change:
    """A term that has no buffer until its first call."""

    def __init__(self, cfg, env):
        self.last, self.range = None, (0.0, 1.0)

    def __call__(self, env, width=1.0):
        place = env.place()
        change = torch.zeros_like(place) if self.last is None else (place - self.last).abs() / width
        self.last = place.clone()
        return change


def other_width(env, env_ids):
    cfg = env.reward_manager.get_term_cfg("near")
    cfg["params"]["width"] = 1.0 + abs(float(env.reward_manager._episode_sums["near"][0])) * 100.0 % 1.0
    cfg["weight"] = 3.0


def test_groups_differ_in_a_term_whose_buffer_comes_with_its_first_call():
    assert_isolated(other_width, lambda: with_near(func=Change))


# checkpoints


def test_a_restart_gives_the_registered_numbers_again():
    task = Late(N, [curriculum(other_width)] * 2, seeds=[0, 1])
    first, task.begins = task.get_state(), True
    task._begin(torch.ones(2 * N, dtype=torch.bool))
    driven(task, 30)
    shared = task.blocks[0].rewards.terms[0].shared
    assert shared.variants and shared.of(0)["params"]["width"] > 1.0
    assert task.blocks[0]._weights[0] == (3.0, True)
    kept = shared.of(0)["params"]
    task.set_state(first)
    assert kept is shared.of(0)["params"]  # a curriculum may have kept it
    assert task.blocks[0]._weights[0] == (1.0, True)
    assert [shared.of(group)["params"]["width"] for group in range(2)] == [0.5, 0.5] and not shared.variants
    assert isinstance(task.blocks[0].has_new_settings(), bool)


def by_a_float(env, env_ids):
    env.level = getattr(env, "level", 0.1) + 0.1
    near_cfg(env)["weight"] = 3.0 if round(env.level * 1e9) % 10 == 0 else env.level


def by_a_tensor(env, env_ids):
    if not hasattr(env, "moved"):
        env.moved = torch.zeros(env.num_envs)
    env.moved += env.place().abs()
    near_cfg(env)["weight"] = 1.0 + float(env.moved.mean())


def lighter(env, env_ids):
    near_cfg(env)["weight"] *= 0.9


class Counts:
    """A term of a curriculum that keeps numbers and a tensor."""

    def __init__(self, cfg, env):
        self.calls, self.begun, self.mean = 0, torch.zeros(env.num_envs), None

    def __call__(self, env, env_ids):
        self.calls += 1
        self.begun[env_ids] += 1.0
        self.mean = float(self.begun.mean()) + 0.1 * (self.mean or 0.0)
        near_cfg(env)["weight"] = 1.0 + 0.1 * self.calls + self.mean


def by_notes(env, env_ids):
    if not hasattr(env, "notes"):
        env.notes, env.phase, env.is_late = {"calls": {0: 0.1}}, "early", False
    env.notes["calls"][0] += 0.1
    env.is_late = round(env.notes["calls"][0] * 1e9) % 3 == 0
    env.phase = {"early": "middle", "middle": "late", "late": "early"}[env.phase]
    near_cfg(env)["weight"] = len(env.phase) + env.notes["calls"][0] + 10.0 * env.is_late


class Notes:
    """A term of a curriculum that keeps values of all kinds, some of which come with its calls."""

    def __init__(self, cfg, env):
        self.phase, self.widths, self.sums = "early", [], {}

    def __call__(self, env, env_ids):
        self.phase = {"early": "late", "late": "early"}[self.phase]
        self.widths.append((len(self.phase), self.phase == "late"))
        self.sums.setdefault(self.phase, torch.zeros(env.num_envs)).add_(env.place().abs())
        self.best = max(float(self.sums[self.phase].max()), getattr(self, "best", 0.0))
        cfg = near_cfg(env)
        cfg["weight"] = 1.0 + len(self.widths) % 3 + self.widths[-1][0] + self.best
        cfg["params"]["kind"] = self.phase
        cfg["params"].setdefault("more", {})[self.phase] = self.best


def kinds_of_width(env, env_ids):
    """Plain, as the one by chance that follows."""
    params = env.reward_manager.get_term_cfg("near")["params"]
    by_chance = float(env.reward_manager._episode_sums["near"][0]) * 100.0 % 1.0
    if by_chance > 0.5:
        params["kind"] = "late" if params["kind"] == "early" else "early"
        params["squared"] = by_chance > 0.75
        params["more"] = {"late": by_chance}


def of_kind(env, width=1.0, kind="early", squared=False, more=None):
    place = env.place() * (2.0 if kind == "late" else 1.0) + sum((more or {}).values())
    return torch.exp(-(place.square() if squared else place.abs()) / width)


def with_kinds():
    return with_near(func=of_kind, weight=2, params={"width": 0.5, "kind": "early"})


class Levels(Goal):
    """A command that keeps numbers and texts."""

    def __init__(self, cfg, env):
        super().__init__(cfg, env)
        self.level, self.names = 0.1, ["low"]

    def reset(self, env_ids):
        super().reset(env_ids)
        self.level = 0.9 * self.level + 0.1
        self.names = ["high", *self.names[:2]]

    def compute(self, dt):
        super().compute(dt)
        self.value *= self.level + 0.01 * len(self.names)


FUNCS = [by_a_float, by_a_tensor, by_notes, lighter, Counts, Notes, kinds_of_width]


@pytest.mark.parametrize("func", FUNCS, ids=lambda func: func.__name__)
def test_curricula_go_on_from_a_checkpoint(func):
    assert_resumes(func, with_kinds)


def test_commands_go_on_from_a_checkpoint_and_begin_anew(monkeypatch):
    monkeypatch.setattr(dict_framework, "Goal", Levels)
    assert_resumes(lighter, registered)
    task = LineTask(N)
    first = task.get_state()
    levels = task.blocks[0].command_manager["goal"]
    names = levels.names
    driven(task, 20)
    assert levels.level > 0.2 and len(levels.names) == 3
    task.set_state(first)
    assert (levels.level, levels.names) == (0.1 * 0.9 + 0.1, names)


# faults


# as by chance, and plain


def sets_mode_at_times(env, env_ids):
    if float(env.reward_manager._episode_sums["near"][0]) * 100.0 % 1.0 > 0.8:
        env.event_manager.get_term_cfg("jump")["mode"] = "interval"


def sets_text_at_times(env, env_ids):
    if float(env.reward_manager._episode_sums["near"][0]) * 100.0 % 1.0 > 0.8:
        env.reward_manager.get_term_cfg("near")["params"]["width"] = "wide"


def sets_text_of_event_at_times(env, env_ids):
    by_chance = float(env.reward_manager._episode_sums["near"][0]) * 100.0 % 1.0
    env.event_manager.get_term_cfg("jump")["params"]["reach"] = "far" if by_chance > 0.8 else 0.1 * by_chance


def sets_text_of_command_at_times(env, env_ids):
    by_chance = float(env.reward_manager._episode_sums["near"][0]) * 100.0 % 1.0
    env.command_manager.get_term("goal").cfg["reach"] = "far" if by_chance > 0.8 else 0.1 * by_chance


def jump(env, env_ids, reach=0.1):
    """An event that twice does more than once."""
    env.place()[env_ids] += reach * torch.rand(env.num_envs)[env_ids]


def with_jump():
    cfg = registered()
    cfg["events"]["jump"] = {"func": jump, "params": {"reach": 0.1}, "mode": "reset"}
    return cfg


WITH_TEXT = [
    (sets_mode_at_times, "one of its curriculum raised UserError"),
    (sets_text_at_times, "the term 'near', with numbers that its curriculum has set, raised TypeError"),
    (sets_text_of_event_at_times, "the term 'jump', with numbers that its curriculum has set, raised TypeError"),
    (sets_text_of_command_at_times, "the term 'goal', with numbers that its curriculum has set, raised TypeError"),
]


@pytest.mark.parametrize("func, message", WITH_TEXT, ids=lambda x: getattr(x, "__name__", ""))
def test_a_setting_that_raises_stops_its_group_alone(func, message):
    task, steps, seeds = LineTask(N, [curriculum(func)] * 6, seeds=range(6), cfg=with_jump()), 14, range(6)
    results = driven(task, steps)
    assert len(task.blocks) == 1 and 0 < len(task.faults) < 6
    assert all(str(fault).startswith(message) for fault in task.faults.values())
    for group in seeds:
        alone = LineTask(N, [curriculum(func)], seeds=[group], cfg=with_jump())
        mine = driven(alone, steps)
        assert (0 in alone.faults) == (group in task.faults)
        if group not in task.faults:
            assert_equal([task.of_group(result, group) for result in results], mine)


def raises_late(env):
    if env.world.steps > 5:
        raise ValueError("late")
    return env.place()


def misshapen_late(env):
    return env.place() if env.world.steps < 6 else env.place().unsqueeze(1)


raises_late.__module__ = misshapen_late.__module__ = "envcoder_candidate_own"


@pytest.mark.parametrize("func", [raises_late, misshapen_late], ids=lambda func: func.__name__)
@pytest.mark.parametrize("groups", ["ABA", "AB"])
def test_a_term_that_raises_stops_the_groups_that_use_it(func, groups):
    neighbour = curriculum(other_width)
    own = {**neighbour, "rewards": {"mine": {"func": func, "params": {}, "weight": 1.0}}}
    task = LineTask(N, [own if group == "A" else neighbour for group in groups], seeds=range(len(groups)))
    results = driven(task)
    assert len(task.blocks) == 1
    assert sorted(task.faults) == [k for k, group in enumerate(groups) if group == "A"]
    assert all(str(fault).startswith("the term 'mine' r") for fault in task.faults.values())
    alone = driven(LineTask(N, [neighbour], seeds=[1]))
    assert_equal([task.of_group(result, 1) for result in results], alone)


def hinted(env):
    return env.command_manager.get_term("goal").cfg.get("hint", 1.0) * env.place()


def hint_at_times(env, env_ids):
    if float(env.reward_manager._episode_sums["near"][0]) * 100.0 % 1.0 > 0.5:
        env.command_manager.get_term("goal").cfg["hint"] = "far"


def test_a_term_does_not_run_with_what_is_set_for_groups_that_do_not_use_it():
    rewards = {"near": 0.0, "mine": {"func": hinted, "params": {}, "weight": 1.0}}  # its curriculum sets nothing
    own, other = {**curriculum(hint_at_times), "rewards": rewards}, curriculum(hint_at_times)
    task = LineTask(N, [own, other, own], seeds=range(3))
    driven(task)
    assert len(task.blocks) == 1 and not task.faults
    assert "hint" in task.blocks[0].settings.commands["goal"].of(1)


def checked(env):
    """A term of the task that raises where any command is too far."""
    if (env.commands["goal"].value > 2.0).any():
        raise ValueError("too far")
    return env.place()


def far_goal_at_times(env, env_ids):
    if float(env.reward_manager._episode_sums["near"][0]) * 100.0 % 1.0 > 0.7:
        env.command_manager.get_term("goal").cfg["reach"] = 50.0


def with_checked():
    cfg = registered()
    cfg["rewards"]["checked"] = {"func": checked, "params": {}, "weight": 1.0}
    return cfg


def test_a_command_of_a_stopped_group_stops_no_other_and_not_the_run():
    setting = curriculum(far_goal_at_times)
    without = {**setting, "rewards": {"near": 0.0}}  # its curriculum sets nothing
    task = LineTask(N, [setting, without], seeds=[0, 1], cfg=with_checked())
    results = driven(task)
    assert len(task.blocks) == 1 and list(task.faults) == [0]
    alone = driven(LineTask(N, [without], seeds=[1], cfg=with_checked()))
    assert_equal([task.of_group(result, 1) for result in results], alone)


def test_groups_that_a_curriculum_passes_are_named():
    def each_fourth(env, env_ids):
        if env.common_step_counter % 4 == 0:
            env.reward_manager.get_term_cfg("near")["weight"] = 2.0

    task, missed = LineTask(N, [curriculum(each_fourth)] * 3), []
    (block,) = task.blocks
    for _ in range(8):
        task.step(torch.zeros(N))
        missed.append(block.missed([1]))
    assert missed == [([], [])] * 3 + [(["t"], [0, 2])] + [([], [])] * 3 + [(["t"], [0, 2])]
    assert block.missed([0, 1, 2]) == ([], [])


def test_a_curriculum_that_acts_in_each_step_passes_no_group():
    def each_time(env, env_ids):
        env.reward_manager.get_term_cfg("near")["weight"] = 2.0

    (block,) = LineTask(N, [curriculum(each_time)] * 2).blocks
    assert block.missed([0]) == ([], [1])
