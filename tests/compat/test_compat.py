"""What happens where a library's private part is not as expected: the library stays as it is, with one warning."""

import importlib
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import warp as wp

from envcoder_bench.compat import torch_draws
from envcoder_bench.core import stream
from mujoco_batches.compat import difference, replaced, torch_fuser, warn_once, warp_modules, warp_solvers, warp_start
from mujoco_batches.physics.warp_loading import load_kernels


@pytest.fixture(autouse=True)
def nothing_was_told():
    warp_start.start_warp()
    warn_once.cache_clear()


def test_functions_are_compared_by_their_first_parameters():
    owner = SimpleNamespace(__name__="library", step=lambda model, data, extra=None: None)
    assert difference(owner, {"step": ("model", "data")}) == ""
    assert difference(owner, {"step": ("model", "state")}) == "library.step has the parameters model, data, extra"
    assert difference(owner, {"step": ("model",), "gone": ()}) == "library.gone is missing"
    assert difference(None, {}) == "it cannot be imported"


def test_a_difference_is_told_once(caplog):
    for _ in range(2):
        warn_once("the library", "gone", "slower")
    assert caplog.text.count("the library is not as expected (gone): slower") == 1


def test_attributes_are_restored_where_one_cannot_be_replaced():
    class Owner:
        fixed = property()

    owner = Owner()
    owner.value = 1
    with pytest.raises(AttributeError, match="no setter"), replaced(owner, {"value": 2, "new": 3, "fixed": 4}):
        pass
    assert vars(owner) == {"value": 1}


@pytest.mark.parametrize(
    "name",
    [
        "mujoco_batches.compat.mujoco_warp_contacts",
        "envcoder_bench.compat.mujoco_warp_memory",
        "envcoder_bench.compat.mujoco_warp_order",
    ],
)
def test_import_replaces_nothing(name):
    import mujoco_warp._src as private

    modules = [private.collision_driver, private.solver, private.derivative, private.smooth, private.passive]
    before = [dict(vars(module)) for module in modules]
    importlib.reload(importlib.import_module(name))
    assert [dict(vars(module)) for module in modules] == before


def test_other_warp_loads_kernels_at_their_launch(monkeypatch, caplog):
    monkeypatch.setattr(warp_modules, "Module", None)
    load_kernels(lambda: pytest.fail("called"))
    assert "first start takes longer" in caplog.text


def test_other_warp_compiles_solvers_itself(monkeypatch, caplog):
    for name in ("_has_solvers", "_is_missing"):
        monkeypatch.setattr(warp_solvers, name, lambda *target: True)
    monkeypatch.setattr(warp_solvers, "_ARGUMENTS", ("another",))
    target = ("module", "cuda:0", 64)
    solvers = warp_solvers.Solvers([target])
    assert solvers.wait_for(target) and not solvers._processes
    assert "build_lto_solver has the parameters M" in caplog.text


@pytest.mark.parametrize("cache", ["file/cache", "cache"])
def test_folder_of_headers(cache, tmp_path, monkeypatch, caplog):
    """A folder that cannot be made leaves Warp's own, without a warning."""
    from warp._src.context import runtime

    (tmp_path / "file").touch()
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path / cache))
    usual = runtime.get_clang_pch_dir
    monkeypatch.setattr(runtime, "get_clang_pch_dir", usual)  # restored afterwards
    warp_start._share_headers()
    if cache == "cache":
        assert runtime.get_clang_pch_dir().startswith(str(tmp_path / "cache" / "headers"))
    else:
        assert runtime.get_clang_pch_dir == usual
    assert not caplog.records


def test_warp_without_its_cpu_compiler_has_no_headers_to_share(monkeypatch, caplog):
    monkeypatch.setattr(wp._src.context.runtime, "llvm", None)
    warp_start._share_headers()
    assert not caplog.records


def test_other_warp_compiles_its_headers_in_each_process(monkeypatch, caplog):
    from warp._src import context

    monkeypatch.setattr(context, "runtime", object())
    warp_start._share_headers()
    assert "get_clang_pch_dir" in caplog.text and "takes seconds" in caplog.text


def test_other_torch_draws_from_the_stream_more_slowly(monkeypatch, caplog):
    def draw():
        with stream.use(3, 1, 7), torch_draws.DrawsFromRows():
            return torch.rand(4, 2)

    expected = draw()
    torch_draws._install_kernels.cache_clear()
    monkeypatch.setattr(torch_draws, "_KEY", "NoSuchKey")
    try:
        assert torch.equal(draw(), expected) and torch.equal(draw(), expected)
    finally:
        monkeypatch.undo()
        torch_draws._install_kernels.cache_clear()
    assert caplog.text.count("torch's dispatch key NoSuchKey is not as expected") == 1
    assert torch.equal(draw(), expected)


def test_other_torch_keeps_its_fuser(monkeypatch, caplog):
    monkeypatch.setattr(torch, "_C", SimpleNamespace())
    torch_fuser.disable_cuda_fuser()
    monkeypatch.undo()
    assert "may abort at its end" in caplog.text


BUILD = """
import sys
import warp as wp
from envcoder_bench.compile import warp_kernel
code = f"((long long*)table.data)[tid] = {sys.argv[1]} * tid;"
warp_kernel.build(code, "cpu")
table = wp.zeros(3, dtype=wp.int64, device="cpu")
wp.launch(warp_kernel.make_kernel(code), dim=3, inputs=[table], device="cpu", block_dim=warp_kernel.BLOCK)
print(table.numpy().tolist())
"""


@pytest.mark.slow
def test_headers_are_compiled_once_and_a_damaged_file_is_replaced(tmp_path):
    cache, temporary = tmp_path / "cache", tmp_path / "tmp"
    temporary.mkdir()
    env = {**os.environ, "WARP_CACHE_PATH": str(cache), "TMPDIR": str(temporary)}

    def build(factor):
        done = subprocess.run([sys.executable, "-c", BUILD, str(factor)], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n")[-2] == f"[0, {factor}, {2 * factor}]"

    build(2)
    (header,) = cache.glob("*/headers/*/*.pch")
    written = header.stat().st_mtime_ns
    build(3)
    assert header.stat().st_mtime_ns == written
    assert not list(temporary.glob("wp_pch_*"))
    header.write_bytes(b"damaged")
    build(5)  # without the file, which Warp deletes
    assert not header.exists()


def test_a_solvers_process_compiles_what_its_command_line_names(monkeypatch, tmp_path):
    from warp._src import build

    compiled = []
    monkeypatch.setattr(build, "build_lto_solver", lambda *arguments: compiled.append(arguments))
    monkeypatch.setattr(wp.config, "kernel_cache_dir", wp.config.kernel_cache_dir)  # restored afterwards
    monkeypatch.setattr(sys, "argv", ["", json.dumps([str(tmp_path), [4, 4, 1]])])
    warp_solvers.main()
    assert wp.config.kernel_cache_dir == str(tmp_path) and compiled[0][:3] == (4, 4, 1)
