"""What the jail's examiner finds out about a file, in this process: the texts here are our own."""

from __future__ import annotations

import pytest
import torch
from jail_fakes import baseline_of, make_task, state_of

from envcoder_bench.jail import work
from envcoder_bench.tasks.contract import TaskContract

REWARD = "def compute_reward(state_dict):\n    return 2.0 * state_dict['dof_pos'].sum(dim=-1)\n"


@pytest.fixture(scope="module")
def examiner():
    task = make_task()
    return work.Examiner(TaskContract.of(task), [], state_of(task), task.constants, baseline_of(task), None, 0, (6, 64))


def test_a_program_that_gives_other_numbers_is_no_answer(examiner, monkeypatch):
    assert "candidate" in examiner.judge(REWARD)

    def wrong(shaping, *given):
        traced, refused = trace(shaping, *given)
        program = traced.programs["reward"]
        program.nodes[:] = [node._replace(value=2.1) if node.value == 2.0 else node for node in program.nodes]
        return traced, refused

    trace = work.trace
    monkeypatch.setattr(work, "trace", wrong)
    told = examiner.judge(REWARD, scan=False)["error"]  # else what is patched here would be the reason
    assert told["message"].startswith("untrusted code must be traceable: with 6 env")
    assert (told["line"], told["function"]) == (1, "compute_reward")


def test_what_a_file_changes_is_named(examiner, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "norm", torch.Tensor.sum)
        told = examiner.judge(REWARD)["error"]["message"]
    assert told == "changes Tensor.norm, which untrusted code may not: define one of your own"
    with monkeypatch.context() as patched:
        patched.setattr(work.Interpreter, "__call__", lambda *_: {})
        assert examiner.judge(REWARD)["error"]["message"].startswith("changes Interpreter.__call__")
    assert "candidate" in examiner.judge(REWARD)


def test_the_state_that_programs_are_held_against_is_another(examiner):
    state = state_of(make_task())
    fresh = work._disturbed(state)
    for key, x in state.items():
        assert fresh[key].shape == x.shape and fresh[key].dtype == x.dtype
        if x.is_floating_point():
            assert not torch.any(fresh[key] == x) and (fresh[key] - x).abs().max() <= 0.006 + 0.01 * x.abs().max()


def test_only_the_files_own_functions_come_back(examiner):
    answer = examiner.judge(REWARD)["candidate"]
    assert list(answer["functions"]) == ["compute_reward"] and answer["components"] == []


def test_a_file_that_is_too_long_is_not_read(examiner):
    assert "characters" in examiner.judge("x" * 100_001)["error"]["message"]


def test_helpers_and_baselines_can_be_imported():
    libraries = work._libraries(())
    assert "quat_mul" in libraries["isaacgym.torch_utils"]
    assert "compute_reward" in libraries["envcoder_bench.tasks.anymal.human"]
    assert not {"torch", "np", "stream", "noise"} & set().union(*libraries.values())
