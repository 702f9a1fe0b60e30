"""Ordinary files pass the jail, and their programs equal those of trusted files."""

import functools
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from jail_fakes import NUM_ENVS, baseline_of, judged, make_task, state_of

from envcoder_bench.compile.interpret import Interpreter
from envcoder_bench.compile.trace import Memo, trace
from envcoder_bench.core import stream
from envcoder_bench.core.folders import project_folder
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.shaping.checking import TrialState, check
from envcoder_bench.shaping.contract import Candidate, Fault, assemble
from envcoder_bench.shaping.kinds import SHAPER_TYPES
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.sources.registry import find_spec, task_names

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the jail needs Linux"),
]
TYPICAL = Path(__file__).parent / "typical"
# typical files that cannot be traced for one environment, and the remedy in the message
REFUSED = {
    "global_memory": "read actions and progress_buf of the state",
    "mutable_default_buffer": "read actions and progress_buf of the state",
    "lru_cached_constants": "compute constants at the top of the file",
    "nan_guard": "NaN stops a candidate without an assert",
    "early_asserts": "NaN stops a candidate without an assert",
    "item_logging": "reduce with dim=-1",
    "mask_assignment": r"torch\.where keeps one row for every environment",
}
STAGES = {"compute_torque": "command", "compute_dof_target": "command"}


def shipped(task):
    """The baselines, and the first two candidates; tests/tasks checks the others."""
    files = sorted((project_folder("user_functions") / task).glob("*.py"))[:2]
    return {
        **{f.stem: f.read_text("utf-8") for f in files},
        **{b.name: b.source for b in baseline_sources(find_spec(task))},
    }


def typical(task):
    """Files as language models write them, weighted towards harder idioms."""
    return {f.stem: f.read_text("utf-8") for f in sorted((TYPICAL / task).glob("*.py"))}


@functools.cache
def files_of(task):
    return {**shipped(task), **typical(task)}


@pytest.fixture(scope="module")
def verdicts():
    names = task_names()
    for task in names:
        make_task(task)
    with ThreadPoolExecutor(2) as pool:  # most of the time a jail is loading torch
        return dict(zip(names, pool.map(lambda task: judged(files_of(task), task=task), names)))


NAMES = [(task, name) for task in task_names() for name in ("human", *typical(task)) if name not in REFUSED]


@functools.cache
def setting(task):
    """Return state, baseline, trial state and memo for trusted files of a task."""
    own = make_task(task)
    state = state_of(own)
    return state, load_candidate("human", baseline_of(own), "human.py"), TrialState(state, own.constants, own), Memo()


@pytest.mark.parametrize("task, name", NAMES)
def test_jailed_program_equals_the_trusted_program(verdicts, task, name):
    jailed, own = verdicts[task][name], make_task(task)
    assert isinstance(jailed, Candidate), str(jailed)
    state, human, probe, memo = setting(task)
    free = load_candidate(name, files_of(task)[name], f"{name}.py")
    shaping = check(assemble(free, human), state, own.constants, own, probe)
    shaping, refused = trace(shaping, state, own.constants, own, memo)
    assert not [one for one in refused if one.function.file == f"{name}.py"]
    assert set(jailed.functions) == set(free.functions)
    given = {**state, "actions": 0.3 * torch.ones(NUM_ENVS, shaping.action_dim)}
    for type_, function in jailed.functions.items():
        here = shaping.programs[STAGES.get(type_, type_[len("compute_") :])]
        there = function.program
        assert {key: (len(x.nodes), x.kind) for key, x in here.outputs.items()} == {
            key: (len(x.nodes), x.kind) for key, x in there.outputs.items()
        }
        if here.nodes != there.nodes:  # TorchScript writes 1 - x as -x + 1; a set's order is each process' own
            assert "torch.jit.script" in files_of(task)[name] or "keys() -" in files_of(task)[name]
        with stream.use(3, 5, 7):
            made = [Interpreter(program)(given, given["actions"]) for program in (here, there)]
        assert all(torch.equal(made[0][key], made[1][key]) for key in made[0])
        assert function.line == free.functions[type_].line


def test_shipped_files_pass_the_jail(verdicts):
    refused = {name: str(x) for task in verdicts for name, x in verdicts[task].items() if not isinstance(x, Candidate)}
    assert set(refused) == set(REFUSED), refused


@pytest.mark.parametrize("name", REFUSED)
def test_untraceable_files_are_refused_with_a_remedy(verdicts, name):
    (verdict,) = [verdicts[task][name] for task in task_names() if name in typical(task)]
    assert isinstance(verdict, Fault) and verdict.line is not None
    assert re.search(f"untrusted code must be traceable: .*{REFUSED[name]}", verdict.explanation)


def test_reward_components_keep_their_names_and_order(verdicts):
    task = make_task()
    state = state_of(task)
    call = verdicts["Anymal"]["loops_over_legs"].functions["compute_reward"].call
    _, components = call({**state, "actions": torch.zeros(NUM_ENVS, 12)}, torch.zeros(NUM_ENVS, 12))
    assert list(components)[:3] == ["LF hip", "LF stretch", "LH hip"]
    assert torch.equal(components["LF hip"], -state["dof_pos"][:, 0].abs())


def test_typical_files_have_functions_of_all_kinds_and_are_those_of_the_documentation():
    codes = [code for task in task_names() for code in typical(task).values()]
    assert all(f"def {type_}(" in "\n".join(codes) for type_ in SHAPER_TYPES)
    page = (project_folder("user_functions").parent / "docs" / "jail.md").read_text(encoding="utf-8")
    assert f"Of {len(codes)} files" in page and f"{len(codes) - len(REFUSED)} pass" in page
