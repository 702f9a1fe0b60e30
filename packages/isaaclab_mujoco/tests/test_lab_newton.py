"""Recorded steps of the real Isaac Lab 3.0, which simulates on Newton: a step from the same state is the same."""

import importlib.util
from pathlib import Path

import pytest

from isaaclab_mujoco.assets import find

FILE = Path(__file__).resolve().parents[3] / "benchmarks" / "lab_newton.py"


@pytest.mark.slow
@pytest.mark.parametrize("robot, integrator", [("cartpole", ""), ("ant", ""), ("ant", "IMPLICITFAST")])
def test_a_step_is_that_of_isaac_lab_3(robot, integrator, tmp_path):
    spec = importlib.util.spec_from_file_location("lab_newton", FILE)
    lab_newton = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lab_newton)
    before = dict(find.given)
    differences = lab_newton.compare(tmp_path, robot, integrator)
    assert find.given == before  # the other tests of the process have robots of their own
    if not integrator:  # this project's integrator differs where contacts push
        differences.pop("ground", None)
    assert differences and all(steps[0].max() < lab_newton.WITHIN for steps in differences.values())
