"""A check's result is loaded where an equal check has been made, and only there."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from shaping_fakes import FakeTask, load

from envcoder_bench.compile.cache import FunctionCache
from envcoder_bench.compile.trace import trace
from envcoder_bench.run.prepare import cached
from envcoder_bench.run.prepare.cached import CachedCheck
from envcoder_bench.shaping import checking
from envcoder_bench.shaping.contract import CandidateError, assemble
from envcoder_bench.tasks.contract import TaskContract, TaskSnapshot

CODE = """
def compute_reward(dof_pos, dof_vel_scale):
    near = -dof_pos.square().sum(dim=-1) * dof_vel_scale
    return near + 1.0, {"near": near}

def compute_observation(state_dict):
    return torch.cat((state_dict["dof_pos"], torch.rand_like(state_dict["dof_vel"])), dim=-1)

def compute_terminal(progress_buf):
    return progress_buf > 30
"""
TORQUE = "\nACTION_DIM = 2\ndef compute_torque(action):\n    return action[:, [0, 1, 1]]\n"
WARNING = "\nimport warnings\ndef warned():\n    warnings.warn('an own warning')\n    return 30\n"
ANY_WIDTH = "\ndef compute_torque(action):\n    return action.mean(dim=-1, keepdim=True).repeat(1, 3)\n"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVCODER_BENCH_CACHE", str(tmp_path))
    return tmp_path


def check_in_new_process(code=CODE, task=None, seed=0, texts=None):
    """The shaping as a new process would check it, and the functions that it called."""
    task, called = task or FakeTask(4), []
    snapshot = TaskSnapshot(TaskContract.of(task), task.state, task.constants, task.device, task.default_dof_target)
    cache = FunctionCache({"mine.py": code} if texts is None else texts, task.state, task.constants, seed)
    own = load(code)
    own = assemble(own, own)
    run = checking.TrialState._run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checking.TrialState, "_run", lambda *given: called.append(given[1].type) or run(*given))
        return CachedCheck(snapshot, cache)(own), called


def found(shaping):
    return {key: getattr(shaping, key) for key in cached.FOUND}


@pytest.mark.parametrize("code", [CODE, CODE + TORQUE])
def test_second_process_finds_the_same_and_calls_nothing(code):
    (first, called), (second, again) = check_in_new_process(code), check_in_new_process(code)
    assert {"compute_reward", "compute_observation", "compute_terminal"} <= {*called} and again == []
    assert found(second) == found(first) and found(first)["components"] == ("near",)
    assert found(first)["widths"] == {"observation": 6}


@pytest.mark.parametrize(
    "code, message",
    [
        (CODE + ANY_WIDTH, "compute_torque takes actions of any width"),
        (CODE.replace("progress_buf > 30", "~~(progress_buf > warned())") + WARNING, "an own warning"),
    ],
)
def test_warnings_are_repeated(code, message, monkeypatch):
    """``--check`` lists them for each candidate; else each is shown once, as Python does."""
    monkeypatch.setattr(cached, "_shown_warnings", set())
    for action, wanted in (("default", 1), ("default", 0), ("always", 1), ("always", 1)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)
            assert check_in_new_process(code)[1]
        assert sum(message in str(one.message) for one in caught) == wanted


def test_warnings_before_a_fault_are_given():
    code = CODE.replace("progress_buf > 30", "~~(progress_buf > warned()) + missing") + WARNING
    with pytest.warns(UserWarning, match="an own warning"), pytest.raises(CandidateError, match="missing"):
        check_in_new_process(code)


def test_programs_of_the_jail_are_checked_each_time():
    """They may have other components than the text."""
    task = FakeTask(4)
    snapshot = TaskSnapshot(TaskContract.of(task), task.state, task.constants, task.device, task.default_dof_target)
    cache = FunctionCache({"mine.py": CODE}, task.state, task.constants, 0)
    own = load(CODE)
    trusted = CachedCheck(snapshot, cache)(assemble(own, own))
    programs = trace(trusted, task.state, task.constants, task)[0].programs
    reward = replace(trusted.functions["reward"], program=programs["reward"], call=lambda *_: torch.zeros(4))
    jailed = trusted.with_functions({**trusted.functions, "reward": reward})
    assert found(CachedCheck(snapshot, cache)(jailed))["components"] == ()
    assert found(CachedCheck(snapshot, cache)(assemble(own, own))) == found(trusted)


def changed_state():
    task = FakeTask(4)
    task.state["dof_pos"][2, 1] += 1e-6
    return task


def changed_constant():
    task = FakeTask(4)
    task.constants["dof_vel_scale"] = torch.tensor(0.06)
    return task


@pytest.mark.parametrize(
    "change",
    [
        {"code": CODE.replace("1.0", "2.0")},
        {"seed": 1},
        {"task": changed_state()},
        {"task": changed_constant()},
        {"task": FakeTask(5)},
        {"task": FakeTask(4, default_action_dim=2)},
        {"texts": {}},
    ],
    ids=["text", "seed", "state", "constant", "environments", "action", "unknown file"],
)
def test_any_change_is_checked_again(change):
    check_in_new_process()
    assert check_in_new_process(**change)[1]


def test_faults_are_found_each_time():
    code = CODE.replace("dof_vel_scale\n", "missing\n", 1)
    messages = []
    for _ in range(2):
        with pytest.raises(CandidateError) as error:
            check_in_new_process(code)
        messages.append(str(error.value))
    assert messages[0] == messages[1] and "missing" in messages[0]


@pytest.mark.parametrize(
    "keeping",
    ["CALLS = []\ndef compute_terminal(progress_buf):\n    CALLS.append(1)\n    return progress_buf > len(CALLS)\n"],
)
def test_functions_that_keep_something_are_called_each_time(keeping):
    code = CODE[: CODE.index("def compute_terminal")] + keeping
    assert check_in_new_process(code)[1] and check_in_new_process(code)[1]


def test_result_of_the_cpu_spares_cuda_the_run_on_the_cpu(monkeypatch):
    """The processes that fill the caches check on the CPU; what only CUDA shows is still looked for."""
    task, told = FakeTask(4), []
    first, _ = check_in_new_process(CODE + TORQUE)

    def check(shaping, state, constants, task, trial, cpu_action_dim):
        told.append(cpu_action_dim)
        return replace(shaping, **found(first))

    trial = checking.TrialState(task.state, task.constants, task)
    monkeypatch.setattr(cached, "TrialState", lambda *_: trial)
    monkeypatch.setattr(cached, "check", check)
    snapshot = TaskSnapshot(
        TaskContract.of(task), task.state, task.constants, torch.device("cuda"), task.default_dof_target
    )
    other = CODE.replace("30", "40") + TORQUE
    for code in (CODE + TORQUE, other, CODE + TORQUE):
        own = load(code)
        CachedCheck(snapshot, FunctionCache({"mine.py": code}, task.state, task.constants, 0))(assemble(own, own))
    assert told == [2, None]  # the third one is loaded


@pytest.mark.parametrize("cpu_action_dim, ran", [(None, True), (1, True), (3, False)])
def test_cuda_check_runs_on_the_cpu_but_for_the_width_that_passed_there(monkeypatch, cpu_action_dim, ran):
    task, called = FakeTask(4), []
    monkeypatch.setattr(checking.TrialState, "_check_on_the_cpu", lambda trial, function: called.append(function.type))
    trial = checking.TrialState(task.state, task.constants, task)
    trial.device = SimpleNamespace(type="cuda")
    run = trial._run
    monkeypatch.setattr(trial, "_run", lambda function, parse, _: run(function, lambda value: ({}, {}), task.device))
    own = load(CODE)
    checking.check(assemble(own, own), task.state, task.constants, task, trial, cpu_action_dim)
    assert bool(called) == ran


def test_damaged_file_is_checked_again(own_folder):
    check_in_new_process()
    for file in (own_folder / "programs").iterdir():
        file.write_bytes(b"x")
    assert check_in_new_process()[1] and not check_in_new_process()[1]
