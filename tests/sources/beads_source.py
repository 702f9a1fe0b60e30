"""A package with a source of tasks, as another author writes it: a bead on a rail, in a few lines of torch.

The test writes this file into a folder of its own as the package ``beads``; nothing here is registered in the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import mujoco
import torch
from torch import Tensor

from envcoder_bench.tasks import Can, EnvGroups, Field, Task, TaskSource, TaskSpec
from mujoco_batches.physics.live_tensors import PoseSource

HOME = Path(__file__).resolve().parent
MEANING = "1 minus the distance to the middle of the rail, in m; at most 1"
RAIL = """<mujoco><worldbody><body name="bead"><joint name="rail" type="slide" axis="1 0 0"/><geom size="0.1"/></body>
</worldbody></mujoco>"""


class Bead(Task):
    """A bead on a sloping rail, pushed by a force."""

    name = "beads_Bead"
    num_dofs = 1
    dt = 0.05
    goal_keys = ()
    default_action_dim = 1
    clip_actions = clip_observations = 5.0
    fitness_meaning = MEANING
    fields: ClassVar = {
        "position": Field((), "m", "place on the rail"),
        "speed": Field((), "m/s", "speed along the rail"),
        "actions": Field((1,), "-", "last action"),
        "progress_buf": Field((), "control steps", "steps since the episode began; int64"),
    }
    refusals: ClassVar = dict.fromkeys(("compute_torque", "compute_dof_target"), "beads are pushed by actions")

    def __init__(self, cfg: Mapping[str, Any], num_envs: int, device: str) -> None:
        self.push, self.max_episode_length = float(cfg["push"]), int(cfg["steps"])
        self.num_envs, self.device = num_envs, torch.device(device)
        self.state = {key: torch.zeros(num_envs, device=device) for key in ("position", "speed")}
        self.default_state, self.constants = {}, {}
        self.unstable = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self.contact_overflows = torch.zeros(num_envs, dtype=torch.int32, device=device)
        self.engine_warnings: dict[str, int] = {}
        self.actions = torch.zeros(num_envs, 1, device=device)

    @property
    def bytes_per_env(self) -> int:
        return 1024

    def attach(self, groups: EnvGroups) -> None:
        self.actions = groups.actions

    def set_drive_mode(self, effort: Tensor) -> None:
        pass

    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        return torch.zeros_like(action)

    def step(self, command: Tensor) -> None:
        self.state["speed"].mul_(0.9).add_(self.dt * (self.push * self.actions[:, 0] - 0.2))  # it slopes
        self.state["position"].add_(self.dt * self.state["speed"])

    def prepare_reset(self, mask: Tensor) -> None:
        self.state["position"].masked_fill_(mask, 0.5)
        self.state["speed"].masked_fill_(mask, 0.0)

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        if initial or not goal:
            self.prepare_reset(mask)

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        return 1.0 - state["position"].abs()

    def pose_source(self) -> PoseSource:
        return PoseSource(
            mujoco.MjModel.from_xml_string(RAIL), lambda: self.state["position"].double().numpy()[:, None]
        )

    def get_state(self) -> dict[str, Tensor]:
        return {key: x.to("cpu", copy=True) for key, x in self.state.items()}

    def set_state(self, state: dict[str, Tensor]) -> None:
        for key, x in self.state.items():
            x.copy_(state[key])


class Beads(TaskSource):
    """The bead, as ``beads:Bead``."""

    prefixes = ("beads:",)

    def find(self, address: str) -> TaskSpec:
        if address != "beads:Bead":
            raise ValueError(f"unknown task '{address}'; there is beads:Bead")
        return TaskSpec(
            name=Bead.name,
            folder=HOME,
            config=HOME / "bead.yaml",
            make=lambda cfg, num_envs, sim, device: Bead(cfg, num_envs, device),
            source=address,
            digest="1",
            summary="A bead on a rail.",
            fitness_meaning=MEANING,
            can=frozenset({Can.REGROUPS, Can.CHECKED_CONFIG}),
            config_keys=("name", "push", "steps"),
        )
