"""Curricula that are called only where they may do something, against the same ones called wherever episodes begin."""

import pytest
import torch
from dict_framework import LineTask, registered

from envcoder_bench.sources.term_tasks.curricula.of_groups import GroupCurricula

N, STEPS = 4, 60
calls: list[int] = []
kept = 0


def each_fourth(env, env_ids):
    mean = env.place().abs().mean()
    if env.world.steps % 4 == 0 and mean > 0.3:
        env.reward_manager.get_term_cfg("near")["weight"] += 0.5
    return mean


def late(env, env_ids):
    cfg = env.reward_manager.get_term_cfg("near")
    if env.world.steps > 30:
        cfg["weight"] = 3.0


def by_what_it_did(env, env_ids):
    if torch.mean(env.reward_manager._episode_sums["near"][env_ids]) > 0.2:
        env.reward_manager.get_term_cfg("near")["params"]["width"] *= 1.1


def by_the_number(env, env_ids):
    env.reward_manager.get_term_cfg("near")["weight"] = 1.0 + env.world.steps / 10


def remembers(env, env_ids):
    env.best = torch.maximum(getattr(env, "best", torch.zeros(())), env.place().abs().max())
    if env.world.steps % 8 == 0:
        env.reward_manager.get_term_cfg("near")["weight"] = float(env.best)


def adds_up(env, env_ids):
    if not hasattr(env, "sum"):
        env.sum = torch.zeros(env.num_envs)
    env.sum += env.place()
    if env.world.steps % 8 == 0:
        env.reward_manager.get_term_cfg("near")["weight"] = float(env.sum.sum())


def counts(env, env_ids):
    global kept
    kept += 1
    if env.world.steps % 8 == 0:
        env.reward_manager.get_term_cfg("near")["weight"] = kept


class Counts:
    def __init__(self):
        self.times = 0

    def __call__(self, env, env_ids):
        self.times += 1
        if env.world.steps % 8 == 0:
            env.reward_manager.get_term_cfg("near")["weight"] = self.times


def of_another(env, env_ids):
    if env.reward_manager.get_term_cfg("near")["weight"] > 2.0:
        env.reward_manager.get_term_cfg("fast")["weight"] = -0.3


def driven(functions, everywhere, monkeypatch):
    """Return the results of steps, and in how many calls the curriculum was evaluated."""
    global kept
    calls.clear()
    kept = 0

    terms = {f"term {k}": {"func": function, "params": {}} for k, function in enumerate(functions)}
    evaluated = GroupCurricula._evaluated
    with monkeypatch.context() as patch:
        patch.setattr(
            GroupCurricula,
            "_evaluated",
            lambda self, name, mask, group: (calls.append(group), evaluated(self, name, mask, group))[1],
        )
        if everywhere:
            patch.setattr(GroupCurricula, "active", lambda self, steps: list(range(len(self.envs))))
        patches = {"curriculum": terms}
        task = LineTask(
            N, [patches, {**patches, "rewards": {"smooth": None}}, patches], seeds=[0, 0, 1], cfg=registered()
        )
        assert len(task.blocks) == 1
        generator = torch.Generator().manual_seed(2)
        results = [task.step(torch.randn(N, generator=generator)) for _ in range(STEPS)]
    return results, len(calls)


@pytest.mark.parametrize(
    "functions, saved",
    [
        ([each_fourth], True),
        ([late], True),
        ([by_what_it_did], False),
        ([by_the_number], False),
        ([remembers], False),
        ([adds_up], False),
        ([counts], False),
        ([Counts()], False),
        ([of_another, each_fourth], True),
    ],
    ids=lambda x: "-".join(getattr(f, "__name__", "object") for f in x) if isinstance(x, list) else "",
)
def test_a_curriculum_that_is_left_out_would_have_done_nothing(functions, saved, monkeypatch):
    if isinstance(functions[0], Counts):
        functions[0].times = 0
    expected, always = driven(functions, True, monkeypatch)
    if isinstance(functions[0], Counts):
        functions[0].times = 0
    results, some = driven(functions, False, monkeypatch)
    for k, (mine, others) in enumerate(zip(results, expected)):
        assert all(torch.equal(mine[name], x) for name, x in others.items()), k
    assert always > STEPS and (some < 0.7 * always) == saved, (some, always)
