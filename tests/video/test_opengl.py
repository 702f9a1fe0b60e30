"""A run needs no OpenGL; who draws a frame without it is told what is missing."""

import os
import subprocess
import sys

import pytest

CODE = """
import os
import torch  # which takes seconds, once

for name, first in (("egl", "import torch"), ("osmesa", "import isaacgym_mujoco")):
    if os.fork() == 0:
        os.environ["MUJOCO_GL"] = name
        exec(first)
        from envcoder_bench.sim.mujoco_cpu import mujoco
        assert mujoco.MjModel.from_xml_string("<mujoco/>").nq == 0
        assert os.environ["MUJOCO_GL"] == name
        from envcoder_bench.video import render
        render.has_package = lambda name: True  # the package av
        print(render.missing(), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_missing_opengl_is_no_fault_until_a_frame_is_drawn(tmp_path):
    # as PyOpenGL without the library
    (tmp_path / "OpenGL").mkdir()
    (tmp_path / "OpenGL" / "__init__.py").write_text("None.glGetError\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", CODE], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    for line, name, package in zip(lines, ("egl", "osmesa"), ("libegl1", "libosmesa6")):
        message = f"the library of OpenGL that MUJOCO_GL={name} names is missing or does not work: apt-get install"
        assert line.startswith(f"{message} {package}") and line.endswith("or unset MUJOCO_GL")
