"""With mjlab itself: its own environment is the oracle."""

import copy
import re
import sys
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch
from driven import CARTPOLE, G1, GO1, LIFT, ROUGH_GO1, Driven, actions
from torch import Tensor

from envcoder_bench import evaluate
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.fitness import fitness_meaning
from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.prepare.groups import prepare_one
from envcoder_bench.run.prepare.variants import Asked, with_variants
from envcoder_bench.run.spec import CandidateSource
from envcoder_bench.search.archive import Archive, Attempt
from envcoder_bench.search.evolve import EvolveProposer
from envcoder_bench.search.prompt.prompts import load_templates, system_prompt
from envcoder_bench.shaping.contract import Candidate, CandidateError, sections_of
from envcoder_bench.shaping.dicts import read_dicts, with_dicts
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.sources.mjlab_tasks import source
from envcoder_bench.sources.mjlab_tasks.spec import facts_of
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.sources.term_tasks import SECTIONS
from envcoder_bench.sources.term_tasks.faults import PatchError
from envcoder_bench.tasks.contract import task_contract

pytest.importorskip("mjlab")
pytestmark = pytest.mark.slow  # constructing a scene takes a second

# mjlab's own numbers


@pytest.mark.parametrize(
    "name, groups, steps",
    [
        *((CARTPOLE, 1, 200), (CARTPOLE, 3, 50), (GO1, 1, 60), (GO1, 3, 50), (LIFT, 1, 64), (LIFT, 3, 32)),
        *((G1, 1, 60), (ROUGH_GO1, 2, 33)),
    ],
)
def test_human_is_bitwise_mjlabs_own_environment_alone_and_among_others(name, groups, steps, short_episodes):
    from reference import Reference

    size = 2 if name == ROUGH_GO1 else 4  # its terrain is slow with Warp on a CPU
    driven = Driven(name, size, groups, backend="warp")
    facts = facts_of(f"mjlab:{name}")
    reference = Reference(facts.source.env_cfg(), size)
    own = reference.reset()
    widths = facts.own_widths
    buffers = {"actor": "obs_buf", "critic": "critic_buf"}
    for k, action in enumerate(actions(size, driven.task.num_dofs, steps)):
        own, reward, terminated, time_outs = reference.step(action, k)
        results = driven.step(action)
        for group in range(groups):
            mine = driven.of_group(results, group)
            assert torch.equal(mine["reward_buf"], reward), (k, group)
            assert torch.equal(mine["reset_buf"], terminated) and torch.equal(mine["time_outs"], time_outs), (k, group)
            for kind, x in own.items():
                assert torch.equal(mine[buffers[kind]][:, : widths[kind]], x), (k, group, kind)
    assert reference.resets >= size


def last_rewards(env):
    """What some packages' critics read: the last step's terms, and here the weights, too."""
    if not hasattr(env, "reward_manager"):  # while mjlab constructs the observations
        return torch.zeros(env.num_envs, 1 + len(env.cfg.rewards))
    manager = env.reward_manager
    assert manager._term_names == manager.active_terms == list(env.cfg.rewards)
    weights = torch.full((env.num_envs, 1), sum(cfg.weight for cfg in manager._term_cfgs))
    return torch.cat([manager._step_reward, weights], dim=1)


def leans(env):
    return env.action_manager.action.sum(dim=1)


@pytest.fixture(scope="module")
def reads_rewards():
    """Registers a task whose critic reads the reward manager."""
    from mjlab.managers.observation_manager import ObservationTermCfg
    from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, register_mjlab_task

    cfg = load_env_cfg(CARTPOLE)
    cfg.observations["critic"].terms["last_rewards"] = ObservationTermCfg(func=last_rewards)
    cfg.rewards["leans"] = replace(cfg.rewards["smooth_reward"], func=leans, weight=0.0, params={})
    register_mjlab_task("Reads-Rewards", cfg, cfg, load_rl_cfg(CARTPOLE))
    return "Reads-Rewards"


@pytest.mark.parametrize("scaled", [True, False])
def test_the_reward_manager_that_a_groups_code_reads_is_bitwise_mjlabs(reads_rewards, scaled, monkeypatch):
    from reference import Reference

    from envcoder_bench.sources.term_tasks.patches import patched

    registered = source.Source.env_cfg

    def env_cfg(self):
        cfg = registered(self)
        cfg.scale_rewards_by_dt, cfg.episode_length_s = scaled, 0.3
        return cfg

    monkeypatch.setattr(source.Source, "env_cfg", env_cfg)
    patches = [
        {},
        {"rewards": {"smooth_reward": 2.5, "leans": -0.3}},
        {
            "observations": {"actor": {"pole_vel": None}},
            "rewards": {"smooth_reward": 2.5, "leans": -0.3},
        },  # shares a block
        {"rewards": {"smooth_reward": None}},
        {"rewards": {"more": leans}},
    ]
    driven = Driven(reads_rewards, 4, len(patches), backend="warp", patches=patches)
    facts = facts_of(f"mjlab:{reads_rewards}")
    cfgs = patched(facts.dialect, facts.env_cfg(), patches, facts.actor)
    references = [Reference(copy.deepcopy(cfg), 4) for cfg in cfgs]
    for reference in references:
        reference.reset()
    for k, action in enumerate(actions(4, 1, 20)):
        results = driven.step(action)
        for group, reference in enumerate(references):
            critic = reference.step(action, k)[0]["critic"]
            assert torch.equal(driven.of_group(results, group)["critic_buf"][:, : critic.shape[1]], critic), (k, group)
    assert references[0].resets and len(driven.task.blocks) == 4


