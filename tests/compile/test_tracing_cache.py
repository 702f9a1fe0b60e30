"""The cache of programs traced in an earlier process."""

from types import SimpleNamespace

import pytest
import torch
from shaping_fakes import FakeTask, load, shaping

from envcoder_bench.compile import cache
from envcoder_bench.compile import trace as tracing
from envcoder_bench.compile.cache import FunctionCache, is_self_contained
from envcoder_bench.compile.program import Program
from envcoder_bench.compile.trace import Memo, trace

CODE = """
from isaacgym.torch_utils import torch_rand_float

def compute_reward(state_dict):
    near = torch.exp(-state_dict["dof_pos"].square().sum(dim=-1) / float("inf"))
    return near * 0.3 + torch_rand_float(0.0, 1.0, (near.shape[0], 1), near.device)[:, 0], {"near": near}
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVCODER_BENCH_CACHE", str(tmp_path))
    return tmp_path


def traced(code=CODE, seed=0, text=None, changed=lambda task: None):
    """Trace as a new process would; the programs, and the types of the functions that were really recorded."""
    task, recorded = FakeTask(4), []
    changed(task)
    own = shaping(code, task=task)
    cache = FunctionCache({"mine.py": code if text is None else text}, task.state, task.constants, seed)
    original = tracing.SampleState.record
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing.SampleState, "record", lambda *given: recorded.append(given[2].type) or original(*given))
        programs = trace(own, task.state, task.constants, task, Memo(cache))[0].programs
    return programs, [kind for kind in recorded if kind == "compute_reward"]


def test_cached_program_is_loaded_without_recording():
    first, recorded = traced()
    second, again = traced()
    assert recorded and not again
    assert second["reward"].nodes == first["reward"].nodes and second["reward"].outputs == first["reward"].outputs
    assert isinstance(second["reward"], Program) and second["reward"] is not first["reward"]


def other_constant(task):
    task.constants["dof_vel_scale"] = torch.tensor(0.06)


def other_layout(task):
    task.state["extra"] = torch.zeros(4, 2)


@pytest.mark.parametrize(
    "change",
    [
        {"code": CODE.replace("0.3", "0.4")},
        {"code": CODE.replace('"near"', '"far"')},
        {"text": CODE + "# changed"},  # of the function's file
        {"seed": 1},
        {"changed": other_constant},
        {"changed": other_layout},
    ],
)
def test_change_of_what_a_program_depends_on_misses_the_cache(change):
    traced()
    assert traced(**change)[1]


def test_damaged_cache_file_is_ignored(own_folder):
    traced()
    files = list((own_folder / "programs").iterdir())
    assert files
    for damage in (b"", b"x", files[0].read_bytes()[:-9]):
        for file in files:
            file.write_bytes(damage)
        assert traced()[1]


def test_function_that_loads_a_file_is_not_cached():
    code = CODE + "\nWEIGHTS = torch.ones(2) if True else torch.load('weights.pt')\n"
    assert traced(code)[1] and traced(code)[1]


def test_file_with_a_helper_module_is_not_cached(own_folder):
    """The helper module may change: a stale kernel gave 7 where the function gave -10."""
    programs, _ = traced()
    function, task = load(CODE).functions["compute_reward"], FakeTask(4)
    for line, kept in (("import helper_of_a_candidate", False), ("import math", True)):
        cache = FunctionCache({"mine.py": f"{line}\n{CODE}"}, task.state, task.constants, 0)
        cache.save(programs["reward"], function)
        assert (cache.load(function) is not None) == kept


def test_change_of_the_package_misses_the_cache(monkeypatch):
    code = CODE.replace("isaacgym.torch_utils", "envcoder_bench.tasks.anymal.human").replace(
        "import torch_rand_float", "import quat_rotate_inverse, torch_rand_float"
    )
    assert traced(code)[1] and not traced(code)[1]
    monkeypatch.setattr("envcoder_bench.compile.cache.code_digest", lambda: "changed")
    assert traced(code)[1]


@pytest.mark.parametrize(
    "line",
    [
        "import os", "import sys", "import mylib", "from . import other", "from .other import x", "import numpy, time",
        "from time import time", "x = eval('1')", "x = __import__('os')",
        "import importlib; importlib.import_module('x')",
    ],
)  # fmt: skip
def test_files_that_depend_on_other_files_are_not_cached(line):
    assert not is_self_contained(f"{line}\ndef compute_reward(dof_pos):\n    return dof_pos[:, 0]\n")


def test_standalone_files_are_cached():
    for line in ("import torch, math", "from typing import Dict", "import numpy as np", "import torch.nn as nn"):
        assert is_self_contained(line)
    assert is_self_contained("from envcoder_bench.tasks.ant.human import compute_reward")
    assert is_self_contained("from isaacgymenvs.utils.torch_jit_utils import *")


def test_files_that_import_an_installed_isaac_gym_are_not_cached(monkeypatch):
    is_self_contained.cache_clear()
    monkeypatch.setattr("envcoder_bench.compile.cache.helper_names", frozenset)
    assert not is_self_contained("from isaacgymenvs.utils.torch_jit_utils import *")
    is_self_contained.cache_clear()


def test_unwritable_cache_folder_disables_the_cache(own_folder, monkeypatch):
    blocked = own_folder / "file"
    blocked.write_text("")
    monkeypatch.setenv("ENVCODER_BENCH_CACHE", str(blocked))
    assert traced()[1] and traced()[1]


def test_key_covers_the_package_of_the_helpers_without_its_tests(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "mujoco_batches", SimpleNamespace(__file__=str(tmp_path / "__init__.py")))
    (tmp_path / "tests").mkdir()
    digests = []
    for file in ("helpers.py", "tests/test_helpers.py"):
        for text in ("x = 1\n", "x = 2\n"):
            (tmp_path / file).write_text(text)
            digests.append(cache.package_code.__wrapped__())
    assert digests[0] != digests[1] == digests[2] == digests[3]
