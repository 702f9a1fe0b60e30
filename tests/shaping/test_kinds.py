"""The table of kinds: its columns, and their agreement with the documentation."""

import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from string import Template
from types import SimpleNamespace

import pytest
from shaping_fakes import BASELINE, FakeTask, load

from envcoder_bench.core.purposes import Purpose
from envcoder_bench.shaping import outputs
from envcoder_bench.shaping.contract import assemble
from envcoder_bench.shaping.faults import BadReturn
from envcoder_bench.shaping.kinds import (
    ACTION_TYPES,
    ALIASES,
    CALLED,
    CANDIDATE,
    INITIAL_STATE,
    INITIAL_STATE_KEYS,
    KINDS,
    RUN,
    SHAPER_TYPES,
    STAGES,
    TRAINING_ALONE,
    UNSHAPED,
    VALUE,
    of_stage,
)

DOCS = Path(__file__).parents[2] / "docs" / "candidates.md"


def test_random_purposes_are_unchanged():
    """A changed purpose changes the random numbers of every run, and checkpoints would not resume."""
    known = {
        **{"initial_state": 1, "goal": 2, "reward": 3, "observation": 4},
        **{"terminal": 5, "command": 6, "fitness": 8, "critic_observation": 12},
    }
    assert {stage: kind.purpose for stage, kind in STAGES.items()} == known
    others = {"ACTION": 0, "ISAAC_GYM_DRAW": 7, "ISAAC_GYM_RANDOMIZATION": 9, "TERRAIN_LEVEL": 10}
    others |= {"FIRST_PROGRESS": 11, "TERM_DRAW": 13, "REPLAY_SAMPLE": 14, "POLICY_SAMPLE": 15, "STRESS": 16}
    assert {purpose.name: purpose for purpose in Purpose if purpose not in known.values()} == others
    assert STAGES["command"].purpose == Purpose.COMMAND


def test_stages_have_distinct_random_purposes():
    purposes = [kind.purpose for kind in STAGES.values()]
    assert len(set(purposes)) == len(purposes) and all(isinstance(purpose, Purpose) for purpose in purposes)


def test_kinds_of_one_stage_have_equal_rules():
    own = ("name", "aliases", "returns", "effort")
    for kind in KINDS.values():
        of_first = asdict(STAGES[kind.stage])
        assert {key: x for key, x in asdict(kind).items() if key not in own and x != of_first[key]} == {}
    assert of_stage("command") == ACTION_TYPES == ("compute_torque", "compute_dof_target")


def test_stages_are_in_the_order_of_a_control_step():
    assert list(STAGES) == [
        "command", "reward", "terminal", "initial_state", "goal", "observation", "critic_observation", "fitness"
    ]  # fmt: skip
    for kind in KINDS.values():
        assert kind.called in CALLED and kind.judged_with in (CANDIDATE, UNSHAPED, RUN, TRAINING_ALONE)
        assert (kind.shape is None) == (kind.keys is not None) == (kind.rest is not None)
    assert sum(kind.components for kind in KINDS.values()) == 1


def test_every_kind_accepts_only_its_declared_results():
    task = FakeTask(4)
    for kind in KINDS.values():
        parts = kind.parts(task)
        rows = {key: task.state["dof_pos"].new_ones(4, *(max(x, 1) for x in part.shape)) for key, part in parts.items()}
        value = rows.get(VALUE, rows)
        made, components = outputs.returned(kind, value, parts, 4, False)
        assert made.keys() == parts.keys() and components == {}
        for wrong in (None, task.state["dof_pos"][:3], {}, {"dof_po": task.state["dof_pos"]}):
            with pytest.raises(BadReturn, match=r"^returned"):
                outputs.returned(kind, wrong, parts, 4, False)
        pair = (value, {"part": task.state["dof_pos"][:, 0]})
        if kind.components:
            assert list(outputs.returned(kind, pair, parts, 4, False)[1]) == ["part"]
        else:
            with pytest.raises(BadReturn, match="a tuple"):
                outputs.returned(kind, pair, parts, 4, False)


def test_initial_state_has_the_keys_of_the_default_state():
    task = FakeTask(4)
    del task.default_state["root_states"]  # of a robot whose base is fixed, so that nothing can set it
    assert list(KINDS[INITIAL_STATE].parts(task)) == list(KINDS[INITIAL_STATE].rest(task)) == ["dof_pos", "dof_vel"]
    assert "root_states" in task.state


def test_candidate_function_replaces_all_kinds_of_its_stage():
    baseline = load(f"{BASELINE}\ndef compute_torque(action):\n    return action\n", "human")
    shaping = assemble(load("def compute_dof_target(action):\n    return action\n"), baseline)
    assert shaping.functions["command"].type == "compute_dof_target"
    assert list(shaping.functions) == ["reward", "observation", "command", "terminal"]  # in the order of the table


@pytest.mark.slow
def test_kinds_table_is_importable_without_torch():
    code = "import sys; from envcoder_bench.shaping import kinds; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def documented() -> str:
    """The table of functions as docs/candidates.md has it."""
    objects = ("the task's objects",)
    default_state = dict.fromkeys((*INITIAL_STATE_KEYS, *objects))
    anywhere = SimpleNamespace(default_state=default_state, object_keys=objects, goal_keys=("the task's goals",))
    rows = ["| function | returns | called | if absent | in evaluations |", "|---|---|---|---|---|"]
    for name in SHAPER_TYPES:
        kind = KINDS[name]
        keys = ", ".join(
            f"`{key}`" if key.isidentifier() else key for key in (kind.keys(anywhere) if kind.keys else ())
        )
        returns = Template(kind.returns).substitute(joints="(n, num_dofs)", keys=keys)
        returns = re.sub(r"(\{[^}]*\}|\(n[^)]*\))", r"`\1`", returns)
        aliases = "".join(f", or `{alias}`" for alias in kind.aliases)
        absent = "" if kind.required else f", else {kind.absent}"
        cells = [f"`{kind.signature}`{aliases}", returns, kind.called, f"the baseline's{absent}", kind.judged_with]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def test_documentation_has_the_kinds_table():
    assert documented() in DOCS.read_text(encoding="utf-8"), f"docs/candidates.md needs this table:\n{documented()}"
    assert set(ALIASES.values()) <= set(KINDS)
