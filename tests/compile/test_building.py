"""Compilers that take too long or too much memory, or crash, affect only their program."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
import warp as wp
from shaping_fakes import BASELINE, Groups
from tracing_fakes import Compiled, eager, function, make_state, record

from envcoder_bench.compile import building, native
from envcoder_bench.compile.program import Program

pytestmark = pytest.mark.slow

# const values, which clang folds by recursion through all that they are made of
HANGS = "const float a0 = 1.0f + (float)tid, b0 = (float)tid;\n" + "".join(
    f"const float a{i + 1} = a{i} > b{i} ? a{i} : b{i}; const float b{i + 1} = a{i};\n" for i in range(80)
)
CRASHES = (
    "const float v0 = ((const float*)table.data)[tid];\n"
    + "".join(f"const float v{i + 1} = sinf(v{i});\n" for i in range(3000))
    + "((float*)table.data)[0] = v3000;\n"
)
WRONG = "this is no C;\n"


def good(k):
    return f"float x{k} = (float)tid; ((long long*)table.data)[0] = (long long)x{k};\n"


@pytest.fixture(scope="module")
def headers(tmp_path_factory):
    """A folder with Warp's headers, which take seconds to compile: those of this process' cache, if it has them."""
    ready = Path(str(wp.config.kernel_cache_dir)) / "headers"
    if any(ready.glob("*/*")):
        return ready
    folder = tmp_path_factory.mktemp("headers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARP_CACHE_PATH", str(folder))
        assert building.build([good(0)], "cpu") == [""]
    (found,) = folder.glob("*/headers")
    return found


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch, headers):
    """Compilers that have Warp's headers, and nothing else has been compiled by before."""
    (tmp_path / wp.config.version).mkdir()
    (tmp_path / wp.config.version / "headers").symlink_to(headers)
    monkeypatch.setenv("WARP_CACHE_PATH", str(tmp_path))
    monkeypatch.setattr(building, "_failed", {})


@pytest.fixture
def new_processes():
    """Returns the processes that have begun since the test did; libraries may have started some before."""
    before = set(psutil.Process().children(recursive=True))
    return lambda: set(psutil.Process().children(recursive=True)) - before


def test_build_reports_hanging_crashing_and_invalid_kernels_separately(monkeypatch, new_processes, caplog):
    monkeypatch.setattr(building, "LIMIT", 4.0)  # a process of the compiler starts within it
    monkeypatch.setattr(building, "REPORT_AFTER", 0.5)
    codes = [HANGS, CRASHES, WRONG, good(1), good(2)]
    hangs, crash, wrong, *fine = building.build(codes, "cpu")
    assert hangs.startswith("its compiler takes more than 4") and "processor time" in hangs
    assert crash == "its compiler crashes or takes too much memory"
    assert wrong and not wrong.startswith("its compiler")
    assert fine == ["", ""]
    assert not new_processes()
    assert "compiling candidate functions" in caplog.text and " of 5 kernels done" in caplog.text  # it takes long
    monkeypatch.setattr(building, "_Build", None)  # what failed is not built again
    assert building.build([WRONG, HANGS, WRONG], "cpu") == [wrong, hangs, wrong]


def test_damaged_object_in_the_cache_is_built_again(tmp_path, monkeypatch):
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path / wp.config.version))  # as in the workers
    code, cpu = good(3), torch.device("cpu")
    assert native.build([code], cpu) == [""] and not native._missing([code], "cpu")
    objects = [path for path in tmp_path.rglob("wp_*") if path.suffix in (".o", ".meta")]
    assert len(objects) == 2
    for path in objects:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        assert native._missing([code], "cpu") == [code]
        assert native.build([code], cpu) == [""] and not native._missing([code], "cpu")
        assert path.read_bytes() == content
    (kernel,) = native.load([code], cpu)
    table = torch.full((1,), 7)
    native.launch(native.prepare_launch(kernel, 1, table), cpu)
    assert table.item() == 0


def test_ctrl_c_ends_compiler_processes(new_processes):
    def interrupt():
        deadline = time.monotonic() + 60
        while not new_processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        building.build([HANGS], "cpu")
    assert not new_processes()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for it")
