"""Processes share the precompiled headers of Warp's CPU compiler."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

BUILD = """
import sys
from pathlib import Path
import warp as wp
from envcoder_bench.compile import warp_kernel
code = f"((long long*)table.data)[tid] = {sys.argv[1]} * tid;"
warp_kernel.build(code, "cpu")
assert warp_kernel.is_built(warp_kernel.make_kernel(code), "cpu")
table = wp.zeros(3, dtype=wp.int64, device="cpu")
wp.launch(warp_kernel.make_kernel(code), dim=3, inputs=[table], device="cpu", block_dim=warp_kernel.BLOCK)
print(table.numpy().tolist())
"""


def test_headers_are_compiled_once_and_a_damaged_file_is_replaced(tmp_path):
    cache, temporary = tmp_path / "cache", tmp_path / "tmp"
    temporary.mkdir()
    env = {**os.environ, "ENVCODER_BENCH_CACHE": str(cache), "WARP_CACHE_PATH": str(tmp_path), "TMPDIR": str(temporary)}

    def build(factor):
        done = subprocess.run([sys.executable, "-c", BUILD, str(factor)], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n")[-2] == f"[0, {factor}, {2 * factor}]"

    build(2)
    (header,) = cache.glob("headers/*/*.pch")
    made = header.stat().st_mtime_ns
    build(3)
    assert header.stat().st_mtime_ns == made
    assert not list(temporary.glob("wp_pch_*"))
    header.write_bytes(b"damaged")
    build(5)  # without the file, which Warp deletes
    assert not header.exists()


def test_folder_that_cannot_be_made_leaves_warps_own(tmp_path):
    (tmp_path / "file").touch()
    env = {**os.environ, "ENVCODER_BENCH_CACHE": str(tmp_path / "file" / "cache"), "WARP_CACHE_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", BUILD, "7"], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[0, 7, 14]\n"), done.stderr
