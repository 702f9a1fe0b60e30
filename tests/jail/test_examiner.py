"""The jail's examiner, run in this process on trusted texts."""

import pytest
import torch
from jail_fakes import baseline_of, make_task, state_of

from envcoder_bench.jail import examiner as examiner_module
from envcoder_bench.tasks.contract import TaskContract

REWARD = "def compute_reward(state_dict):\n    return 2.0 * state_dict['dof_pos'].sum(dim=-1)\n"


@pytest.fixture(scope="module")
def examiner():
    task = make_task()
    return examiner_module.Examiner(
        TaskContract.of(task), [], state_of(task), task.constants, baseline_of(task), None, 0, (6, 64)
    )


def test_wrong_program_is_refused(examiner, monkeypatch):
    assert "candidate" in examiner.examine(REWARD)

    def wrong(shaping, *given):
        traced, refused = trace(shaping, *given)
        program = traced.programs["reward"]
        program.nodes[:] = [node._replace(value=2.1) if node.value == 2.0 else node for node in program.nodes]
        return traced, refused

    trace = examiner_module.trace
    monkeypatch.setattr(examiner_module, "trace", wrong)
    told = examiner.examine(REWARD, scan=False)["error"]  # with scan the patch itself would be the reason
    assert told["message"].startswith("untrusted code must be traceable: with 6 env")
    assert (told["line"], told["function"]) == (1, "compute_reward")


def test_values_kept_through_an_argument_are_refused(examiner):
    code = "BOX = [0.0]\ndef add(box):\n    box[0] = box[0] + 1.0\n"
    told = examiner.examine(f"{code}def compute_reward(dof_pos):\n    add(BOX)\n    return dof_pos[:, 0] * BOX[0]\n")
    assert told["error"]["message"].startswith("untrusted code must be traceable: may depend on what an earlier call")


def test_changed_member_is_reported(examiner, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "norm", torch.Tensor.sum)
        told = examiner.examine(REWARD)["error"]["message"]
    assert told == "changes Tensor.norm, which untrusted code may not: define one of your own"
    with monkeypatch.context() as patched:
        patched.setattr(examiner_module.Interpreter, "__call__", lambda *_: {})
        assert examiner.examine(REWARD)["error"]["message"].startswith("changes Interpreter.__call__")
    assert "candidate" in examiner.examine(REWARD)


def test_perturbed_state_differs(examiner):
    state = state_of(make_task())
    fresh = examiner_module._perturb(state)
    for key, x in state.items():
        assert fresh[key].shape == x.shape and fresh[key].dtype == x.dtype
        if x.is_floating_point():
            assert not torch.any(fresh[key] == x) and (fresh[key] - x).abs().max() <= 0.006 + 0.01 * x.abs().max()


def test_answer_has_only_functions_of_the_file(examiner):
    answer = examiner.examine(REWARD)["candidate"]
    assert list(answer["functions"]) == ["compute_reward"] and answer["components"] == []


def test_too_long_file_is_refused(examiner):
    assert "characters" in examiner.examine("x" * 100_001)["error"]["message"]


def test_helpers_and_baselines_can_be_imported():
    libraries = examiner_module._libraries(())
    assert "quat_mul" in libraries["isaacgym.torch_utils"]
    assert "compute_reward" in libraries["envcoder_bench.tasks.anymal.human"]
    assert not {"torch", "np", "stream", "noise"} & set().union(*libraries.values())
