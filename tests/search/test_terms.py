"""New terms of a reward: numbers of the declared state, by hand, and a search that cannot do without."""

import math
from random import Random

import pytest
import torch

from envcoder_bench.run.config import compose_config
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.search.archive import Archive, Attempt
from envcoder_bench.search.evolve import EvolveProposer
from envcoder_bench.search.terms import draw, quantities
from envcoder_bench.sim import pick_simulator
from envcoder_bench.tasks.contract import Key, task_contract
from envcoder_bench.tasks.registry import task_names

N, REWARD = 16, ["compute_reward"]


def reward_of(source, state):
    functions = {"torch": torch}
    exec(source, functions)
    function = functions["compute_reward"]
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return function(**{name: state if name == "state_dict" else state[name] for name in names})


def tensors(keys, seed=0):
    """Random tensors of these keys; quaternions have unit length."""
    generator = torch.Generator().manual_seed(seed)
    state = {key: torch.randn(N, *own.shape, generator=generator) for key, own in keys.items()}
    for key, x in state.items():
        if keys[key].shape == (4,) and keys[key].unit == "-":
            state[key] = torch.nn.functional.normalize(x, dim=-1)
        if keys[key].shape == (13,):
            x[:, 3:7] = torch.nn.functional.normalize(x[:, 3:7], dim=-1)
    return {**state, "actions": torch.randn(N, 2, generator=generator), "progress_buf": torch.arange(N)}


def proposer(task, seed=7):
    return EvolveProposer(REWARD, None, seed, ["unshaped"], state=task_contract(compose_config(task).task).state)


def start(task):
    return Archive([], {b.name: Attempt(b.name, 0, b.source, fitness=0.0) for b in baseline_sources(task)})


def test_every_term_has_the_value_computed_by_hand():
    keys = {
        "speed": Key((), "float32", "m/s"),
        "count": Key((), "int64", "-"),
        "pair": Key((2,), "float32", "m, rad"),
        "initial_pair": Key((2,), "float32", "m, rad"),
        "joints": Key((3,), "float32", "rad"),
        "body": Key((13,), "float32", "m, -, m/s, rad/s"),
        "turn": Key((4,), "float32", "-", "orientation, xyzw"),
        "aim_turn": Key((4,), "float32", "-", "goal: orientation"),
        "rotors": Key((4,), "float32", "rad"),
        "forces": Key((2, 3), "float32", "N"),
        "matrix": Key((6, 7), "float32", "kg"),
        "no_joints": Key((0,), "float32", "rad"),  # of a robot that flies
        "initial_no_joints": Key((0,), "float32", "rad"),
    }
    state = tensors(keys)
    tilt = math.pi / 3  # about x
    turned = torch.tensor([math.sin(tilt / 2), 0.0, 0.0, math.cos(tilt / 2)]).expand(N, 4)
    state["turn"], state["aim_turn"] = turned, torch.tensor([0.0, 0.0, 0.0, 1.0]).expand(N, 4)
    state["body"][:, 3:7] = turned

    def local(v):  # the transposed rotation by 60 degrees about x
        c, s = math.cos(tilt), math.sin(tilt)
        return torch.stack((v[:, 0], c * v[:, 1] + s * v[:, 2], -s * v[:, 1] + c * v[:, 2]), dim=-1)

    half = torch.full((N,), 0.5)  # the z component of the tilted z axis
    velocity, spin = local(state["body"][:, 7:10]), local(state["body"][:, 10:13])
    force = state["forces"].square().sum(dim=-1).sqrt()
    apart = state["pair"] - state["initial_pair"]
    numbers = [(state["speed"], 1.0), (state["body"][:, 2], 0.3), (half, 1.0), (torch.ones(N), 1.0)]
    numbers += [(torch.full((N,), tilt), 0.5)]  # the angle from one quaternion to the other
    numbers += [(state["pair"][:, k], size) for k, size in enumerate((0.3, 0.5))]
    numbers += [(apart[:, k], 0.3) for k in range(2)]
    numbers += [(state["rotors"][:, k], 0.5) for k in range(4)]
    numbers += [(state["joints"][:, k], 0.5) for k in range(3)] + [(force[:, k], 50.0) for k in range(2)]
    numbers += [(velocity[:, k], 1.0) for k in range(3)] + [(spin[:, k], 3.0) for k in range(3)]
    vectors = [(state["rotors"], 0.5), (state["joints"], 0.5)]
    vectors += [(velocity, 1.0), (spin, 3.0), (force, 50.0), (apart, 0.3)]
    expected = [torch.ones(N), -state["actions"].square().mean(dim=-1)]
    for x, size in numbers:
        y = x / size
        expected += [y, -y, -y.square(), torch.exp(-y.square()), torch.tanh(y)]
    for x, size in vectors:
        square = (x / size).square().mean(dim=-1)
        expected += [-square, torch.exp(-square)]

    found, seen = quantities(keys), set()
    for source in sorted({draw(found, Random(seed)) for seed in range(6000)}):
        value = reward_of(source, state)
        fitting = {k for k, x in enumerate(expected) if torch.allclose(value, x, atol=1e-5)}
        assert fitting, source
        seen |= fitting
    assert seen == set(range(len(expected)))  # every form of every quantity is drawn


