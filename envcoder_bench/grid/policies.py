"""A grid's policies: checked against their robot, with the layout that they observe."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.folders import RUN, folder_kind
from envcoder_bench.grid.deployments import OWN, Deployment, read_deployment
from envcoder_bench.grid.policy_files import OnnxSession, RunPolicy, memory_of, read_policy
from envcoder_bench.grid.robots import ROBOTS, Layout, Robot
from envcoder_bench.grid.settings import GridSettings

_ROWS = (64, 16, 4, 1)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy of a grid.

    Attributes:
        module: observations ``(n, obs_dim)`` to actions ``(n, joints)``; one with memory takes observations and memory
            side by side, and returns actions and memory so.
        capturable: whether it can be part of a CUDA graph.
        rows: rows of a call on the CPU, so many that a row's bits do not depend on the other rows, and that it takes.
        action_scale: joint target = stance + action_scale * action, rad; None for the robot's scale.
        deployment: its own numbers; None for the robot's.
    """

    name: str
    file: str
    kind: str
    module: nn.Module
    layout: Layout
    capturable: bool
    rows: int
    action_scale: float | None = None
    deployment: Deployment | None = None

    @property
    def memory_dim(self) -> int:
        """Numbers that the policy keeps between steps, 0 when an episode begins."""
        return memory_of(self.module)

    @torch.no_grad()
    def act(self, obs: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return actions ``(n, joints)`` and memory ``(n, memory_dim)``; on a CPU a row's bits depend on it only.

        Without ``memory`` an episode begins.
        """
        memory = obs.new_zeros(len(obs), self.memory_dim) if memory is None else memory
        both = torch.cat([obs, memory], dim=1) if self.memory_dim else obs
        on_cpu = obs.device.type == "cpu" or isinstance(self.module, OnnxSession)
        out = in_blocks(self.module, both, self.rows) if on_cpu else _actions(self.module(both))
        joints = out.shape[1] - self.memory_dim
        return out[:, :joints], out[:, joints:]


def in_blocks(module: nn.Module, obs: Tensor, rows: int) -> Tensor:
    """Call a module with blocks of ``rows`` rows. Zeros fill up the last block."""
    padded = torch.nn.functional.pad(obs, (0, 0, 0, -len(obs) % rows))
    blocks = [_actions(module(padded[k : k + rows])) for k in range(0, len(padded), rows)]
    return torch.cat(blocks)[: len(obs)]


def _actions(out: Any) -> Tensor:
    return out[0] if isinstance(out, (tuple, list)) else out


def load_policy_file(
    name: str,
    path: str | Path,
    layouts: Mapping[str, Layout],
    layout: str | None,
    robot: Robot,
    settings: GridSettings | None = None,
) -> LoadedPolicy:
    """Read a policy.

    Args:
        path: the file, or a run folder's candidate with a ``policy.pth``.
        layout: a name of ``layouts``; None for the first layout with the policy's width.

    Returns:
        The policy, on the CPU.

    Raises:
        UserError: the file cannot be read, or the policy's widths do not fit.
    """
    path = Path(path)
    if path.is_dir():
        if folder_kind(path) == RUN:
            raise UserError(
                f"policy {name}: {path} is the folder of a run; give it without {name}= for all its candidates, or"
                f" {path / 'candidates'}/<name>"
            )
        path = path / "policy.pth"
    if not path.is_file():
        raise UserError(f"policy {name}: the file {path} does not exist")
    kind, module, capturable = read_policy(name, path)
    module.eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    # the width tells which observation it reads
    deployment = None
    if not robot.stance:
        if isinstance(module, RunPolicy) or settings is None:
            raise UserError(f"policy {name}: {path} has no gains: give the ONNX file of envcoder-bench export")
        deployment = read_deployment(name, path, robot, settings)
        layouts, layout = {OWN: deployment.layout}, OWN
    width = input_width(module, layouts)
    if isinstance(module, RunPolicy):
        layout = _layout_of_run(name, module, width, layouts, layout, robot, settings)
    chosen = _layout(name, path, width, layouts, layout)
    _check_actions(name, path, module, chosen, len(robot.dof_names))
    scale, rows = _action_scale(module, chosen), _rows(module, chosen.width + memory_of(module))
    return LoadedPolicy(name, str(path), kind, module, chosen, capturable, rows, scale, deployment)


def _check_actions(name: str, path: Path, module: nn.Module, layout: Layout, joints: int) -> None:
    """Call a policy with its layout.

    Raises UserError if this fails, or if equal observations give different actions.
    """
    memory = memory_of(module)
    obs = torch.full((1, layout.width + memory), 0.5)
    with torch.no_grad():
        try:
            out = _actions(module(obs))
            first = out.clone() if isinstance(out, Tensor) else None  # a module may change a tensor after returning it
            again = _actions(module(obs))
        except Exception as error:
            message = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
            raise UserError(
                f"policy {name}: {path} does not take the {layout.width} observations of the layout {layout.name}:"
                f" {message}"
            ) from error
    if not isinstance(out, Tensor) or tuple(out.shape) != (1, joints + memory):
        width = type(out).__name__
        if isinstance(out, Tensor):
            width = out.shape[1] - memory if out.dim() == 2 else tuple(out.shape)[1:]
        raise UserError(f"policy {name}: {path} returns actions of width {width}, and the robot has {joints} joints")
    if first is None or not torch.equal(first, again):
        raise UserError(
            f"policy {name}: {path} returns different actions for the same observation: it has noise, or memory that it"
            " keeps itself; give rsl_rl's checkpoint or ONNX, whose memory can be read"
        )


def _action_scale(module: nn.Module, layout: Layout) -> float | None:
    """Return the scale of a policy's actions, from its layout or its run's task; None if neither has a scale."""
    if layout.action_scale is None and isinstance(module, RunPolicy) and module.control.get("actionScale") is not None:
        return float(module.control["actionScale"])
    return layout.action_scale


def _layout_of_run(
    name: str,
    module: RunPolicy,
    width: int | None,
    layouts: Mapping[str, Layout],
    wanted: str | None,
    robot: Robot,
    settings: GridSettings | None,
) -> str | None:
    """Return the layout of a run's policy, if it is known; warn if the drives differ from those in training."""
    tasks = [task for other in ROBOTS.values() for task in other.tasks]
    if module.task in tasks and module.task not in robot.tasks:
        raise UserError(f"policy {name}: it is of the task {module.task}, and the robot is {robot.name}")
    usual = "" if settings is None else settings.task_layouts.get(module.task, "")
    if wanted is None and module.observes:
        raise UserError(
            f"policy {name}: its candidate has a compute_observation of its own: give --layouts {name}=LAYOUT with a"
            f" layout that is the same (the task's human baseline observes as {usual or 'no known layout'})"
        )
    drives = {} if settings is None else dict(settings.robots[robot.name])
    for key in ("stiffness", "damping"):
        value = module.control.get(key)
        if value is not None and key in drives and float(value) != float(drives[key]):
            setting = f"robots.{robot.name}.{key}"
            log.warning("policy %s: it was trained with %s=%s, and the grid has %s", name, setting, value, drives[key])
    return usual if wanted is None and usual in layouts and layouts[usual].width == width else wanted


def _layout(name: str, path: Path, width: int | None, layouts: Mapping[str, Layout], wanted: str | None) -> Layout:
    sizes = ", ".join(f"{layout.name} {layout.width}" for layout in layouts.values())
    if wanted is not None:
        chosen = layouts[wanted]
        if width is not None and width != chosen.width:
            raise UserError(
                f"policy {name}: {path} takes {width} observations, and the layout {wanted} has {chosen.width}"
                f" (layouts: {sizes})"
            )
        return chosen
    if width is None:
        raise UserError(f"policy {name}: {path} does not say how many observations it takes: give --layouts {name}=...")
    # the first layout with this width; --layouts selects another one
    for chosen in layouts.values():
        if chosen.width == width:
            return chosen
    raise UserError(
        f"policy {name}: {path} takes {width} observations, and no layout has as many (layouts: {sizes}): define one in"
        " cfg/eval_policies.yaml (docs/eval_policies.md)"
    )


def input_width(module: nn.Module, layouts: Mapping[str, Layout]) -> int | None:
    """Return the width of a policy's observations: as declared, as accepted in a call, or of its first linear layer."""
    declared = getattr(module, "obs_dim", None)
    if isinstance(declared, int):
        return declared
    for width in dict.fromkeys(layout.width for layout in layouts.values()):
        try:
            with torch.no_grad():
                module(torch.zeros(1, width + memory_of(module)))
            return width
        except Exception:  # a foreign module may raise anything for a wrong width
            continue
    for key, weight in module.state_dict().items():
        if key.endswith("weight") and weight.dim() == 2:
            return int(weight.shape[1])
    return None


def _rows(module: nn.Module, width: int) -> int:
    """Return the largest number of _ROWS for which a row's bits depend neither on its index nor on the other rows."""
    generator = torch.Generator().manual_seed(0)
    for rows in _ROWS[:-1]:
        obs = torch.randn(rows, width, generator=generator)
        with torch.no_grad():
            try:
                actions = _actions(module(obs))
                rolled = _actions(module(obs.roll(1, 0).contiguous())).roll(-1, 0)
                single = in_blocks(module, obs[rows // 2 : rows // 2 + 1], rows)
            except Exception:  # the module may take only one row
                continue
        if torch.equal(actions, rolled) and torch.equal(single[0], actions[rows // 2]):
            return rows
    return 1
