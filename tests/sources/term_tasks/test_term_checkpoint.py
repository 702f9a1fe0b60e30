"""What a checkpoint of a world and its blocks gives back, and what it leaves."""

from types import SimpleNamespace

import torch
from dict_framework import LineTask

from envcoder_bench.sources.term_tasks.checkpoint import restore, saved

N = 4


class World:
    """A world that holds one object."""

    scene = sim = SimpleNamespace()
    steps, device = 0, torch.device("cpu")

    def __init__(self, held):
        self._held = held

    def held(self):
        return {"root": self._held}

    def get_simulation(self):
        return {}

    def set_simulation(self, state):
        pass

    def count(self, steps):
        pass

    sense = sensed = get_simulation


def given_back(later, first):
    """Return the object with the attributes ``first``, after a checkpoint of one with ``later``."""
    held = SimpleNamespace(**first)
    restore(World(held), [], {}, saved(World(SimpleNamespace(**later)), [], {}))
    return held


def test_a_run_goes_on_with_its_own_devices():
    names = ("device", "_device")
    held = given_back({name: "cuda:0" for name in names}, {name: "cuda:1" for name in names})
    assert vars(held) == {"device": "cuda:1", "_device": "cuda:1"}


class Memory:
    """A term of observations with a buffer."""

    def __init__(self):
        self.last = torch.zeros(N)

    def __call__(self, env):
        self.last = 0.5 * self.last + env.place()
        return self.last.unsqueeze(1)


def raises_late(env):
    if env.world.steps > 5:
        raise ValueError("late")
    return env.place().unsqueeze(1)


def observing(func):
    return {"observations": {"policy": {"mine": {"func": func, "params": {}}}}}


def driven(task, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    return [task.step(torch.randn(N, generator=generator)) for _ in range(steps)]


def test_observations_go_on_after_those_of_a_neighbour_have_failed():
    task, other = (LineTask(N, [observing(raises_late), observing(Memory())], seeds=[0, 1]) for _ in range(2))
    driven(task, 10, seed=2)
    state = task.get_state()
    assert list(task.faults) == [0]
    expected = driven(task, 5, seed=3)
    other.set_state(state)
    for mine, theirs in zip(driven(other, 5, seed=3), expected, strict=True):
        assert torch.equal(mine["actor"][N:], theirs["actor"][N:])
