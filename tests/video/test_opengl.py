"""A run needs no OpenGL; who draws a frame without it is told what is missing."""

import os
import subprocess
import sys

import pytest

CODE = """
import os
{first}
import envcoder_bench
from envcoder_bench.sim.mujoco_cpu import mujoco
assert envcoder_bench.evaluate and mujoco.MjModel.from_xml_string("<mujoco/>").nq == 0
assert os.environ["MUJOCO_GL"] == "{name}"
from envcoder_bench.video import render
render.has_package = lambda name: True  # the package av
print(render.missing())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, package, first", [("egl", "libegl1", ""), ("osmesa", "libosmesa6", "import isaacgym_mujoco")]
)
def test_missing_opengl_is_no_fault_until_a_frame_is_drawn(name, package, first, tmp_path):
    # as PyOpenGL without the library
    (tmp_path / "OpenGL").mkdir()
    (tmp_path / "OpenGL" / "__init__.py").write_text("None.glGetError\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(first=first, name=name)],
        env={**os.environ, "MUJOCO_GL": name, "PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    message = (
        f"the library of OpenGL that MUJOCO_GL={name} names is missing or does not work: apt-get install {package}"
    )
    assert done.stdout.startswith(message) and done.stdout.endswith("or unset MUJOCO_GL\n")
