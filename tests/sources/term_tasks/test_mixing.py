"""Terms whose objects keep a number over environments: groups that share one are alone."""

from collections import deque

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


class Flag(Counter):
    def __call__(self, env):
        if env.place().mean() > 0.5:
            self.fresh = False
        return self.last


class Loop(Counter):
    def __call__(self, env):
        while self.calls < 3 and env.place().max() > 1.0:
            self.calls += 1
        return self.last


class Early(Counter):
    def __call__(self, env):
        if env.place().mean() < 0.5:
            return self.last
        self.calls += 1
        return self.last


class Level1d(Counter):
    def __init__(self, cfg, env):
        super().__init__(cfg, env)
        self.level = torch.zeros(1)

    def __call__(self, env):
        self.level[:] = env.place().mean()
        return self.level * env.place()


class Lerp(Counter):
    def __init__(self, cfg, env):
        super().__init__(cfg, env)
        self.level = torch.tensor(0.0)

    def __call__(self, env):
        return env.place() * self.level.lerp_(env.place().mean(), 0.1)


class Late(Counter):
    def __init__(self, cfg, env):
        super().__init__(cfg, env)
        self.scale = None

    def __call__(self, env):
        mean = torch.mean(env.place())
        self.scale = mean if self.scale is None else 0.9 * self.scale + 0.1 * mean
        return env.place() / self.scale


class InDict(Counter):
    def __init__(self, cfg, env):
        super().__init__(cfg, env)
        self.state = {"levels": [0.0]}

    def __call__(self, env):
        self.state["levels"][0] += float(env.place().mean())
        return self.last


class Past(Counter):
    def __init__(self, cfg, env):
        super().__init__(cfg, env)
        self.past = deque(maxlen=3)

    def __call__(self, env):
        self.past.append(env.place().max().item())
        return self.last


class Kept(Counter):
    """Has buffers that come late, a dict of them, and flags that follow from its counter."""

    def __init__(self, cfg, env):
        super().__init__(cfg, env)
        self.late, self.past, self.sums, self.one = None, [], {"x": torch.zeros(env.num_envs)}, torch.zeros(1)

    def __call__(self, env):
        place = env.place()
        self.late = place.clone() if self.late is None else 0.5 * self.late
        self.past.append(place.clone())
        self.sums["x"] += place
        self.sums["x"].clamp_(max=1.0)
        self.one.zero_()
        self.one[0] = self.calls
        self.calls += 1
        if self.calls > 3 and not self.fresh:
            self.fresh = True
            return self.last
        self.half *= 0.5
        return self.last


FOUND = [
    *((Scaled, "scale"), (Stage, "calls"), (Mean, "half"), (Level0d, "level"), (Flag, "fresh"), (Loop, "calls")),
    *((Early, "calls"), (Level1d, "level"), (Lerp, "level"), (Late, "scale"), (InDict, "state"), (Past, "past")),
]


def env():
    return LineTask(N).blocks[0].env


@pytest.mark.parametrize("cls, name", FOUND)
def test_a_number_that_follows_from_environments_is_found(cls, name):
    assert mixing_number(cls(None, env())) == name


def test_a_number_is_found_in_any_statement():
    assert mixing_number(Tried(None, env())) in ("half", "calls")


@pytest.mark.parametrize(
    "term", [Counter(None, env()), Kept(None, env()), Goal({"reach": 1.0}, env()), dict_framework.near, len, 3.0]
)
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
