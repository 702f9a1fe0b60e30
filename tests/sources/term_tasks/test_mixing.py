"""Terms whose objects keep a number over environments: groups that share one are alone."""

import dict_framework
import pytest
import torch
from dict_framework import Goal, LineTask, registered

from envcoder_bench.sources.term_tasks.mixing import mixing_number

N = 4


class Levels(Goal):
    """A command whose reach follows from a mean over environments."""

    def __init__(self, cfg, env):
        super().__init__(cfg, env)
        self.level = 0.5

    def compute(self, dt):
        super().compute(dt)
        if self.value.mean() > 0.4:
            self.level += 0.1
        self.value *= self.level


class Scaled:
    """A reward that is divided by a running mean over environments."""

    def __init__(self, cfg, env):
        self.scale = 1.0

    def __call__(self, env):
        place = env.place().abs()
        self.scale = 0.9 * self.scale + 0.1 * float(place.mean())
        return place / self.scale


class Counter:
    def __init__(self, cfg, env):
        self.calls, self.fresh, self.half, self.last = 0, True, 0.5, torch.zeros(env.num_envs)

    def __call__(self, env):
        self.calls += 1
        self.half = 0.5 * self.calls
        self.last = env.place().clone()
        if self.fresh:
            self.fresh = False
        return self.last * self.half

    def unused(self):
        self.name = "x"


class Stage(Counter):
    def __call__(self, env):
        for place in env.place():
            if place > 1.0:
                self.calls = 3
        return self.last


class Mean(Counter):
    def __call__(self, env):
        self.half: float = env.place().mean().item()
        return self.last


class Level0d(Counter):
    def __init__(self, cfg, env):
        super().__init__(cfg, env)
        self.level = torch.tensor(0.0)

    def __call__(self, env):
        self.level = torch.maximum(self.level, env.place().max())
        return self.level * env.place()


class Tried(Counter):
    def __call__(self, env):
        try:
            self.half, self.other = env.place().mean().item(), 2
        except RuntimeError:
            self.calls = 2
        return self.last


def env():
    return LineTask(N).blocks[0].env


@pytest.mark.parametrize("cls, name", [(Scaled, "scale"), (Stage, "calls"), (Mean, "half"), (Level0d, "level")])
def test_a_number_that_follows_from_environments_is_found(cls, name):
    assert mixing_number(cls(None, env())) == name


def test_a_number_is_found_in_any_statement():
    assert mixing_number(Tried(None, env())) in ("half", "calls")


@pytest.mark.parametrize("term", [Counter(None, env()), Goal({"reach": 1.0}, env()), dict_framework.near, len, 3.0])
def test_counters_flags_tensors_and_functions_mix_nothing(term):
    assert mixing_number(term) is None


def driven(task, steps=40):
    generator = torch.Generator().manual_seed(2)
    return [task.step(torch.randn(N, generator=generator)) for _ in range(steps)]


def with_reward(cls):
    cfg = registered()
    cfg["rewards"]["mine"] = {"func": cls, "params": {}, "weight": 1.0}
    return cfg


@pytest.mark.parametrize("cls", [Levels, Scaled])
def test_groups_that_would_mix_are_as_alone(cls, monkeypatch):
    if cls is Levels:
        monkeypatch.setattr(dict_framework, "Goal", Levels)
    cfg = with_reward(Counter if cls is Levels else cls)
    patches = [{}, {"rewards": {"near": 2.0}}, {}]
    among = LineTask(N, patches, seeds=[0, 1, 2], cfg=cfg)
    assert [list(block.groups) for block in among.blocks] == [[0], [1], [2]]
    results = driven(among)
    for group in range(3):
        alone = driven(LineTask(N, patches[group : group + 1], seeds=[group], cfg=cfg))
        for mine, theirs in zip(results, alone, strict=True):
            assert all(torch.equal(among.of_group(mine, group)[name], x) for name, x in theirs.items())


def test_groups_with_counters_share_a_block():
    assert len(LineTask(N, [{}] * 3, cfg=with_reward(Counter)).blocks) == 1
