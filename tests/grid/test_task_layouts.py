"""The layouts of policies of this package's runs are the observations of their tasks' human baselines."""

import importlib

import pytest
import torch

from envcoder_bench.grid.batch import Batch
from envcoder_bench.grid.inputs import Inputs, find_arenas, known_layouts
from envcoder_bench.grid.part import Part
from envcoder_bench.grid.policies import LoadedPolicy
from envcoder_bench.grid.robots import ROBOTS, observe
from envcoder_bench.grid.settings import compose_settings

SCALES = {"lin_vel_scale": 2.0, "ang_vel_scale": 0.25, "dof_pos_scale": 1.0, "dof_vel_scale": 0.05}


class _Seen(torch.nn.Module):
    """Keeps what it observes; its actions depend on it."""

    def forward(self, obs):
        self.obs = obs.clone()
        return 0.1 * obs[:, -12:] + 0.3


@pytest.mark.parametrize(
    "robot, task, folder",
    [
        ("anymal_c", "Anymal", "anymal"),
        ("anymal_c", "AnymalTerrain", "anymal_terrain"),
        ("spot", "SpotTerrain", "spot_terrain"),
    ],
)
def test_layout_matches_the_human_baselines_observation(robot, task, folder) -> None:
    cfg = compose_settings(["episodes=3"])
    layout = known_layouts(ROBOTS[robot], cfg)[cfg.task_layouts[task]]
    seen = _Seen()
    policy = LoadedPolicy("p", "p", "torchscript", seen, layout, True, 64)
    inputs = Inputs(ROBOTS[robot], cfg, (policy,), tuple(find_arenas(["stairs"], cfg)))
    batch = Batch(Part(inputs, inputs.specs, None, "mujoco_cpu", "cpu").scene, inputs.specs)  # type: ignore[arg-type]
    batch.advance(12)
    sim, actions = batch.sim, batch._actions.clone()
    batch._decide()  # observes the same state with the actions that it led to
    root = sim.root_states
    state = {
        "root_states": root, "dof_pos": sim.dof_pos, "dof_vel": sim.dof_vel, "actions": actions,
        "default_dof_pos": batch._stance.expand(3, -1), "gravity_vec": torch.tensor([[0.0, 0.0, -1.0]]).expand(3, -1),
        "commands": batch.episodes.commands(root[:, 0], root[:, 1], _yaw(root)), "height_meas_scale": 5.0, **SCALES,
    }  # fmt: skip
    if layout.scans:
        state["measured_heights"] = batch._ground_around(root, torch.tensor(layout.points))
    human = importlib.import_module(f"envcoder_bench.tasks.{folder}.human")
    torch.testing.assert_close(seen.obs[:3], human.compute_observation(state), atol=1e-5, rtol=1e-5)
    assert observe(layout, {name: torch.zeros(1, width) for name, width in zip(layout.parts, layout.widths)}).sum() == 0


def _yaw(root: torch.Tensor) -> torch.Tensor:
    x, y, z, w = root[:, 3:7].unbind(1)
    return torch.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
