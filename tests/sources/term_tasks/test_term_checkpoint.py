"""What a checkpoint of a world and its blocks gives back, and what it leaves."""

from collections import Counter, deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from dict_framework import LineTask

from envcoder_bench.core.errors import UserError
from envcoder_bench.sources.term_tasks.checkpoint import restore, saved
from envcoder_bench.sources.term_tasks.graphs.parts import _differ

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


@pytest.mark.parametrize(
    "later, first",
    [
        ({3: torch.ones(2), "4": torch.zeros(2)}, {}),
        (Counter({3: 5}), Counter()),
        (deque([torch.ones(2), torch.zeros(2)], 2), deque([torch.ones(2)] * 2, 2)),
        (deque([1.0, "a"], 3), deque(maxlen=3)),
        (deque([1.0]), deque([2.0, 3.0])),
        (deque(maxlen=3), deque([1.0, 2.0], 3)),
        (np.array([1.0, np.nan]), np.zeros(2)),
        (np.array([True]), None),
        ([np.ones(2)], [np.zeros(3)]),
        (np.float32(0.3), np.float32(0.1)),
        (torch.tensor([2**40 + 1]), torch.zeros(1)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_values_are_given_back_with_their_types(later, first):
    held = given_back({"x": later}, {"x": first})
    assert type(held.x) is type(later)
    if isinstance(later, (np.ndarray, np.generic, torch.Tensor)):
        assert held.x.dtype == later.dtype and held.x is not later
    if isinstance(later, dict):
        assert list(held.x) == list(later)
    assert repr(held.x) == repr(later)


def test_an_array_in_a_file_is_given_back_as_an_array(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(2))
    held = given_back({"x": np.load(tmp_path / "x.npy", mmap_mode="r")}, {"x": np.zeros(2)})
    assert held.x.tolist() == [1.0, 1.0] and type(held.x) is np.ndarray


@pytest.mark.parametrize("other", [None, 1.0, [1.0, 2.0], np.zeros(3)])
def test_an_array_differs_from_what_replaces_it(other):
    assert _differ(np.zeros(2), other) and _differ(other, np.zeros(2))
    assert not _differ(np.array([np.nan]), np.array([np.nan]))


def test_a_checkpoint_of_an_earlier_version_is_refused():
    world = World(SimpleNamespace())
    state = {key: x for key, x in saved(world, [], {}).items() if key != "plain"}
    with pytest.raises(UserError, match="begin a new run"):
        restore(world, [], {}, state)


def test_arrays_stay_the_same_objects():
    first = np.zeros(2)
    assert given_back({"x": np.ones(2)}, {"x": first}).x is first
    first.flags.writeable = False
    assert given_back({"x": np.zeros(2)}, {"x": first}).x.tolist() == [0.0, 0.0]


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
    assert {group: fault.key for group, fault in task.faults.items()} == {0: "mine"}  # not the noise before it
    expected = driven(task, 5, seed=3)
    other.set_state(state)
    for mine, theirs in zip(driven(other, 5, seed=3), expected, strict=True):
        assert torch.equal(mine["actor"][N:], theirs["actor"][N:])