def test_a_candidates_term_reads_no_reward_manager_that_others_may_share(tmp_path):
    text = "def f(env, env_ids):\n    return env.reward_manager.{}\nevents = {{'f': f}}\n"
    for read in ("_step_reward", "_term_cfgs", "active_terms", "get_term_cfg('smooth_reward')"):
        with pytest.raises(CandidateError, match=r"env\.reward_manager is there for the task's own code"):
            load(tmp_path, text.format(read))


# isolation

MORE = {"rewards": {"mine": lambda env: env.action_manager.action.square().sum(dim=1)}}


@pytest.mark.parametrize("name", [CARTPOLE, GO1, G1, LIFT, ROUGH_GO1])
def test_alone_as_among_others_with_other_terms_commands_and_events(name):
    cfg = facts_of(f"mjlab:{name}").source.env_cfg()
    weights = {"rewards": {name: 3.0 * term.weight for name, term in cfg.rewards.items()}}
    event = next(name for name, term in cfg.events.items() if term.mode == "reset")
    others = [{"events": {event: None}}, weights, MORE]
    size = 5
    alone, among = Driven(name, size, limit=15), Driven(name, size, 5, patches=[{}, *others, {}], limit=15)
    for k, action in enumerate(actions(size, alone.task.num_dofs, 40)):
        expected, results = alone.step(action), among.step(action)
        for group in (0, 4):
            for key, x in among.of_group(results, group).items():
                assert torch.equal(x, expected[key]), (k, group, key)
    weighted, more = (among.of_group(results, group)["reward_buf"] for group in (2, 3))
    if name != LIFT:  # whose curriculum sets a weight, the candidate's included
        assert torch.allclose(weighted, 3.0 * expected["reward_buf"], 1e-4, 1e-6)
    assert not torch.equal(more, expected["reward_buf"])


def test_a_reset_of_a_neighbour_writes_no_commands_of_a_group():
    driven = Driven(CARTPOLE, 2, 2)
    world, ctrl = driven.task.world, driven.task.world.sim.data.ctrl
    for of_neighbour, written in ((True, [False, False, True, True]), (False, [True, True, False, False])):
        ctrl[:] = 7.0  # as an actuator whose torque follows from the state computes another one after the step
        mask = torch.tensor([False, not of_neighbour, of_neighbour, False])
        world.write_first_commands(mask)
        assert (ctrl[:, 0] != 7.0).tolist() == written


def test_lanes_of_all_groups_share_terrain_curricula_move_them_and_evaluations_are_spread_over_all_levels():
    size = 14
    driven = Driven(ROUGH_GO1, size, 2, patches=[{}, MORE])
    terrain, everyone = driven.task.world.scene.terrain, torch.ones(2 * size, dtype=torch.bool)
    types, first = terrain.terrain_types.clone(), terrain.terrain_levels.clone()
    assert set(types.tolist()) == set(range(7)) and first.max() <= 5 and len(set(first.tolist())) > 3

    def after_an_episode():
        for action in actions(size, 12, 3):
            driven.step(action)
        driven._begin(everyone)
        levels = terrain.terrain_levels
        assert torch.equal(levels[:size], levels[size:]) and torch.equal(types[:size], types[size:])
        assert torch.equal(terrain.env_origins, terrain.terrain_origins[levels, types])
        return levels.clone()

    lower = after_an_episode()
    assert (lower <= first).all() and (lower < first).any()  # nobody walked as far as its command
    for step, begins in ((EVALUATION_STEP, None), (0, first)):
        driven.steps = driven.task.step_count = step
        driven.task.restart()
        levels = terrain.terrain_levels.clone()
        driven._begin(everyone)
        if begins is None:
            assert levels.min() == 0 and levels.max() == 9 and len(set(levels.tolist())) == 10
            assert torch.equal(after_an_episode(), levels)
        else:
            assert torch.equal(levels, first) and torch.equal(after_an_episode(), lower)


def test_one_observation_patch_changes_no_other_groups_draws_and_each_group_draws_with_its_seed():
    size, seeds = 4, (3, 3, 8)
    patch = {"observations": {"actor": {"command": None}}}
    among = Driven(GO1, size, 3, patches=[{}, patch, {}], seeds=seeds)
    alone = [Driven(GO1, size, seeds=(seed,)) for seed in (3, 8)]
    for action in actions(size, 12, 6):
        expected, other, results = *(one.step(action) for one in alone), among.step(action)
    for group, x in ((0, expected), (2, other)):
        assert torch.equal(among.of_group(results, group)["obs_buf"], x["obs_buf"])
    width = facts_of(f"mjlab:{GO1}").own_widths["actor"]
    patched = among.of_group(results, 1)["obs_buf"]
    # the command is the last term, so that those before it are unchanged, noise included
    assert torch.equal(patched[:, : width - 3], expected["obs_buf"][:, : width - 3])
    assert not patched[:, width - 3 :].any() and not torch.equal(expected["obs_buf"], other["obs_buf"])


