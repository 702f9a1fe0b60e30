"""A candidate's stage is a function or a patch: both are taken from the candidate, or else from the baseline."""

from dataclasses import replace

import pytest
from shaping_fakes import BASELINE, FakeTask, Groups, load

from envcoder_bench.env.dispatch import Dispatcher
from envcoder_bench.shaping.contract import CandidateError, Patch, assemble, sections_of
from envcoder_bench.shaping.kinds import SECTION_TYPES
from envcoder_bench.shaping.loading import load_candidate

DICTS = """
rewards = {"up": 2.0}
curriculum = {}
commands = {"twist": None}
"""


def complete(module, source):
    """As a task that has one reward term: its function reads the term's result."""
    sections = {name: module[name] for name in SECTION_TYPES if name in module}
    return ({"compute_reward": lambda dof_pos: dof_pos[:, 0]} if sections else {}), sections


def patched(code, name="mine"):
    return load_candidate(name, code, f"{name}.py", complete=complete)


def test_dicts_are_patches_of_the_stages_whose_functions_they_replace():
    definitions = patched(DICTS).definitions
    assert list(definitions) == ["compute_reward", "compute_goal"]
    reward, goal = definitions.values()
    assert isinstance(reward, Patch) and reward.line == 2 and reward.sections == {"rewards": {"up": 2.0}}
    assert reward.function.type == "compute_reward" and reward.function.call is not None
    assert isinstance(goal, Patch) and goal.line == 3 and goal.function is None
    assert goal.sections == {"curriculum": {}, "commands": {"twist": None}}


def test_a_function_beside_a_dict_reads_the_results_of_the_patch():
    code = f"{DICTS}\n\ndef compute_reward(dof_vel):\n    return dof_vel[:, 1]\n"
    reward = patched(code).definitions["compute_reward"]
    assert reward.sections == {"rewards": {"up": 2.0}} and reward.function.parameters[0].name == "dof_vel"


@pytest.mark.parametrize(
    "types, expected",
    [
        (None, {"rewards", "curriculum", "commands"}),
        (["compute_reward"], {"rewards"}),
        (["compute_goal"], {"curriculum", "commands"}),
    ],
)
def test_patches_are_taken_as_functions_are(types, expected):
    goals = "def compute_goal(commands):\n    return {'commands': 0.0 * commands}\n"
    shaping = assemble(patched(DICTS), load(BASELINE + goals), types)
    assert set(sections_of(shaping.stages)) == expected
    assert ("goal" in shaping.functions) == (types == ["compute_reward"])  # that of the baseline


def test_a_baselines_patch_fills_in_and_a_candidates_function_replaces_it():
    baseline = patched(f"{BASELINE}\n{DICTS}".replace("def compute_reward", "def _unused"), "human")
    observes = load("def compute_observation(dof_pos):\n    return dof_pos\n")
    assert assemble(observes, baseline).stages["reward"] is baseline.definitions["compute_reward"]
    rewards = load("def compute_reward(dof_pos):\n    return dof_pos[:, 1]\n")
    assert set(sections_of(assemble(rewards, baseline).stages)) == {"curriculum", "commands"}


def test_a_file_whose_patches_are_of_other_kinds_defines_none_of_the_asked():
    with pytest.raises(CandidateError, match="defines none of the asked compute_terminal; it defines compute_reward"):
        assemble(patched(DICTS), load(BASELINE), ["compute_terminal"])


def test_other_functions_of_a_shaping_leave_its_patches():
    shaping = assemble(patched(DICTS), load(BASELINE))
    changed = shaping.with_functions({"reward": shaping.functions["observation"]})
    assert sections_of(changed.stages) == sections_of(shaping.stages)
    assert changed.functions == {"reward": shaping.functions["observation"]}


def test_a_task_receives_the_patches_of_its_groups_in_one_call(monkeypatch):
    received = []
    monkeypatch.setattr(FakeTask, "patched_stages", ("reward", "goal"), raising=False)
    monkeypatch.setattr(FakeTask, "patch", lambda task, patches: received.append(patches))
    groups = Groups([BASELINE, BASELINE])
    assert received == [[{}, {}]]
    shaping = assemble(patched(DICTS), load(BASELINE))
    groups.shapings[1] = replace(groups.shapings[1], stages=shaping.stages)
    groups.renew()
    assert received[1] == [{}, {"rewards": {"up": 2.0}, "curriculum": {}, "commands": {"twist": None}}]
    # a task without the stage
    monkeypatch.setattr(FakeTask, "patched_stages", ("reward",))
    with pytest.raises(ValueError, match=r"mine.py:3: \w+ takes no dicts for its goal"):
        groups.renew()
    assert isinstance(groups.dispatch, Dispatcher) and len(received) == 2
