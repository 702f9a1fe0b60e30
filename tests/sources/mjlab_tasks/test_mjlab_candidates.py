"""With mjlab itself: candidates' terms and dicts, trusted and untrusted."""

import copy
import re
from pathlib import Path

import pytest
import torch
from driven import CARTPOLE, GO1, LIFT, Driven, actions

from envcoder_bench.core.noise import EVALUATION_STEP
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
from envcoder_bench.sources.mjlab_tasks.spec import facts_of
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.sources.term_tasks import SECTIONS
from envcoder_bench.sources.term_tasks.faults import PatchError
from envcoder_bench.tasks.contract import task_contract

pytest.importorskip("mjlab")
pytestmark = pytest.mark.slow  # constructing a scene takes a second


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


def test_a_candidates_term_reads_no_reward_manager_that_others_may_share(tmp_path):
    text = "def f(env, env_ids):\n    return env.reward_manager.{}\nevents = {{'f': f}}\n"
    for read in ("_step_reward", "_term_cfgs", "active_terms", "get_term_cfg('smooth_reward')"):
        with pytest.raises(CandidateError, match=r"env\.reward_manager is there for the task's own code"):
            load(tmp_path, text.format(read))


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