def test_a_registered_term_that_is_not_finite_is_0_as_in_mjlab():
    bad = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.5])

    def registered(env):
        return bad.repeat(env.num_envs // 4)

    driven = Driven(CARTPOLE, 4, 2, patches=[{"rewards": {"bad": registered, "smooth_reward": None}}, {}])
    results = driven.of_group(driven.step(torch.zeros(4, 1)), 0)
    expected = torch.tensor([0.0, 0.0, 0.0, 0.5 * driven.task.dt])
    assert torch.equal(results["reward_buf"], expected) and torch.equal(results["reward_terms"][:, 0], expected)
    assert not driven.task.faults


# checkpoints


@pytest.mark.parametrize("name", [CARTPOLE, GO1])
@pytest.mark.parametrize("backend", ["mujoco", "warp"])
def test_a_restored_task_continues_bitwise(name, backend):
    size = 3
    history = {"observations": {"actor": {"history_length": 2}}, **MORE}
    first, second = (Driven(name, size, 2, backend, [{}, history], 9, begin=begins) for begins in (True, False))
    sequence = actions(size, first.task.num_dofs, 30)
    for action in sequence[:14]:
        first.step(action)
    second.task.set_state(first.task.get_state())
    second.steps = first.steps
    for action in sequence[14:]:
        one, other = first.step(action), second.step(action)
        assert all(torch.equal(one[key], other[key]) for key in one)


# candidates


def load(tmp_path, text):
    complete = find_spec(f"mjlab:{CARTPOLE}").sections.complete
    return load_candidate("mine", text, tmp_path / "mine.py", complete=complete)


HEAD = "from mjlab.envs import mdp\n\n\ndef mine(env):\n    return {}\n\n\n"


CURRICULUM = """from mjlab.envs import mdp

stages = [{"step": 0, "weight": 0.5}]
params = {"reward_name": "smooth_reward", "stages": stages}
curriculum = {"later": {"func": mdp.reward_curriculum, "params": params}}
"""


@pytest.mark.parametrize(
    "text, line, message",
    [
        ('rewards = {\n    "smoth_reward": 1.0,\n}\n', 2, "rewards has no term 'smoth_reward'"),
        (HEAD.format("env.x") + 'rewards = {"mine": mine}\n', 5, "the term 'mine' raised AttributeError"),
        (HEAD.format("env.action_manager.action") + 'rewards = {"mine": mine}\n', 8, r"'mine' returns shape \(11, 1\)"),
        (HEAD.format("1") + 'terminations = {"mine": mine}\n', 8, "the term 'mine' returns int"),
        (
            "rewards = {}\n\n\ndef compute_reward(score):\n    return score\n",
            1,
            "compute_reward replaces the terms of rewards: read reward_buf",
        ),
        (HEAD.format("torch.zeros(2)") + 'rewards = {"mine": mine}\n', 8, r"'mine' returns shape \(2,\)"),
        (HEAD.format("torch.zeros(3)") + 'observations = {"mine": mine}\n', 8, r"'mine' returns shape \(3,\)"),
        ('rewards = {"smooth_reward": {"params": {"x": 1}}}\n', 1, "the term 'smooth_reward' raised TypeError"),
        ('reward = {"smooth_reward": 1.0}\n', None, r"it has reward \(line 1\) \(did you mean rewards\?\)"),
        ("def compute_goal(score):\n    return {}\n\n\nrewards = 3\n", 5, "rewards must be a dict"),
        (
            "def mine(env):\n    assert False\n\n\nrewards = {'mine': mine}\n",
            2,
            "'mine' raised AssertionError: assert False",
        ),
        (
            "def mine(env):\n    raise SystemExit\n\n\nobservations = {'mine': mine}\n",
            2,
            "raised SystemExit",
        ),
        ("metrics = {'x': None}\n", 1, "metrics are the task's: a candidate patches rewards"),
        (
            "\nobservations = {'actor': {'concatenate_terms': False}}\n",
            2,
            r"the observations of the actor \(actor\) must be one row of numbers",
        ),
        (CURRICULUM + "rewards = {'smooth_reward': None}\n", 6, "reads the term 'smooth_reward' of rewards"),
    ],
)
def test_what_is_wrong_has_its_place(tmp_path, text, line, message):
    with pytest.raises(CandidateError, match=message) as error:
        load(tmp_path, text)
    assert error.value.fault.line == line and error.value.fault.file == str(tmp_path / "mine.py")


@pytest.mark.parametrize("kind", ["actor", "critic"])
def test_observations_without_terms_are_named(kind):
    facts = facts_of(f"mjlab:{CARTPOLE}")
    terms = facts.source.env_cfg().observations[kind].terms
    with pytest.raises(PatchError, match=f"the observations '{kind}' of the {kind} have no term"):
        find_spec(facts.source.address).sections.tried({"observations": {kind: dict.fromkeys(terms)}})


def test_a_candidates_curriculum_sets_the_numbers_that_it_patches_and_the_registered_one_does_not():
    from mjlab.envs import mdp

    def mine(env, k=1.0):
        return torch.full((env.num_envs,), k)

    def ramp(name):
        params = {"reward_name": name, "stages": [{"step": 0, "weight": 0.1}, {"step": 9999, "weight": 1.0}]}
        return {"later": {"func": mdp.reward_curriculum, "params": params}}

    cartpole, lift = (find_spec(f"mjlab:{name}").sections for name in (CARTPOLE, LIFT))
    cartpole.tried({"rewards": {"mine": {"func": mine, "weight": 1.0}}, "curriculum": ramp("mine")})
    cartpole.tried({"rewards": {"smooth_reward": 3.0}, "curriculum": ramp("smooth_reward")})
    lift.tried({"rewards": {"joint_vel_hinge": {"params": {"max_vel": 0.25}}}})  # which its curriculum leaves
    lift.tried({"rewards": {"joint_vel_hinge": -3.0}, "curriculum": {"joint_vel_hinge_weight": None}})
    for more in ({}, {"curriculum": ramp("lift")}):
        with pytest.raises(PatchError, match=r"curriculum sets the numbers of rewards\['joint_vel_hinge'\]"):
            lift.tried({"rewards": {"joint_vel_hinge": -3.0}, **more})


def test_the_candidate_of_the_page_can_be_used():
    page = Path(__file__).parents[3] / "docs" / "mjlab.md"
    text, _ = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    candidate = load_candidate("mine", text, "mine.py", complete=find_spec(f"mjlab:{GO1}").sections.complete)
    widths = facts_of(f"mjlab:{GO1}").own_widths["actor"]
    obs = candidate.functions["compute_observation"].call(torch.zeros(2, widths + 128))
    assert obs.shape == (2, widths - 3 + 2 * 12) and set(sections_of(candidate.definitions)) <= set(SECTIONS)


def test_first_episodes_of_a_training_begin_at_random_lengths_and_of_an_evaluation_at_0():
    task = Driven(CARTPOLE, 8, 2).task
    task.attach(task._groups)
    task.step_count = 0
    task.prepare_reset(torch.ones(16, dtype=torch.bool))
    lengths = task.first_progress.clone()
    assert len(set(lengths.tolist())) > 4 and torch.equal(lengths[:8], lengths[8:])
    assert torch.equal(task.world.episode_length_buf, lengths)
    for step_count, begins in ((5, True), (EVALUATION_STEP, False)):  # after a rung of a race, and in an evaluation
        task.attach(task._groups)
        task.step_count = step_count
        task.prepare_reset(torch.ones(16, dtype=torch.bool))
        assert bool(task.first_progress.any()) == begins == bool(task.world.episode_length_buf.any())
        assert task.world.steps == (step_count if begins else 0) and not torch.equal(task.first_progress, lengths)


def test_a_candidates_functions_read_its_own_terms(tmp_path):
    text = HEAD.format("env.action_manager.action[:, 0].abs()") + (
        'rewards = {"mine": {"func": mine, "weight": -0.5}}\n'
        'observations = {"last": mdp.last_action, "cart_vel": {"history_length": 3}}\n'
    )
    candidate = load(tmp_path, text)
    state = {"reward_buf": torch.ones(2), "reward_terms": torch.arange(8.0).view(2, 4), "obs_buf": torch.zeros(2, 40)}
    _, components = candidate.functions["compute_reward"].call(state["reward_buf"], state["reward_terms"])
    assert list(components) == ["smooth_reward", "mine"] and components["mine"].tolist() == [1.0, 5.0]
    assert candidate.functions["compute_observation"].call(state["obs_buf"]).shape == (2, 5 + 2 + 1)
    assert set(sections_of(candidate.definitions)) == {"rewards", "observations"}


def untrusted(text):
    """The candidate that the trainer makes of a file's dicts, as the jail has read them."""
    complete = find_spec(f"mjlab:{CARTPOLE}").sections.complete
    candidate = Candidate("mine", "mine.py", text, {}, dicts=read_dicts(text, "mine.py"))
    return with_dicts(candidate, complete, 0)


def test_untrusted_dicts_are_loaded_without_running_the_file():
    text = 'rewards = {"smooth_reward": 0.5}\nobservations = {"actor": {"cart_vel": None}}\nraise SystemExit\n'
    assert untrusted(text).functions["compute_observation"].call(torch.zeros(2, 40)).shape == (2, 4)
    both = 'rewards = {"smooth_reward": 0.5}\n\n\ndef compute_reward(reward_buf):\n    return 2.0 * reward_buf\n'
    assert sections_of(untrusted(both).definitions) == {"rewards": {"smooth_reward": 0.5}}
    for wrong, message in ((both.replace("buf", "sum"), "read reward_buf"), (text.replace("0.5", "f"), "a number")):
        with pytest.raises(CandidateError, match=message):
            untrusted(wrong)


@pytest.mark.parametrize(
    "section, term, changes",
    [
        ("rewards", "smooth_reward", {"__class__": 1}),
        ("rewards", "smooth_reward", {"__class__": {"build": None}}),
        ("rewards", "smooth_reward", {"func": {"__globals__": {"torch": None}}}),
        ("rewards", "smooth_reward", {"func": {"__call__": None}}),
        ("rewards", "smooth_reward", {"__dict__": {"weight": 2.0}}),
        ("rewards", "smooth_reward", {"params": None, "func": None}),
        ("observations", "actor", {"__class__": {"terms": None}}),
        ("observations", "actor", {"terms": None}),
        ("observations", "actor", {"cart_pos": {"func": {"__code__": None}}}),
        ("observations", "actor", {"cart_pos": {"__dataclass_fields__": {"func": None}}}),
        ("events", "reset_slider", {"params": {"asset_cfg": {"__class__": {"resolve": None}}}}),
    ],
)
def test_a_dict_of_numbers_changes_no_class_and_no_object_of_others(section, term, changes):
    from mjlab.managers import event_manager, observation_manager, reward_manager

    base = facts_of(f"mjlab:{CARTPOLE}").source.env_cfg()
    assert term in getattr(base, section)
    before = copy.deepcopy(base)
    classes = [x for one in (event_manager, observation_manager, reward_manager) for x in vars(one).values()]
    classes = [(x, dict(vars(x))) for x in classes if isinstance(x, type)]
    good = 'rewards = {"smooth_reward": {"weight": 0.5}}\n'
    untrusted(good)
    with pytest.raises(CandidateError):
        untrusted(f"{section} = " + repr({term: changes}) + "\n")
    assert all(vars(one) == content for one, content in classes)
    assert repr(facts_of(f"mjlab:{CARTPOLE}").source.env_cfg()) == repr(before) == repr(base)
    assert sections_of(untrusted(good).definitions) == {"rewards": {"smooth_reward": {"weight": 0.5}}}


def test_terms_of_a_dict_are_varied():
    spec, text = resolve(f"mjlab:{CARTPOLE}"), 'rewards = {"smooth_reward": 2.0, "mine": mine}\n'
    text = HEAD.format("env.action_manager.action[:, 0].abs()") + text
    variants = with_variants(spec, [CandidateSource("mine", "mine.py", text)], Asked(terms=True))[1:]
    names = [f"mine.{term}_x{factor}" for term in ("smooth_reward", "mine") for factor in ("0", "0.5", "2")]
    assert [one.name for one in variants] == names
    reward = prepare_one(spec, variants[3], 0).shaping.functions["reward"].call
    state = {"reward_buf": torch.full((2,), 5.0), "reward_terms": torch.tensor([[3.0, 2.0], [3.0, 2.0]])}
    total, terms = reward(state, torch.zeros(2, 1))
    assert total.tolist() == [3.0, 3.0] and terms["mine"].tolist() == [0.0, 0.0]


def test_prompts_and_evolution_are_in_the_words_of_the_task():
    spec = resolve(f"mjlab:{GO1}", ["untrusted=true"])
    system = system_prompt(load_templates(), spec, "walk", fitness_meaning(spec), None)
    for words in ("`robot.joint_pos`", "`command.twist`", "FR_hip_joint", "Quaternions are wxyz", '"upright": 1.0',
                  "`pose`: weight 1.0, std_standing", "`fell_over`: limit_angle 1.22", "times 0.02"):  # fmt: skip
        assert words in system, words
    assert not re.search(r"`compute_(torque|goal|initial_state|dof_target)|dof_pos`", system)
    sources = {name: Attempt(name, 0, spec.task.baseline_path(name).read_text()) for name in ("human", "unshaped")}
    state = task_contract(spec.task, spec.config.task).state
    proposals = EvolveProposer(["compute_reward"], state=state).propose(Archive([], sources), 1, 40)
    changed = [load_candidate(p.name, p.source, "p.py", complete=spec.task.sections.complete) for p in proposals]
    sections = [sections_of(candidate.definitions) for candidate in changed]
    assert len(changed) == 40 and sum(dicts != sections[0] for dicts in sections) > 20
    assert any("term(state_dict)" in p.source for p in proposals)


@pytest.mark.parametrize("section", ["rewards", "events", "observations"])
def test_a_fault_of_a_term_stops_its_group_alone(section):
    from mjlab.managers.event_manager import EventTermCfg
    from mjlab.managers.observation_manager import ObservationTermCfg

    calls = []

    def late(env, env_ids=None):
        calls.append(1)
        if len(calls) > 5:
            raise RuntimeError("too late")
        return torch.zeros(env.num_envs) if section == "rewards" else torch.zeros(env.num_envs, 1)

    late.__module__ = "envcoder_candidate_0_late"
    terms = {
        "rewards": late,
        "events": EventTermCfg(func=late, mode="step"),
        "observations": ObservationTermCfg(func=late),
    }
    driven = Driven(CARTPOLE, 3, 3, patches=[{}, {section: {"late": terms[section]}}, {}])
    alone = Driven(CARTPOLE, 3)
    for action in actions(3, 1, 9):
        results, expected = driven.step(action), alone.step(action)
    assert list(driven.task.faults) == [1] and "raised RuntimeError: too late" in str(driven.task.faults[1])
    for group in (0, 2):
        for key in ("reward_buf", "obs_buf"):
            assert torch.equal(driven.of_group(results, group)[key], expected[key])


# tasks


@dataclass
class Rsi:
    sampling_mode: str


@pytest.fixture(scope="module")
def swings(tmp_path_factory):
    """Registers tracking of a motion file, with each way to begin episodes."""
    from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, register_mjlab_task

    frames, joints, bodies = 40, 29, 30
    angles = 0.2 * np.sin(np.linspace(0.0, 6.0, frames))[:, None].repeat(joints, 1)
    fields = {"pos_w": (0.0, 0.0, 0.78), "quat_w": (1.0, 0.0, 0.0, 0.0), "lin_vel_w": (0, 0, 0), "ang_vel_w": (0, 0, 0)}
    arrays = {f"body_{name}": np.broadcast_to(x, (frames, bodies, len(x))) for name, x in fields.items()}
    path = tmp_path_factory.mktemp("motion") / "swing.npz"
    np.savez(path, joint_pos=angles, joint_vel=np.gradient(angles, 0.02, axis=0), **arrays)
    for mode in ("uniform", "adaptive"):
        cfg = load_env_cfg("Mjlab-Tracking-Flat-Unitree-G1")
        cfg.commands["motion"].motion_file, cfg.commands["motion"].sampling_mode = str(path), mode
        register_mjlab_task(f"Swing-{mode}", cfg, cfg, load_rl_cfg("Mjlab-Tracking-Flat-Unitree-G1"))

    # a package's command may have a config of its own for that, and not read the one of its base class
    for name, mode in (("inside", "adaptive"), ("inherited", "uniform")):
        inside = copy.deepcopy(cfg)
        inside.commands["motion"].rsi = Rsi(mode)
        register_mjlab_task(f"Swing-{name}", inside, inside, load_rl_cfg("Mjlab-Tracking-Flat-Unitree-G1"))


def test_tracking_of_a_motion_that_wraps_around_is_isolated(swings):
    size = 16  # torch's functions round the last rows of other numbers of rows in another way
    driven = Driven("Swing-uniform", size, 3, patches=[{}, {"events": {"push_robot": None}}, {}], limit=9)
    for k, action in enumerate(actions(size, driven.task.num_dofs, 14)):
        results = driven.step(action)
        for key, x in driven.of_group(results, 2).items():
            assert torch.equal(x, driven.of_group(results, 0)[key]), (k, key)
    frames = driven.task.blocks[0].command_manager.get_term("motion").time_steps
    assert 0 <= int(frames.min()) < int(frames.max()) < 40


@pytest.mark.parametrize(
    "task, message",
    [
        ("mjlab:Mjlab-Cartpole-Balanc", "did you mean Mjlab-Cartpole-Balance"),
        ("mjlab:mjlab-cartpole-balance", r"did you mean Mjlab-Cartpole-Balance\?"),
        ("mjlab:Mjlab-Lift-Cube-Yam-Rgb", "camera sensor 'camera_d405'"),
        ("mjlab:Mjlab-Tracking-Flat-Unitree-G1", "the command 'motion' has no motion file"),
        ("mjlab:Swing-adaptive", r"\(sampling_mode\): .*register the task with sampling_mode 'uniform'"),
        ("mjlab:Swing-inside", r"the command 'motion' samples .* \(rsi.sampling_mode\): .* sampling_mode 'uniform'"),
        ("mjlab:no_such_package:Task", "no_such_package cannot be imported"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(task, message, swings):
    with pytest.raises(ValueError, match=message):
        find_spec(task)


def test_an_inherited_way_to_sample_that_is_not_read_is_not_refused(swings):
    cfg = source.Source("mjlab:Swing-inherited", "Swing-inherited").env_cfg()
    assert cfg.commands["motion"].sampling_mode == "adaptive" and source.shared_by_groups(cfg) is None


def test_a_candidate_may_not_sample_by_the_failures_of_others(swings):
    sections = find_spec("mjlab:Swing-uniform").sections
    with pytest.raises(
        PatchError, match=r"commands\['motion'\] samples by the failures .* take sampling_mode 'uniform'"
    ):
        sections.complete({"commands": {"motion": {"sampling_mode": "adaptive"}}}, "")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package whose ``tasks`` registers variants of Cartpole, and some that cannot be imported; its folder."""
    folder = tmp_path_factory.mktemp("packages")
    files = {
        "swinging/__init__.py": "",
        "swinging/tasks.py": PACKAGE,
        "older.py": "import mjlab.managers.manager_term_config",
        "lacking.py": "import torch\nimport no_such_thing",
        "chained.py": "raise ImportError('install it') from RuntimeError('a cause that nothing has raised')",
        "unclosed.py": "import torch\nx = (\n",
        "other_library.py": "from numpy import no_such_name",
        "old_call.py": "from mjlab.managers.reward_manager import RewardTermCfg\nRewardTermCfg(no_such=1)",
        "half/__init__.py": HALF,
        "untrained.py": HALF.replace("Half", "Untrained").replace("cfg, rl_cfg)", "cfg, None)"),
        "half/tasks.py": "import no_such_thing",
    }
    # checkouts: with a version of mjlab that they ask for, and with an entry point
    broken = "from mjlab.managers.reward_manager import RewardTermCfg\nRewardTermCfg(no_such=1)"
    for name, asked in (("pinned", "mjlab==1.2.0"), ("served", "mjlab[cu128]>=1.2")):
        files[f"{name}-repo/pyproject.toml"] = f"[project]\ndependencies = ['numpy', \"{asked}\"]\n"
        files[f"{name}-repo/src/{name}/__init__.py"] = broken
    files["pointed-repo/pyproject.toml"] = "[project.entry-points.'mjlab.tasks']\npointed = 'pointed.registered'\n"
    files["pointed-repo/src/pointed/__init__.py"] = ""
    files["pointed-repo/src/pointed/registered.py"] = HALF.replace("Half", "Pointed")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


HALF = """from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, register_mjlab_task

cfg, rl_cfg = load_env_cfg("Mjlab-Cartpole-Balance"), load_rl_cfg("Mjlab-Cartpole-Balance")
register_mjlab_task("Half-Task", cfg, cfg, rl_cfg)
"""

PACKAGE = """import torch
from mjlab.managers.curriculum_manager import CurriculumTermCfg
from mjlab.managers.observation_manager import ObservationGroupCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.envs import mdp
from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, register_mjlab_task


class Warps:
    def __init__(self, cfg, env):
        env.sim.wp_device

    def __call__(self, env):
        return torch.zeros(env.num_envs, dtype=torch.bool)


def far(env, limit):
    return torch.full((env.num_envs,), 1.0) > limit


def variant(name, sets, end, curriculum=None):
    cfg, rl_cfg = load_env_cfg("Mjlab-Cartpole-Balance"), load_rl_cfg("Mjlab-Cartpole-Balance")
    terms = cfg.observations["actor"].terms
    names = list(terms)
    cfg.observations = {
        "policy": ObservationGroupCfg({name: terms[name] for name in names[:2]} | {"gone": None}),
        "speeds": ObservationGroupCfg({name: terms[name] for name in names[2:]}),
        "empty": ObservationGroupCfg({"gone": None}),
    }
    cfg.rewards["gone"] = cfg.events["gone"] = None
    cfg.terminations["end"] = end
    cfg.curriculum = curriculum or {}
    rl_cfg.obs_groups = sets
    register_mjlab_task(name, cfg, cfg, rl_cfg)


stages = [{"step": 3, "params": {"limit": 0.0}}]
curriculum = {"end": CurriculumTermCfg(mdp.termination_curriculum, {"termination_name": "end", "stages": stages})}
end = TerminationTermCfg(far, {"limit": 2.0})
variant("Two", {"actor": ("policy", "speeds"), "critic": ("speeds",)}, end, curriculum)
variant("Plain", {}, TerminationTermCfg(Warps))
variant("Lost", {"actor": ("policy",), "critic": ("privileged",)}, end)
variant("Stacked", {"actor": ("policy",)}, end)
cfg, rl_cfg = load_env_cfg("Stacked"), load_rl_cfg("Stacked")
cfg.observations["policy"].history_length, cfg.observations["policy"].flatten_history_dim = 3, False
register_mjlab_task("Stacked-History", cfg, cfg, rl_cfg)
rl_cfg.actor.class_name = "other:PointModel"
register_mjlab_task("Points", load_env_cfg("Stacked"), cfg, rl_cfg)
"""


def test_groups_of_observations_are_side_by_side_and_a_curriculum_changes_a_termination(package, monkeypatch):
    monkeypatch.chdir(package)
    spec = find_spec("mjlab:swinging:Two")  # registered by swinging.tasks
    assert facts_of(spec.address).own_widths == {"actor": 5, "critic": 2}
    driven = Driven("swinging:Two", 3, 2, patches=[{}, {"observations": {"cart_pos": None}}])
    for k in range(4):
        results = driven.step(torch.ones(3, 1))
        assert bool(results["reset_buf"].all()) == bool(results["reset_buf"].any()) == (k >= 3)  # by mjlab's steps
    one, other = (driven.of_group(results, group) for group in range(2))
    assert torch.equal(one["obs_buf"][:, 3:5], one["critic_buf"][:, :2]) and one["obs_buf"][:, :5].abs().min() > 0
    assert torch.equal(other["obs_buf"][:, :4], one["obs_buf"][:, 1:5])


def test_a_critic_like_the_actor_is_none_and_code_of_warp_takes_warp(package, monkeypatch):
    monkeypatch.chdir(package)
    facts = facts_of("mjlab:swinging:Plain")
    assert facts.own_widths == {"actor": 3} and facts.needs_warp and facts.obs_sets["actor"] == ("policy",)
    assert not facts_of(f"mjlab:{CARTPOLE}").needs_warp
    with pytest.raises(UserError, match="reads arrays of MuJoCo Warp"):
        find_spec("mjlab:swinging:Plain").make({"sim": {"backend": "mujoco"}}, 1, "mujoco_cpu", "cpu")


@pytest.mark.parametrize(
    "task, message",
    [
        (
            "swinging:Lost",
            r"the critic reads the observations 'privileged' \(rl_cfg.obs_groups\), and .* policy, speeds",
        ),
        ("older:Task", r"older.py:1: ModuleNotFoundError: .*manager_term_config'; is it for mjlab \d"),
        ("lacking:Task", r"lacking.py:2: ModuleNotFoundError: No module named 'no_such_thing'$"),
        ("chained:Task", r"chained.py:1: ImportError: install it$"),
        ("unclosed:Task", r"unclosed.py:2: SyntaxError: '\(' was never closed$"),
        ("other_library:Task", r"other_library.py:1: ImportError: cannot import name 'no_such_name'[^;]*$"),
        ("old_call:Task", r"old_call.py:2: TypeError: RewardTermCfg.* argument 'no_such'; is it for mjlab \d"),
        ("half:Half-Tas", r"did you mean Half-Task\?\); .*half/tasks.py:1: ModuleNotFoundError"),
        (
            "pinned:Task",
            r"pinned/__init__.py:2: TypeError: .*'no_such'; it asks for mjlab==1.2.0, and \d\S* is installed$",
        ),
        ("served:Task", r"served/__init__.py:2: TypeError: RewardTermCfg.* argument 'no_such'$"),
        ("swinging:Stacked-History", r"observations\['policy'\].flatten_history_dim is False, .* of the actor reads"),
        ("swinging:Points", r"swinging:Points: rl_cfg.actor.class_name: other:PointModel .* must be MLPModel"),
        ("untrained:Untrained-Task", "untrained:Untrained-Task has no settings of PPO: .* with an rl_cfg$"),
    ],
)
def test_what_a_package_lacks_has_its_line(task, message, package, monkeypatch):
    monkeypatch.chdir(package)
    for name in ("pinned", "served"):
        monkeypatch.syspath_prepend(package / f"{name}-repo" / "src")
    with pytest.raises(ValueError, match=message):
        find_spec(f"mjlab:{task}")


def test_entry_points_of_a_checkout_register_its_tasks(package, monkeypatch):
    monkeypatch.syspath_prepend(package / "pointed-repo" / "src")
    found = source.find_source("mjlab:pointed:Pointed-Task")
    assert (found.task_id, found.package) == ("Pointed-Task", "pointed")


def test_an_older_mjlab_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "mjlab" / "tasks").mkdir(parents=True)
    for path in ("mjlab/__init__.py", "mjlab/tasks/__init__.py"):
        (tmp_path / path).write_text("")
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "mjlab"}
    for name in kept:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^mjlab \S+ is too old: 1.2 or newer is needed"):
        source.list_tasks()
    for name in [name for name in sys.modules if name.split(".")[0] == "mjlab"]:
        del sys.modules[name]


def test_an_installed_package_that_is_broken_is_named_where_a_task_is_unknown(package, monkeypatch):
    point = EntryPoint("olds", "older", "mjlab.tasks")
    monkeypatch.setattr(source, "entry_points", lambda group: [point])
    monkeypatch.setattr(source, "_broken", {})
    monkeypatch.syspath_prepend(package)
    assert CARTPOLE in source.list_tasks()
    with pytest.raises(ValueError, match=r"the package olds cannot be loaded: .*older.py:1: ModuleNotFoundError"):
        find_spec("mjlab:Task")


def test_actions_read_the_commands_of_all_candidates_and_a_candidates_code_its_part_of_an_action():
    driven = Driven(GO1, 2, 2, patches=[{}, {"events": {"push_robot": None}}])
    world, blocks = driven.task.world, driven.task.blocks
    twist = world.env.command_manager.get_term("twist")  # an action may keep it
    assert isinstance(twist, type(blocks[0].command_manager.get_term("twist")))  # actions check it
    whole, part = (env.action_manager.get_term("joint_pos") for env in (world.env, blocks[1].env))
    driven.actions.copy_(torch.rand(4, 12))
    driven.task.step(torch.empty(0))
    for k, block in enumerate(blocks):
        block.command_manager.get_term("twist").vel_command_b.fill_(float(k))
    for command in (twist.vel_command_b, world.env.command_manager.get_command("twist")):
        assert command.shape == (4, 3) and command[:, 0].tolist() == [0.0, 0.0, 1.0, 1.0]
    with pytest.raises(UserError, match="sets 'vel_command_b' of the command 'twist'"):
        twist.vel_command_b = command
    assert isinstance(part, type(whole)) and torch.equal(part.raw_action, whole.raw_action[2:])
    assert torch.equal(part._processed_actions, whole._processed_actions[2:]) and part.num_envs == 2
    assert part._entity.data.joint_pos.shape[0] == 2
    part._raw_actions = torch.full((2, 12), 7.0)
    assert whole.raw_action[2:].eq(7.0).all() and not whole.raw_action[:2].eq(7.0).any()


def test_what_an_action_writes_into_a_command_is_lost_also_alone():
    for groups, patches in ((1, [{}]), (2, [{}, {"events": {"push_robot": None}}])):
        driven = Driven(GO1, 2, groups, patches=patches)
        commands, own = driven.task.world.commands, driven.task.blocks[0].command_manager.get_command("twist")
        for command in (commands.get_command("twist"), commands.get_term("twist").vel_command_b):
            command.fill_(7.0)
            assert not own.eq(7.0).any()


def test_of_an_action_its_own_attributes_are_read_and_indices_of_as_many_joints_as_environments_are_whole():
    driven = Driven(GO1, 6, 2, patches=[{}, {"events": {"push_robot": None}}])
    world, block = driven.task.world, driven.task.blocks[1]
    whole, part = (env.action_manager.get_term("joint_pos") for env in (world.env, block.env))
    assert world.num_envs == 12 == len(whole._target_ids) and torch.equal(part._target_ids, whole._target_ids)
    world.env.action_manager._terms["joint_pos"] = own = copy.copy(whole)
    own.__class__ = type("Gain", (type(whole),), {"gain": 1.0, "other": 2.0})
    own.gain = 3.0
    part = block.env.action_manager.get_term("joint_pos")
    assert (part.gain, part.other) == (3.0, 2.0) and part.raw_action.shape == (6, 12)


def test_a_command_that_an_action_reads_while_it_is_constructed_is_named():
    from mjlab.tasks.velocity.mdp import UniformVelocityCommand

    from envcoder_bench.sources.term_tasks.views import Commands

    cfgs = facts_of(f"mjlab:{GO1}").source.env_cfg().commands
    commands = Commands(cfgs)
    twist = commands.get_term("twist")
    assert isinstance(twist, UniformVelocityCommand) and not isinstance(twist, type(cfgs["twist"]))
    for read in (lambda: commands.get_command("twist"), lambda: twist.vel_command_b):
        with pytest.raises(UserError, match=r"reads the command 'twist' .*: read it in process_actions"):
            read()


def test_keys_of_the_state_are_those_that_are_described():
    spec = find_spec(f"mjlab:{GO1}")
    task = Driven(GO1, 2).task
    task.refresh_state()
    for key, x in task.state.items():
        assert tuple(x.shape[1:]) == facts_of(spec.address).fields[key].shape, key
    data = task.world.scene["robot"].data
    assert torch.equal(task.state["robot.projected_gravity_b"], data.projected_gravity_b)
    assert torch.equal(task.state["command.twist"], task.blocks[0].command_manager.get_command("twist"))


def test_standing_still_on_a_command_of_zero_tracks_it():
    task = Driven(GO1, 2).task
    block = task.blocks[0]
    block.command_manager.get_command("twist").zero_()
    score: Tensor = task._fitness(block.env, task.state["reward_buf"])
    assert bool((score > 0.8).all()) and bool((score <= 1.0).all())


def test_from_the_registry_to_a_ranking(tmp_path):
    (tmp_path / "weight.py").write_text('rewards = {"smooth_reward": 2.0}\n')
    (tmp_path / "plain.py").write_text(
        "def compute_reward(state_dict):\n    return torch.cos(state_dict['cartpole.joint_pos'][:, 1])\n"
    )
    (tmp_path / "wrong.py").write_text('rewards = {"smooth": 2.0}\n')
    address = f"mjlab:{CARTPOLE}"
    with pytest.raises(UserError, match="unknown key"):
        compose_config(address, ["task.sim.bakend=warp"])
    cfg = compose_config(address)
    assert cfg.task_title == address != cfg.task.name
    assert cfg.params["config"]["horizon_length"] == 32 and cfg.params["network"]["mlp"]["units"] == [64, 64]
    settings = {"num_envs_per_candidate": 8, "learning_iterations": 2}
    few = ["evaluation.num_envs=2", "evaluation.points=1", "evaluation.final_episodes=2"]
    result = evaluate(address, tmp_path, output_dir=tmp_path / "run", overrides=few, **settings)
    rows = {row.candidate: row for row in result.rows}
    assert rows["wrong"].error and "rewards has no term 'smooth'" in rows["wrong"].error
    assert all(0.0 <= rows[name].fitness <= 1.0 for name in ("weight", "plain", "human", "unshaped"))
