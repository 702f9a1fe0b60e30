"""What the engines have beside Isaac Gym's interface: forces on joints beside drives, and poses of written states."""

import numpy as np
import pytest
import torch
from isaacgym_scene import SLIDER, Scene, link, load, on_all, pose, robot

from isaacgym_mujoco.api import gymapi
from mujoco_batches.engine.cpu import CpuEngine
from mujoco_batches.engine.layout import Actor, build_layout
from mujoco_batches.scene.params import SimParams

WEAK = {"driveMode": gymapi.DOF_MODE_POS, "stiffness": 0.0, "damping": 0.0, "effort": 1.0}


@on_all
def test_joint_forces_add_to_drives_and_have_no_limit(tmp_path, engine):
    scene = Scene((load(tmp_path, SLIDER, fix_base_link=True), pose()), gravity=0.0, props=WEAK)
    scene.sim.engine.joint_forces = scene.tensor([[6.0], [-3.0]])
    scene.step(10)
    assert scene.dof[:, 1].tolist() == pytest.approx([0.3, -0.15], rel=1e-3)  # F t / m, of 2 kg in 0.1 s


@on_all
def test_bodies_follow_a_write_after_a_refresh(tmp_path, engine):
    scene = Scene((load(tmp_path, SLIDER, fix_base_link=True), pose(1.0)), gravity=0.0)
    simulation = scene.sim.engine
    simulation.write_dofs(None, scene.tensor([[0.5, 2.0], [-0.5, 0.0]]))
    before = simulation.tensor("bodies").view(2, 2, 13)[:, 1, 0].clone()
    simulation.refresh()
    after = simulation.tensor("bodies").view(2, 2, 13)[:, 1]
    assert torch.allclose(before.cpu(), torch.tensor([1.0, 1.0]))
    assert after[:, 0].tolist() == pytest.approx([1.5, 0.5]) and after[:, 7].tolist() == pytest.approx([2.0, 0.0])


def test_body_accelerations_are_those_of_the_last_substep(tmp_path):
    """A body in free motion without gravity changes by its damping alone: v -> (1 - d h) v in each substep."""
    asset = load(tmp_path, robot(link("base", 2)), linear_damping=0.5)
    body = Actor(asset, "body", pose(), 0, 0, asset.dof_properties, asset.shapes, asset.tendons)
    params = SimParams()
    params.dt, params.substeps, params.gravity = 0.2, 2, gymapi.Vec3(0, 0, 0)
    engine = CpuEngine(
        build_layout([body], [], params, [], joint_wrenches=True), np.array([[[0.0] * 3 + [1, 0, 0, 0]]])
    )
    roots = engine.tensor("roots")
    roots[:, 7] = 1.0
    engine.write_roots(None, roots)
    engine.step()
    assert engine.tensor("roots")[0, 7] == pytest.approx(0.95**2)
    assert engine.accelerations()[0, 0, 0] == pytest.approx(-0.5 * 0.95, rel=1e-4)
