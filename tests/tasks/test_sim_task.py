"""Common parts of all tasks, with a fake simulator."""

import math
from types import MappingProxyType
from typing import Any

import pytest
import torch
from fake_simulator import FakeSimulator
from task_helpers import fake, shipped

from envcoder_bench.sources.registry import find_spec, task_names
from envcoder_bench.sources.shipped import shipped_class
from envcoder_bench.tasks.ant.task import Ant
from envcoder_bench.tasks.anymal.task import Anymal
from envcoder_bench.tasks.sim_task import (
    SimTask,
    check_config,
    control_timing,
    engine_options,
    ignored_keys,
    used_keys,
)

TASKS = pytest.mark.parametrize("name", task_names())


def check(cfg):
    task_class = shipped_class(cfg["name"])
    check_config(cfg, used_keys(task_class), ignored_keys(task_class))


def test_unknown_goal_raises():
    task = fake("Anymal")
    with pytest.raises(ValueError, match=r"Anymal has no goal 'command' \(did you mean commands\?\)"):
        task.reset(torch.ones(6, dtype=torch.bool), {}, {"command": torch.zeros(6, 3)})


def test_model_with_other_names_or_order_is_refused():
    cfg = shipped("Anymal")
    names = [*Anymal.dof_names[3:], *Anymal.dof_names[:3]]
    with pytest.raises(ValueError, match=r"anymal_c.xml: Anymal needs the dof_names \['LF_HAA'"):
        Anymal(cfg, FakeSimulator(2, names, Anymal.body_names))
    with pytest.raises(ValueError, match="body_names"):
        Anymal(cfg, FakeSimulator(2, Anymal.dof_names, Anymal.body_names[:-1]))
    with pytest.raises(ValueError, match=r"ant.xml: Ant needs the sensor_names \['front_left_foot'"):
        Ant(shipped("Ant"), FakeSimulator(2, Ant.dof_names, Ant.body_names))


class Juggler(SimTask):
    """A hand with two balls."""

    name = "Juggler"
    model = "juggler.xml"
    dof_names = ("hand",)
    body_names = ("hand", "red", "blue")
    object_keys = ("red_state", "blue_state")
    fields = MappingProxyType({})
    bytes_per_env = fitness = None


JUGGLER = {"name": "Juggler", "env": {"clipActions": 1.0, "episodeLength": 9}, "sim": {"dt": 0.02, "substeps": 1}}


def test_objects_are_in_the_state_and_reset_by_their_keys():
    sim = FakeSimulator(3, Juggler.dof_names, Juggler.body_names, object_names=("red", "blue"))
    task = Juggler(JUGGLER, sim)
    red, before = torch.full((3, 13), 5.0), sim.object_states.clone()
    task.reset(torch.tensor([False, True, False]), {"red_state": red, "dof_pos": torch.ones(3, 1)}, {})
    assert torch.equal(task.state["red_state"][1], red[1]) and torch.equal(task.state["blue_state"], before[:, 1])
    assert torch.equal(sim.object_states[[0, 2]], before[[0, 2]]) and sim.dof_pos.flatten().tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(ValueError, match=r"juggler.xml: Juggler needs 2 free objects.*not \['red'\]"):
        Juggler(
            JUGGLER,
            FakeSimulator(3, Juggler.dof_names, Juggler.body_names, object_names=("red",)),
        )


# the YAML


@TASKS
def test_shipped_yaml_has_no_unused_keys(name, recwarn):
    check(shipped(name))
    assert not recwarn.list


# of IsaacGymEnvs: control steps of an episode and their length, limits of actions and observations, and constants on
# which no formula of the baselines depends
EPISODES = {
    "Cartpole": (500, 0.0166, 1.0, 5.0, {}),
    "Anymal": (1000, 0.02, 1.0, 5.0, {}),
    "Ant": (1000, 0.0166, 1.0, math.inf, {"termination_height": 0.31}),
    "Humanoid": (1000, 0.0166, 1.0, math.inf, {"termination_height": 0.8}),
    "AllegroHand": (600, 1 / 60, 1.0, 5.0, {"fall_penalty": 0.0}),
    "FrankaCubeStack": (300, 1 / 60, 1.0, 5.0, {"action_scale": 1.0}),
}


@pytest.mark.parametrize("name", EPISODES)
def test_episodes_and_limits_match_isaacgymenvs(name):
    steps, dt, actions, observations, constants = EPISODES[name]
    task = fake(name)
    assert (task.max_episode_length, task.clip_actions, task.clip_observations) == (steps, actions, observations)
    assert task.dt == pytest.approx(dt, rel=1e-3)
    assert {key: task.constants[key].item() for key in constants} == pytest.approx(constants)


def test_missing_key_is_reported():
    name = "Ant"
    cfg = shipped(name)
    del cfg["env"]["clipActions"]
    with pytest.raises(ValueError, match=f"cfg/task/{name}.yaml: the key 'env.clipActions' is missing"):
        shipped_class(name)(cfg, fake(name).sim)


def test_unknown_key_is_reported_with_near_match():
    cfg = shipped("Anymal")
    cfg["env"]["learn"]["episodeLengths_s"] = 3
    message = r"unknown key 'env.learn.episodeLengths_s' \(did you mean env.learn.episodeLength_s"
    with pytest.raises(ValueError, match=message):
        check(cfg)


def test_unused_isaacgymenvs_keys_are_warned_about():
    cfg = shipped("Anymal")
    cfg["sim"]["physx"] = {"num_threads": 4}
    cfg["env"]["learn"]["torqueRewardScale"] = -1.0
    cfg["task"] = {"randomize": False}
    keys = "env.learn.torqueRewardScale, sim.physx.num_threads, task.randomize"
    with pytest.warns(UserWarning, match=f"cfg/task/Anymal.yaml: these keys have no effect here: {keys}"):
        check(cfg)


def test_domain_randomization_is_refused():
    cfg = shipped("Cartpole")
    cfg["task"] = {"randomize": True}
    with pytest.raises(ValueError, match=r"task\.randomize is True, but domain randomization is not available"):
        check(cfg)


def test_engine_keys_are_applied_to_the_model():
    cfg = shipped("Cartpole")
    assert engine_options(cfg) == {}
    cfg["sim"]["mujoco"] = {"integrator": "discrete", "iterations": 3}
    task: Any = find_spec("Cartpole").make(cfg, 2, "mujoco_cpu", "cpu")
    option = task.sim._robot.mj_model.opt
    assert (option.integrator, option.iterations) == (4, 3)  # mjINT_DISCRETE
    cfg["sim"]["mujoco"]["solver"] = "CG"
    with pytest.raises(ValueError, match=r"unknown key 'sim\.mujoco\.solver'"):
        find_spec("Cartpole").make(cfg, 2, "mujoco_cpu", "cpu")


def test_control_time_is_physics_time_times_the_frequency_divisor():
    cfg = shipped("Anymal")
    assert control_timing(cfg) == (0.02, 2)
    cfg["env"]["control"]["controlFrequencyInv"] = 2
    assert control_timing(cfg) == (0.04, 4)
    cfg = shipped("Ant")
    assert control_timing(cfg) == (0.0166, 8)
    cfg["env"]["controlFrequencyInv"] = 3
    assert control_timing(cfg) == pytest.approx((0.0498, 24))