def test_compiler_processes_end_with_their_parent():
    code = f"from envcoder_bench.compile import building\nbuilding.build([{HANGS!r}], 'cpu')"
    parent = subprocess.Popen([sys.executable, "-c", code])
    children, deadline = [], time.monotonic() + 60
    while not children and time.monotonic() < deadline:
        time.sleep(0.05)
        children = psutil.Process(parent.pid).children()
    assert children
    time.sleep(1.0)  # until it has said what is to become of it
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive


# what hung or crashed the compiler once, and is ordinary code
LONG = {
    "a long chain": "for _ in range(3000):\n    x = torch.sin(x)\nreturn x",
    "two that swap": "a, b = x, y\nfor _ in range(60):\n    a, b = torch.maximum(a, b), a\nreturn a",
    "a median of 20": "return torch.cat([x, y, x * y, x + y, x - y], -1).median(dim=-1).values",
    "the largest of 20": "return torch.cat([x, y, x * y, x + y, x - y], -1).topk(3, dim=-1).values",
    "a sort of 24": "return torch.cat([x, y, x * y, x + y, x - y, x * x], -1).sort(dim=-1).values",
    "whole numbers multiplied": "for _ in range(500):\n    i = i * (i + 3) % 1000003\nreturn i",
    "whole numbers divided": "j = i.abs()\nfor _ in range(99):\n    i, j = i * 37 // (j.abs() + 3), i + 1\nreturn i",
}


@pytest.mark.parametrize("name", list(LONG))
def test_long_functions_are_compiled(name):
    state, body = make_state(8), LONG[name]
    program = record(function(body), state)
    assert isinstance(program, Program), program
    got, want = Compiled([program], 8).run(state)[0], eager(function(body), state)
    torch.testing.assert_close(got.floats, want.floats, rtol=1e-3, atol=1e-4)
    assert torch.equal(got.wholes, want.wholes)


BOMB = "def compute_reward(dof_pos):\n    return torch.tan(dof_pos[:, 0])\n"
OTHER = "def compute_reward(dof_pos):\n    return torch.tanh(dof_pos[:, 0])\n"


@pytest.fixture
def no_tangent(monkeypatch):
    """A compiler that takes too long over a tangent."""
    original = building.build

    def build(codes, target):
        fine = [code for code in codes if not is_bomb(code)]
        made = dict(zip(fine, original(fine, target)))
        return [f"{building.KILLED}takes years" if is_bomb(code) else made[code] for code in codes]

    def is_bomb(code):
        return "tanf(" in code

    missing = native._missing
    monkeypatch.setattr(native, "_missing", lambda codes, on: [*missing(codes, on), *filter(is_bomb, codes)])
    monkeypatch.setattr(building, "build", build)


def test_function_that_fails_to_compile_runs_eagerly_with_a_warning(no_tangent):
    with pytest.warns(RuntimeWarning, match=r"c1\.py:1: in compute_reward: cannot be compiled.*takes years"):
        groups = Groups([OTHER, BOMB, BASELINE], compiled=True)
    stage = groups.dispatch.stages["reward"]
    assert [call.group for call in stage.calls] == [1] and [call.group for call, _ in stage.traced] == [0, 2]
    eager_one, alone = Groups([BOMB]), Groups([OTHER], compiled=True)
    for t in range(3):
        made = groups.step(t)
        assert torch.equal(groups.of(made, 1)["reward"], eager_one.step(t)["reward"])
        assert torch.equal(groups.of(made, 0)["reward"], alone.step(t)["reward"])


def test_program_without_a_function_fails_its_group_if_it_cannot_be_compiled(no_tangent):
    with pytest.warns(RuntimeWarning, match="cannot be compiled"):
        groups = Groups([OTHER, BOMB], compiled=True)
    own = groups.shapings[1]
    reward = replace(own.functions["reward"], program=own.programs["reward"])
    groups.shapings[1] = own.with_functions({**own.functions, "reward": reward})  # as from the jail
    groups.renew()
    assert groups.dispatch.alive == [True, False]
    told = str(groups.dispatch.failures[1])
    assert told == "c1.py:1: in compute_reward: cannot be compiled: its compiler takes years"
    groups.step(0)


def test_too_wide_observation_is_not_compiled():
    groups = Groups(["def compute_observation(dof_pos):\n    return dof_pos.repeat(1, 20000)\n"], compiled=True)
    assert [str(one) for one in groups.refused] == [
        "c0.py:1: in compute_observation: returns 60000 numbers for one environment; programs have at most 30000"
    ]
