"""Candidates in Isaac Lab's words: what they may change, and a ranking with variants of a reward."""

import pytest

import envcoder_bench
from envcoder_bench.core.errors import UserError
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.fitness import read_fitness
from envcoder_bench.run.prepare.groups import prepare_one
from envcoder_bench.run.spec import CandidateSource, RunSpec
from envcoder_bench.shaping.contract import sections_of
from envcoder_bench.sources.isaaclab_tasks.spec import facts_of
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.sources.term_tasks.faults import PatchError

WALK, WIDENS = "isaaclab:small_lab:Small-Walk-v0", "isaaclab:small_lab:Small-Widens-v0"
MINE = """
import torch
from isaaclab.managers import RewardTermCfg as RewTerm


def upright(env, scale):
    return torch.exp(-scale * env.scene["robot"].data.projected_gravity_b[:, :2].square().sum(dim=1))


rewards = {"track": 2.0, "feet": None, "force": None, "mine": RewTerm(func=upright, weight=0.5, params={"scale": 2.0})}
events = {"push": None}
"""


@pytest.fixture(scope="module")
def complete():
    return find_spec(WALK).sections.complete


def test_a_candidates_dicts_become_functions_that_read_their_terms(complete):
    functions, patches = complete({"rewards": {"track": 3.0, "feet": None}, "observations": {"spin": None}}, "")
    assert list(patches) == ["rewards", "observations"]
    assert set(functions) == {
        *("compute_reward", "compute_observation", "compute_critic_observation", "compute_terminal"),
    }


@pytest.mark.parametrize(
    "module, message",
    [
        ({"rewards": {"tarck": 1.0}}, r"rewards has no term 'tarck' \(did you mean track\?\)"),
        ({"observations": {"polcy": {"spin": None}}}, "no group or term 'polcy'"),
        ({"commands": {"base_velocity": {"range": {}}}}, r"has no 'range' \(did you mean ranges\?\)"),
        ({"rewards": {"rate": {"params": {"nothing": 1}}}}, "the term 'rate' raised TypeError"),
        ({"rewards": {"rate": {"weight": -0.3}}, "events": {"push": {"is_global_time": True}}}, "one clock"),
        ({"rewards": {"mine": lambda env: env.episode_length_buf.unsqueeze(1)}}, r"returns shape \(11, 1\)"),
    ],
)
def test_what_does_not_fit_is_named(complete, module, message):
    with pytest.raises(PatchError, match=message):
        complete(module, "")


def test_settings_of_ppo_are_the_forks():
    facts = facts_of(WALK)
    network, config = facts.train["params"]["network"], facts.train["params"]["config"]
    assert network["mlp"] == {"units": [16], "critic_units": [16, 8], "activation": "elu"}
    assert config["horizon_length"] == 8 and config["entropy_coef"] == 0.01 and config["value_bootstrap"]
    assert facts.obs_sets == {"actor": ("policy",), "critic": ("critic",)}


GOAL = """\"\"\"Tracking of 0.7 m/s.\"\"\"
commands = {"base_velocity": {"ranges": {"lin_vel_x": (0.7, 0.7)}}}
curriculum = {"wider": None}


def compute_fitness(score):
    return score
"""


def with_fitness(path, text):
    """The config of a run with a fitness file, and what the run reads of it."""
    path.write_text(text)
    cfg = compose_config(WIDENS, ["device=cpu", "num_envs_per_candidate=2", f"fitness='{path}'"])
    return RunSpec.of(cfg, [], read_fitness(find_spec(WIDENS), cfg))


def test_a_fitness_file_sets_the_commands_of_evaluations_alone(tmp_path):
    spec = with_fitness(tmp_path / "goal.py", GOAL)
    text = 'commands = {"base_velocity": {"ranges": {"lin_vel_x": (0.0, 0.1)}}}\nobservations = {"spin": None}\n'
    group = prepare_one(spec, CandidateSource("mine", str(tmp_path / "mine.py"), text), 0)
    training, evaluation = sections_of(group.shaping.stages), sections_of(group.evaluation.stages)
    assert set(training) == {"commands", "observations"}
    assert set(evaluation) == {"commands", "curriculum", "observations"}
    task = spec.task.make(spec.config.task, 2, "mujoco_cpu", "cpu")
    ranges = []
    for sections in (training, evaluation):
        task.try_step(sections)
        ranges.append(task.blocks[0].command_manager.get_term("base_velocity").cfg.ranges.lin_vel_x)
    assert ranges == [(0.0, 0.1), (0.7, 0.7)]


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("lin_vel_x", "lin_vel_q", r"goal\.py:2: commands\['base_velocity'\] has no 'lin_vel_q'"),
        ('curriculum = {"wider"', 'rewards = {"feet"', r"goal\.py:3: changes rewards, which a fitness file cannot"),
        ('curriculum = {"wider"', 'observations = {"spin"', r"goal\.py:3: changes observations, which a fitness"),
        ("def compute_fitness(score)", "def compute_score(score)", r"goal\.py:2: does not define compute_fitness"),
    ],
)
def test_what_a_fitness_file_cannot_change_is_named(tmp_path, old, new, message):
    with pytest.raises(UserError, match=message):
        with_fitness(tmp_path / "goal.py", GOAL.replace(old, new))


@pytest.mark.slow
def test_a_ranking_with_variants_of_a_reward(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    small = ["evaluation.final_episodes=2", "evaluation.num_envs=2", "evaluation.points=1"]
    sizes = {"num_envs_per_candidate": 4, "learning_iterations": 2, "output_dir": tmp_path / "run", "overrides": small}
    result = envcoder_bench.evaluate(WALK, tmp_path / "mine.py", terms=True, baselines=False, **sizes)
    # track, torques, acceleration, rate, smooth and mine, each left out, halved and doubled
    assert len(result.rows) > 18 and all(row.status == "ok" for row in result.rows)
    assert len({row.fitness for row in result.rows}) > 10
