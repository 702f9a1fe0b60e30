"""The shipped fitness files, on states made by hand and on the real tasks."""

import math

import pytest
import torch
from task_helpers import fake, whole_state

from envcoder_bench.core.folders import project_folder
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.fitness import load_fitness, read_fitness
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.shaping.kinds import FITNESS
from envcoder_bench.shaping.state import bind
from envcoder_bench.sources.registry import find_spec

FOLDER = project_folder("user_functions") / "fitness"
FILES = {"Anymal": FOLDER / "anymal_speed.py", "Humanoid": FOLDER / "humanoid_speed.py"}
CENTRE = FOLDER / "cartpole_centre.py"
N = 3


def config(name, *overrides):
    words = [f"num_envs_per_candidate={N}", f"fitness='{FILES[name]}'", "sim=mujoco_cpu", "device=cpu", *overrides]
    return compose_config(name, words)


def turned(axis, degrees):
    """A quaternion xyzw: a turn about one axis of the world."""
    half = math.radians(degrees) / 2
    return [math.sin(half) if k == "xyz".index(axis) else 0.0 for k in range(3)] + [math.cos(half)]


def fitness_of(name, quat, velocity):
    """The fitness of one robot that stands in the air, turned by ``quat``, with this velocity in the world."""
    task = fake(name, 1)
    task.state["root_states"][:, 3:7] = torch.tensor(quat)
    task.state["root_states"][:, 7:10] = torch.tensor(velocity)
    task.reset(torch.ones(1, dtype=torch.bool), {"root_states": task.state["root_states"].clone()}, {})
    source = read_fitness(find_spec(name), config(name))
    assert source is not None
    value = bind(load_fitness(source, 0).functions[FITNESS], whole_state(task))()
    assert isinstance(value, torch.Tensor)
    return value.item()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("quat", "velocity", "speed"),
    [
        (turned("z", 0), [1.5, 0.7, 0.3], 1.5),
        (turned("z", 90), [0.7, 1.5, 0.3], 1.5),  # it faces along y
        (turned("z", 180), [1.5, 0.0, 0.0], -1.5),  # backwards
        (turned("z", 90), [2.0, 0.0, 0.0], 0.0),  # sideways
        (turned("y", 60), [2.0, 0.0, -3.0], 0.0),  # on its nose
        (turned("x", 120), [2.0, 0.0, 0.0], 0.0),  # on its back
        (turned("x", 30), [2.0, 0.0, 0.0], 2.0),
    ],
)
def test_fitness_is_forward_speed_while_upright(name, quat, velocity, speed):
    assert fitness_of(name, quat, velocity) == pytest.approx(speed, abs=1e-5)


def test_pitch_scales_the_fitness_of_anymal_but_not_of_the_humanoid():
    nod = turned("y", 30)
    assert fitness_of("Humanoid", nod, [2.0, 0.0, 0.0]) == pytest.approx(2.0, abs=1e-5)
    assert fitness_of("Anymal", nod, [2.0, 0.0, 0.0]) == pytest.approx(2.0 * math.cos(math.pi / 6), abs=1e-5)


@pytest.mark.parametrize("name", FILES)
def test_fitness_is_compiled_and_averages_the_speed_over_the_episode(name):
    length = "learn.episodeLength_s=0.6" if name == "Anymal" else "episodeLength=12"  # it falls soon
    cfg = config(name, f"task.env.{length}")
    groups, failed = prepare(RunSpec.of(cfg, baseline_sources(find_spec(name)), read_fitness(find_spec(name), cfg)))
    assert not failed
    env = build_env(RunSpec.of(cfg), [group.evaluation for group in groups], [0] * len(groups), N)
    stage = env.dispatch.stages["fitness"]
    assert len(stage.traced) == len(groups)
    seen = []
    position = env.task.state["root_states"][:, :2]

    def policy(obs):
        seen.append(position.clone())
        return 0.3 * torch.sin(torch.arange(env.actions.numel()).view_as(env.actions) * 1.0)

    played = run_episodes(env, policy, rounds=1, first_step=0)
    assert not stage.calls  # no kernel was taken back
    assert not env.failures
    assert torch.isfinite(played.fitness).all()
    # they all begin facing x and hardly turn so soon: the sum of the speeds is about the way that they went
    whole = (played.length == env.full_episode).flatten()
    way = (position - seen[0])[:, 0] / (env.task.dt * env.full_episode)
    assert whole.any()
    torch.testing.assert_close(played.fitness.flatten()[whole], way[whole], rtol=0.0, atol=0.15)
    assert played.fitness.abs().max() > 1e-3


def test_cartpole_counts_steps_upright_in_the_middle():
    functions = load_fitness(
        read_fitness(find_spec("Cartpole"), compose_config("Cartpole", [f"fitness='{CENTRE}'"])), 0
    ).functions
    state = {
        "pole_angle": torch.tensor([0.0, math.radians(11.9), -math.radians(12.1), 0.0, 0.0]),
        "cart_pos": torch.tensor([0.0, -0.19, 0.0, 0.21, -0.21]),
    }
    state["actions"] = torch.zeros(5, 1)
    assert bind(functions[FITNESS], state)().tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
