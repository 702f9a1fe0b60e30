"""The jail's examiner, run in this process on trusted texts."""

import time

import pytest
import torch
from jail_fakes import baseline_of, make_task, state_of

from envcoder_bench.jail import examiner as examiner_module
from envcoder_bench.jail.surroundings import replace_clocks
from envcoder_bench.tasks.contract import TaskContract

REWARD = "def compute_reward(state_dict):\n    return 2.0 * state_dict['dof_pos'].sum(dim=-1)\n"


@pytest.fixture(scope="module")
def examiner():
    task = make_task()
    return examiner_module.Examiner(
        TaskContract.of(task), [], state_of(task), task.constants, baseline_of(task), None, 0, (6, 64)
    )


def test_dicts_are_parsed_and_functions_beside_them_are_traced():
    task = make_task()
    given = (task.constants, baseline_of(task), None, 0, (6,))
    reading = examiner_module.Examiner(TaskContract.of(task), [], state_of(task), *given, reads_dicts=True)
    answer = reading.examine("rewards = {'up': {'x': (1, 2.5)}}\n")
    assert answer["dicts"]["values"] == {"rewards": {"up": {"x": (1, 2.5)}}} and "candidate" not in answer
    both = reading.examine(f"rewards = {{'up': 2.0}}\n{REWARD}")
    assert set(both) == {"dicts", "candidate"} and both["dicts"]["functions"] == ("compute_reward",)
    told = reading.examine("rewards = {'up': {'__class__': torch}}\n")["error"]
    assert "must be a number" in told["message"] and told["line"] == 1


def test_wrong_program_is_refused(examiner, monkeypatch):
    assert "candidate" in examiner.examine(REWARD)

    def wrong(shaping, *given):
        traced, refused = trace(shaping, *given)
        program = traced.programs["reward"]
        program.nodes[:] = [node._replace(value=2.1) if node.value == 2.0 else node for node in program.nodes]
        return traced, refused

    trace = examiner_module.trace
    monkeypatch.setattr(examiner_module, "trace", wrong)
    told = examiner.examine(REWARD)["error"]
    assert told["message"].startswith("untrusted code must be traceable: with 6 env")
    assert (told["line"], told["function"]) == (1, "compute_reward")


def test_values_kept_through_an_argument_are_refused(examiner):
    code = "BOX = [0.0]\ndef add(box):\n    box[0] = box[0] + 1.0\n"
    told = examiner.examine(f"{code}def compute_reward(dof_pos):\n    add(BOX)\n    return dof_pos[:, 0] * BOX[0]\n")
    assert told["error"]["message"].startswith("untrusted code must be traceable: may depend on what an earlier call")


CLOCKS = ("time.time()", "time.perf_counter_ns() % 1000", "time.clock_gettime(0)", "time.monotonic() % 1.0")


@pytest.mark.parametrize("clock", CLOCKS)
def test_results_that_depend_on_the_time_are_refused(examiner, monkeypatch, clock):
    for name in dir(time):
        monkeypatch.setattr(time, name, getattr(time, name))  # restores it
    replace_clocks()
    told = examiner.examine(f"import time\ndef compute_reward(dof_pos):\n    return dof_pos[:, 0] + {clock}\n")
    assert "the time or earlier calls" in told["error"]["remedy"]
    code = f"import time\nT = {clock} + time.localtime().tm_year\n"
    code += "def compute_reward(dof_pos):\n    began = time.time()\n    return dof_pos[:, 0] + T\n"
    answers = [examiner.examine(code)]
    time.process_time()  # other readings do not count
    assert "candidate" in answers[0] and examiner.examine(code) == answers[0]


def test_perturbed_state_differs(examiner):
    state = state_of(make_task())
    fresh = examiner_module._perturb(state)
    for key, x in state.items():
        assert fresh[key].shape == x.shape and fresh[key].dtype == x.dtype
        if x.is_floating_point():
            assert not torch.any(fresh[key] == x) and (fresh[key] - x).abs().max() <= 0.006 + 0.01 * x.abs().max()


def test_too_long_file_is_refused(examiner):
    assert "characters" in examiner.examine("x" * 100_001)["error"]["message"]


@pytest.mark.parametrize(
    "code, reason",
    [
        ("import os", "may not import os (a candidate cannot open files"),
        ("from sys import path", "may not import sys (write plain code"),
        ("import scipy.stats", "may not import scipy.stats (a candidate is one file; torch"),
        ("from . import x", "may not import . (a candidate is one file"),
        ("from .torch import sin", "may not import .torch (a candidate is one file"),
        ("from numpy.random import rand", "may not import numpy.random (use torch.rand"),
        ("from envcoder_bench.jail import child", "may not import envcoder_bench.jail (a candidate"),
    ],
)
def test_other_imports_are_refused_with_a_hint(examiner, code, reason):
    error = examiner.examine(f"{code}\n{REWARD}")["error"]
    assert reason in error["message"] and error["line"] == 1


@pytest.mark.parametrize(
    "code",
    [
        "from isaacgym.torch_utils import *\nx = quat_mul",
        "import isaacgymenvs.utils.torch_jit_utils as u\nx = u.quat_mul",
        "from envcoder_bench.tasks.ant.human import compute_reward as own",
        "import torch.nn.functional as F\nx = F.relu(torch.zeros(3))",
        "try:\n    import scipy\nexcept ImportError:\n    scipy = None\nassert scipy is None",
        "if __name__ == '__main__':\n    import argparse",
        "print(torch.zeros(3), sep='', flush=True)",
    ],
)
def test_listed_imports_and_guarded_ones_pass(examiner, code):
    assert "candidate" in examiner.examine(f"{code}\n{REWARD}")
