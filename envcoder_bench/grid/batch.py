"""Many episodes of several policies on several arenas in one simulation.

A robot's numbers are computed from its own rows only. So an episode is the same alone and among others, bitwise on
the CPU. On CUDA a control step is two graphs, the simulator's and the rest; the host waits for the device only
when it looks for ended episodes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.core.errors import first_line
from envcoder_bench.core.graph_capture import capturing
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.grid.policies import LoadedPolicy
from envcoder_bench.grid.protocol import RUNNING, Episodes, by_rows, result, roll_pitch_yaw, rotate_inverse
from envcoder_bench.grid.robots import Robot, observe
from envcoder_bench.grid.settings import GridSettings
from envcoder_bench.sim.base import Simulator
from envcoder_bench.terrain.arenas import ArenaLookup, Arenas
from envcoder_bench.terrain.scan import turned

_AROUND = [(0.1 * x, 0.1 * y) for x in range(-4, 5) for y in range(-3, 4)]  # m, points on the ground around a start
_SMALLEST = 16  # robots; a simulation with so few is not replaced by a smaller one
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Spec:
    """An episode: the indices of its policy and arena, and its number among the episodes of this pair."""

    policy: int
    arena: int
    number: int


@dataclass(frozen=True)
class Scene:
    """What all episodes of a grid have in common.

    Attributes:
        policies: on the device of the simulation.
        make: a function that returns a simulator with a number of robots that have the drives of a policy.
    """

    robot: Robot
    settings: GridSettings
    policies: Sequence[LoadedPolicy]
    arenas: Arenas
    make: Callable[[int, LoadedPolicy], Simulator]


class Batch:
    """Runs episodes to their ends.

    Args:
        specs: sorted by policy; the policies' drives are equal.

    Attributes:
        specs: the episodes of the simulation's robots, ended ones included until ``compact``.
        step_count: control steps so far.
    """

    def __init__(self, scene: Scene, specs: Sequence[Spec]) -> None:
        self.scene = scene
        self.step_count = 0
        self._reported: set[Spec] = set()
        self._build(list(specs))
        self._place()
        self._decide()

    def _build(self, specs: list[Spec]) -> None:
        # the simulation
        scene, cfg = self.scene, self.scene.settings
        self.specs = specs
        self.sim = scene.make(len(specs), scene.policies[specs[0].policy])
        device = self.device = self.sim.device
        self._graph: Any | None = None
        # each robot's arena
        arenas = scene.arenas.arenas
        self._arena = torch.tensor([spec.arena for spec in specs], device=device)
        offsets = torch.tensor(scene.arenas.offsets, dtype=torch.float32, device=device)
        lengths = torch.tensor([arena.length for arena in arenas], dtype=torch.float32, device=device)
        widths = torch.tensor([arena.width for arena in arenas], dtype=torch.float32, device=device)
        self._corner, self._middle = offsets[self._arena], 0.5 * widths[self._arena]
        self._lookup = ArenaLookup(scene.arenas, device)
        # drag in the zones
        self._drags = any(zone.drag for arena in arenas for zone in arena.zones)
        self._masses = self.sim.body_masses.to(device).view(1, -1, 1)
        figures = cfg.robots[scene.robot.name]
        self.episodes = Episodes(
            cfg, lengths[self._arena], self._middle, self._lookup.most, figures.fall_height, figures.fall_angle
        )
        # joints, and the targets and forces that are applied
        self._of_policies()
        joints = self._stance.shape[1]
        self._actions = torch.zeros(len(specs), joints, device=device)
        self._target = self._offset.clone()
        delay_steps = int(cfg.delay_ms * cfg.control_hz / 1000.0 + 0.5)
        self._waiting = torch.zeros(len(specs), delay_steps, joints, device=device)  # actions, the last ones first
        past_dim = max(policy.layout.width if policy.layout.histories else 0 for policy in scene.policies)
        self._past = torch.zeros(len(specs), past_dim, device=device)  # the last observations
        memory_dim = max(policy.memory_dim for policy in scene.policies)
        self._memory = torch.zeros(len(specs), memory_dim, device=device)
        self._forces = torch.zeros(len(specs), len(self.sim.body_names), 3, device=device)
        self._around = torch.tensor(_AROUND, device=device)
        # each policy's rows, height scan and scale
        self._slices = list(_slices([spec.policy for spec in specs]))
        scanned = {policy.layout.points for policy in scene.policies if policy.layout.scans}
        self._points = {points: torch.tensor(points, dtype=torch.float32, device=device) for points in scanned}
        self._capturable = all(scene.policies[policy].capturable for policy, _ in self._slices)

    def _of_policies(self) -> None:
        """Look up the numbers of each robot's policy: stance, base height, action scale and offset, and commands."""
        robot, rows = self.scene.robot, []
        robot_scale = self.scene.settings.robots[robot.name].action_scale
        for policy in self.scene.policies:
            numbers, scale = policy.deployment, policy.action_scale
            if numbers is not None:
                of_actions = numbers.action_scale, numbers.action_offset
                rows.append((numbers.stance, (numbers.height,), *of_actions, *zip(*numbers.commands)))
                continue
            scales = (robot_scale if scale is None else scale,) * len(robot.stance)
            rows.append((robot.stance, (robot.height,), scales, robot.stance, (-math.inf,) * 3, (math.inf,) * 3))
        table = [torch.tensor(column, dtype=torch.float32, device=self.device) for column in zip(*rows)]
        policies = torch.tensor([spec.policy for spec in self.specs], device=self.device)
        self._stance, height, self._action_scale, self._offset, self._slowest, self._fastest = (
            column[policies] for column in table
        )
        self._height = height[:, 0]

    def _place(self) -> None:
        """Write the seeded starts."""
        start, n = self.scene.settings.start, len(self.specs)
        lanes = torch.tensor([spec.number for spec in self.specs], dtype=torch.int64)
        joints = self._stance.shape[1]
        drawn = 2.0 * noise.uniform(self.scene.settings.seed, 0, Purpose.COMMAND, lanes, 3 + joints) - 1.0
        # a quaternion of a turn about z, the same bits for any number of robots
        half_yaw = (0.5 * start.spread_yaw) * drawn[:, 2]
        sine, cosine = by_rows(torch.sin, half_yaw), by_rows(torch.cos, half_yaw)
        drawn = drawn.to(self.device)
        root = torch.zeros(n, 13, device=self.device)
        root[:, 0] = start.x + start.spread_xy * drawn[:, 0]
        root[:, 1] = self._corner + self._middle + start.spread_xy * drawn[:, 1]
        root[:, 5], root[:, 6] = sine, cosine
        # above the highest ground around the robot
        highest = self._ground_around(root, self._around).amax(1)
        root[:, 2] = highest + self._height + start.clearance
        dof_pos = self._stance + start.spread_joints * drawn[:, 3:]
        self.sim.write(
            torch.ones(n, dtype=torch.bool, device=self.device), root, dof_pos, torch.zeros_like(self.sim.dof_vel)
        )

    def _ground_around(self, root: Tensor, points: Tensor) -> Tensor:
        """Return the ground's height ``(n, points)`` under points around the bases, which turn with their yaw."""
        x, y = turned(root[:, 3:7], points)
        return self._lookup.heights(self._arena, root[:, :1] + x, (root[:, 1:2] - self._corner.unsqueeze(1)) + y)

    def _decide(self) -> None:
        """Compute commands, observations, actions and forces from the present state."""
        sim, scene = self.sim, self.scene
        # the values that layouts may have, each in the base's frame
        root = sim.root_states
        x, y = root[:, 0].contiguous(), root[:, 1] - self._corner
        quat = root[:, 3:7]
        _, _, yaw = roll_pitch_yaw(quat)
        down = torch.zeros_like(root[:, :3])
        down[:, 2] = -1.0
        values = {
            "lin_vel": rotate_inverse(quat, root[:, 7:10]),
            "ang_vel": rotate_inverse(quat, root[:, 10:13]),
            "gravity": rotate_inverse(quat, down),
            "commands": self.episodes.commands(x, y, yaw).clamp(self._slowest, self._fastest),
            "gravity_turned": rotate_inverse(torch.cat([-quat[:, :3], quat[:, 3:]], dim=1), down),
            "joint_pos": sim.dof_pos - self._stance,
            "joint_angles": sim.dof_pos,
            "joint_vel": sim.dof_vel,
            "actions": self._actions,
        }
        # height scans, one for each grid of points
        scan, scans = scene.settings.scan, {}
        for points, tensor in self._points.items():
            above = root[:, 2:3] - self._ground_around(root, tensor) - scan.offset
            scans[points] = above.clamp(-scan.clip, scan.clip)
        # each policy acts on its rows
        first = self.episodes.state["steps"].unsqueeze(1) == 0
        for policy, rows in self._slices:
            loaded = scene.policies[policy]
            policy_values = {name: value[rows] for name, value in values.items()}
            if loaded.layout.scans:
                policy_values["scan"] = scans[loaded.layout.points][rows]
            memory, past = self._memory[rows, : loaded.memory_dim], self._past[rows, : loaded.layout.width]
            obs = observe(loaded.layout, policy_values, past, first[rows])
            if loaded.layout.histories:
                past.copy_(obs)
            actions, new_memory = loaded.act(obs, memory)
            memory.copy_(new_memory)
            for column, joint in enumerate(loaded.layout.joints):
                self._actions[rows, joint] = actions[:, column]
        # actions of this step, and those that wait
        queue = torch.cat([self._actions.unsqueeze(1), self._waiting], dim=1)
        self._waiting.copy_(queue[:, :-1])
        self._target.copy_(self._offset + self._action_scale * queue[:, -1])
        # drag, as forces on all bodies
        if self._drags:
            # the robot loses this share of its velocity along x in the step
            lost_share = 1.0 - 1.0 / (1.0 + 0.1 * self._lookup.drag(self._arena, x))
            self._forces[:, :, 0] = self._masses[:, :, 0] * (-lost_share * root[:, 7] / scene.settings.dt).unsqueeze(1)

    def _account(self) -> None:
        """Count the control step that has been taken."""
        sim, root = self.sim, self.sim.root_states
        x, y = root[:, 0].contiguous(), root[:, 1] - self._corner
        height = root[:, 2] - self._lookup.heights(self._arena, x, y)
        a, b, c = root[:, 10:13].unbind(1)
        work = (sim.dof_force * sim.dof_vel).abs()
        power = work[:, 0].clone()
        for column in range(1, work.shape[1]):  # a sum in a fixed order
            power += work[:, column]
        self.episodes.update(
            x,
            y,
            height,
            root[:, 3:7],
            root[:, 7],
            torch.sqrt(a * a + b * b + c * c),
            power,
            self._lookup.zone(self._arena, x),
            sim.unstable,
        )

    def _after_step(self) -> None:
        self._account()
        self._decide()

    def advance(self, steps: int) -> None:
        """Take control steps."""
        with torch.no_grad():
            for _ in range(steps):
                if self._drags:
                    self.sim.apply_forces(self._forces)
                self.sim.step(self._target)
                if self._graph is not None:
                    self._graph.replay()
                else:
                    self._after_step()
                    if self.device.type == "cuda" and self._capturable:
                        self._capture()
                self.step_count += 1

    def _capture(self) -> None:
        """Record ``_after_step`` as a CUDA graph; nothing is computed while it is recorded."""
        # warming up and recording change the episodes: their state is restored afterwards
        tensors = [*self.episodes.state.values(), *self._step_state().values()]
        saved = [tensor.clone() for tensor in tensors]
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        try:
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self._after_step()
            torch.cuda.current_stream(self.device).wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with capturing(graph, self.device):
                self._after_step()
            self._graph = graph
        except RuntimeError as error:
            log.warning("no CUDA graph, slower: %s", first_line(error))
            self._capturable = False
        for tensor, before in zip(tensors, saved):
            tensor.copy_(before)

    def ended(self) -> Iterator[tuple[Spec, dict[str, Any]]]:
        """Return the episodes that have ended since the last call, with their metrics; waits for the device."""
        ends = self.episodes.end.tolist()
        new = [k for k, end in enumerate(ends) if end != RUNNING and self.specs[k] not in self._reported]
        if not new:
            return
        rows = {name: tensor[new].tolist() for name, tensor in self.episodes.state.items()}
        for row, k in enumerate(new):
            spec = self.specs[k]
            self._reported.add(spec)
            starts = self.scene.arenas.arenas[spec.arena].starts
            yield spec, result(self.scene.settings, starts, {name: values[row] for name, values in rows.items()})

    @property
    def running(self) -> int:
        """Number of episodes whose end has not been returned yet."""
        return sum(spec not in self._reported for spec in self.specs)

    def compact(self, share: float) -> bool:
        """Go on with a smaller simulation if less than ``share`` of the robots are left; return whether it does."""
        left = [k for k, spec in enumerate(self.specs) if spec not in self._reported]
        if not left or len(left) >= share * len(self.specs) or len(self.specs) <= _SMALLEST:
            return False
        self._restore(select(self.state(), left, len(self.specs)), [self.specs[k] for k in left])
        return True

    def state(self) -> dict[str, Tensor]:
        """Return the state of all robots, as CPU tensors with a row each."""
        state = {f"episodes.{name}": tensor.cpu().clone() for name, tensor in self.episodes.state.items()}
        state.update({f"sim.{name}": tensor for name, tensor in self.sim.get_state().items()})
        return {**state, **{name: tensor.cpu().clone() for name, tensor in self._step_state().items()}}

    def _step_state(self) -> dict[str, Tensor]:
        """Return the tensors besides those of simulator and episodes that the next step reads, by name."""
        names = ("actions", "target", "forces", "waiting", "memory", "past")
        return {name: getattr(self, f"_{name}") for name in names}

    def _restore(self, state: Mapping[str, Tensor], specs: list[Spec]) -> None:
        self._build(specs)
        self.sim.set_state({name[4:]: tensor for name, tensor in state.items() if name.startswith("sim.")})
        for name, tensor in self.episodes.state.items():
            tensor.copy_(state[f"episodes.{name}"])
        for name, tensor in self._step_state().items():
            tensor.copy_(state[name])

    @classmethod
    def resumed(cls, scene: Scene, specs: Sequence[Spec], state: Mapping[str, Tensor], step_count: int) -> Batch:
        """Go on from ``state``, whose ended episodes have been returned."""
        batch = cls.__new__(cls)
        batch.scene, batch.step_count, batch._reported = scene, step_count, set()
        batch._restore(state, list(specs))
        ends = batch.episodes.end.tolist()
        batch._reported = {spec for spec, end in zip(specs, ends) if end != RUNNING}
        return batch


def select(state: Mapping[str, Tensor], rows: Sequence[int], count: int) -> dict[str, Tensor]:
    """Return the state of some robots of ``count``."""
    chosen = torch.tensor(list(rows))
    for name, tensor in state.items():
        if tensor.dim() == 0 or len(tensor) != count:
            raise ValueError(f"the state's {name} has no row for each robot")
    return {name: tensor[chosen].clone() for name, tensor in state.items()}


def _slices(policies: Sequence[int]) -> Iterator[tuple[int, slice]]:
    """Yield each policy with its rows, which are adjacent."""
    begin = 0
    for k in range(1, len(policies) + 1):
        if k == len(policies) or policies[k] != policies[begin]:
            yield policies[begin], slice(begin, k)
            begin = k
