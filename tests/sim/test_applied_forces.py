"""Forces on bodies, in both engines."""

import pytest
import torch
from backends import both


def _flying(backend):
    """Return robots high above the ground, the legs held by the drives."""
    sim = backend.anymal(num_envs=3, dt=0.02, substeps=4)
    root = sim.root_states.clone()
    root[:, 2] = 50.0
    sim.write(backend.tensor([True] * 3), root, torch.zeros_like(sim.dof_pos), torch.zeros_like(sim.dof_vel))
    return sim


@both
def test_forces_proportional_to_masses_accelerate_the_whole_robot(backend) -> None:
    sim = _flying(backend)
    acceleration = backend.tensor([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, -3.0, 9.81]])
    forces = acceleration[:, None, :] * sim.body_masses.to(sim.device)[None, :, None]
    sim.apply_forces(forces)
    for _ in range(5):
        sim.step(torch.zeros_like(sim.dof_pos))
    expected = (acceleration - backend.tensor([0.0, 0.0, 9.81])) * 5 * 0.02
    torch.testing.assert_close(sim.root_states[:, 7:10], expected, atol=2e-3, rtol=0)
    torch.testing.assert_close(sim.dof_pos, torch.zeros_like(sim.dof_pos), atol=1e-3, rtol=0)  # no joint is loaded


@both
def test_forces_persist_until_the_next_call(backend) -> None:
    sim = _flying(backend)
    forces = torch.zeros(3, len(sim.body_names), 3, device=sim.device)
    forces[1] = sim.body_masses.to(sim.device)[:, None] * backend.tensor([1.0, 0.0, 0.0])
    sim.apply_forces(forces)
    sim.step(torch.zeros_like(sim.dof_pos))
    sim.apply_forces(torch.zeros_like(forces))
    sim.step(torch.zeros_like(sim.dof_pos))
    assert sim.root_states[:, 7].tolist() == pytest.approx([0.0, 0.02, 0.0], abs=2e-4)
