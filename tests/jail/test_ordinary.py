"""No false alarms: what people write passes the jail, and is the program that it is without one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from jail_fakes import NUM_ENVS, baseline_of, judged, make_task, state_of
from ordinary import ORDINARY

from envcoder_bench import stream
from envcoder_bench.config import project_folder
from envcoder_bench.preparation import baseline_sources
from envcoder_bench.shaping.assemble import assemble
from envcoder_bench.shaping.checking import check
from envcoder_bench.shaping.contract import Candidate
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.shaping.tracing.interpret import Interpreter
from envcoder_bench.shaping.tracing.trace import trace
from envcoder_bench.tasks.registry import task_names

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the jail needs Linux")
STAGES = {"compute_torque": "command", "compute_dof_target": "command"}


def shipped(task):
    files = sorted((project_folder("user_functions") / task).glob("*.py"))
    return {**{f.stem: f.read_text("utf-8") for f in files}, **{b.name: b.source for b in baseline_sources(task)}}


def files_of(task):
    return {**shipped(task), **{name: code for name, (own, code) in ORDINARY.items() if own == task}}


@pytest.fixture(scope="module")
def verdicts():
    return {task: judged(files_of(task), task=task) for task in task_names()}


NAMES = [(task, name) for task in task_names() for name in files_of(task)]


@pytest.mark.parametrize("task, name", NAMES)
def test_it_passes_and_is_the_same_program(verdicts, task, name):
    jailed, own = verdicts[task][name], make_task(task)
    assert isinstance(jailed, Candidate), str(jailed)
    state = state_of(own)
    free = load_candidate(name, files_of(task)[name], f"{name}.py")
    shaping = assemble(free, load_candidate("human", baseline_of(own), "human.py"))
    shaping, refused = trace(check(shaping, state, own.constants, own), state, own.constants, own)
    assert not [one for one in refused if one.function.file == f"{name}.py"]
    assert set(jailed.functions) == set(free.functions)
    given = {**state, "actions": 0.3 * torch.ones(NUM_ENVS, shaping.action_dim)}
    for type_, function in jailed.functions.items():
        here = shaping.programs[STAGES.get(type_, type_[len("compute_") :])]
        there = function.program
        assert {key: (len(x.nodes), x.kind) for key, x in here.outputs.items()} == {
            key: (len(x.nodes), x.kind) for key, x in there.outputs.items()
        }
        if here.nodes != there.nodes:  # TorchScript writes 1 - x as -x + 1
            assert "torch.jit.script" in files_of(task)[name]
        with stream.use(3, 5, 7):
            made = [Interpreter(program)(given, given["actions"]) for program in (here, there)]
        assert all(torch.equal(made[0][key], made[1][key]) for key in made[0])
        assert function.line == free.functions[type_].line


def test_reward_components_keep_their_names_and_order(verdicts):
    task = make_task()
    state = state_of(task)
    call = verdicts["Anymal"]["loops_over_legs"].functions["compute_reward"].call
    _, components = call({**state, "actions": torch.zeros(NUM_ENVS, 12)}, torch.zeros(NUM_ENVS, 12))
    assert list(components)[:3] == ["LF hip", "LF stretch", "LH hip"]
    assert torch.equal(components["LF hip"], -state["dof_pos"][:, 0].abs())


def test_there_are_enough_of_them():
    assert len(ORDINARY) >= 24 and len(NAMES) >= 24 + 30
    assert Path(project_folder("user_functions")).is_dir()
