"""When a task's properties and gravity are drawn anew, with actors and an engine that record what they are set to."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from envcoder_bench.sources.isaacgym_tasks import randomizer as module
from envcoder_bench.sources.isaacgym_tasks.random_params import read_params

NORMAL = {"range": [0.0, 0.5], "operation": "additive", "distribution": "gaussian"}
PARAMS = {
    "frequency": 10,
    "sim_params": {"gravity": NORMAL},
    "actor_params": {"ball": {"rigid_body_properties": {"mass": NORMAL}}},
}


class Actors:
    """The masses of two groups of two environments."""

    def __init__(self, params, *_):
        mass = params.actors["ball"]["rigid_body_properties"]["mass"]
        self.distributions, self.samples = {"mass": mass}, {"mass": torch.full((4, 1), torch.nan)}

    def columns(self, key):
        return 1

    def use_lanes(self, lanes):
        pass

    def set_samples(self, envs, samples):
        self.samples["mass"][envs] = samples["mass"].float()

    def restore(self, samples):
        self.samples = {key: x.clone() for key, x in samples.items()}


@pytest.fixture
def randomizers(monkeypatch):
    monkeypatch.setattr(module, "RandomActors", Actors)

    def made():
        own = SimpleNamespace(gravity=None)
        sim = SimpleNamespace(engine=SimpleNamespace(set_gravity=lambda x: setattr(own, "gravity", x)))
        gravity = SimpleNamespace(gravity=SimpleNamespace(x=0.0, y=0.0, z=-9.81))
        gym = SimpleNamespace(get_env=lambda sim, k: k, get_sim_params=lambda sim: gravity)
        own.randomizer = module.Randomizer(read_params(PARAMS), gym, sim, None, 4, 2, torch.device("cpu"))
        own.randomizer.attach(torch.tensor([3, 3, 5, 5]), torch.tensor([0, 1, 0, 1]))
        return own

    return made


def test_masses_are_drawn_at_the_first_reset_after_the_frequency(randomizers):
    randomizer, every = randomizers().randomizer, torch.arange(4)
    masses = []
    for step, envs in ((0, every), (9, every), (10, every[:2]), (12, every)):
        randomizer.randomize(envs, step)
        masses.append(randomizer._actors.samples["mass"].clone())
    assert not masses[0].isnan().any() and torch.equal(masses[1], masses[0])
    assert (masses[2] != masses[1]).flatten().tolist() == [True, True, False, False]
    assert (masses[3] != masses[2]).flatten().tolist() == [False, False, True, True]


def test_gravity_is_that_of_a_groups_seed_and_part_of_the_state(randomizers):
    own, other = randomizers(), randomizers()
    own.randomizer.refresh(7)
    first = own.gravity
    own.randomizer.refresh(11)  # of two simulation steps each, 8 after the last
    assert own.gravity is first and first.shape == (4, 3)
    assert np.array_equal(first[0], first[1]) and not np.isclose(first[1], first[2]).any()
    other.randomizer.set_state(own.randomizer.get_state())
    assert np.array_equal(other.gravity, first)
    own.randomizer.refresh(12)
    assert not np.isclose(own.gravity, first).any()