@pytest.mark.parametrize(
    "task, some, none",
    [
        ("Ant", {"root_states_up", "root_states_velocity", "root_states_to_initial_root_states", "up_vec"},
         {"initial_root_states_up", "basis_vec0", "inv_start_rot_up", "initial_dof_pos"}),
        ("AllegroHand", {"object_pos_to_goal_pos", "object_rot_to_goal_rot", "object_state_to_object_init_state"},
         {"object_init_state_up"}),
        ("AnymalTerrain", {"commands", "root_states_spin"}, {"commands_up", "feet_air_time_up"}),
        ("FrankaCubeStack", {"eef_quat_up", "cubeA_to_cubeB_pos", "cubeA_state_up"}, {"eef_vel_up", "jacobian"}),
    ],
)  # fmt: skip
def test_quantities_of_shipped_tasks(task, some, none):
    names = {own.name for own in quantities(task_contract(compose_config(task).task).state)}
    assert some <= names and not none & names


@pytest.mark.parametrize("task", task_names())
def test_terms_are_finite_on_every_task(task):
    keys = task_contract(compose_config(task).task).state
    found, state = quantities(keys), tensors(keys)
    for seed in range(150):
        source = draw(found, Random(seed))
        value = reward_of(source, state)
        assert value.shape == (N,) and value.is_floating_point() and torch.isfinite(value).all(), source


@pytest.mark.slow
@pytest.mark.parametrize("task", task_names())
def test_rewards_with_new_terms_pass_the_check(task):
    made = proposer(task).propose(start(task), 1, 40)
    cfg = compose_config(task, ["num_envs_per_candidate=8", "compile_shapers=false"])
    cfg.sim, cfg.device = pick_simulator("mujoco_cpu", "cpu")
    passed, failed = prepare(cfg, [CandidateSource(p.name, f"{p.name}.py", p.source) for p in made])
    assert len(made) == 40 and len(passed) >= 38, {name: str(error) for name, error in failed.items()}
    assert sum("of the state" in p.origin for p in made) >= 2  # a tenth, or all where nothing else can be changed


def test_without_the_state_there_are_no_new_terms():
    """The reward of Ant's unshaped baseline is the difference of two inputs: there is nothing else to change."""
    assert EvolveProposer(REWARD, None, 7, ["unshaped"]).propose(start("Ant"), 1, 8) == []


def test_search_finds_the_terms_that_a_fitness_asks_for():
    """The fitness is the correlation with a reward of three terms, of which the start has one.

    Measured: 0.59 at the start, 0.66 to 0.88 after six rounds with seeds 7 to 14; 0.78, 0.69, 0.75 and 0.66 here.
    """
    keys = task_contract(compose_config("Ant").task).state
    states = tensors(keys, seed=1)
    wanted = states["potentials"] - states["prev_potentials"] + 2.0 * states["up_vec"][:, 2]
    wanted = wanted - 2.0 * states["dof_vel"].square().mean(dim=-1)

    def fitness(source):
        value = reward_of(source, states)
        return torch.corrcoef(torch.stack((value, wanted)))[0, 1].nan_to_num().item()

    def search(seed):
        archive, own = start("Ant"), proposer("Ant", seed)
        for number in range(1, 7):
            made = own.propose(archive, number, 16)
            archive.attempts += [
                Attempt(p.name, number, p.source, p.parents, p.origin, fitness=fitness(p.source)) for p in made
            ]
        best = archive.best()
        assert best is not None
        return best.fitness

    first = fitness(start("Ant").baselines["unshaped"].source)
    gains = [search(seed) - first for seed in range(7, 11)]
    assert min(gains) > 0.05 and sum(gains) / len(gains) > 0.1, gains
