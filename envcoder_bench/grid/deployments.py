"""The numbers that a policy's own files have: joints, gains, stance, action scales, what it observes, its commands.

They are the properties of an ONNX file, by the names of mjlab's exporter, or Unitree's deploy.yaml beside the policy.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import UserError, message_line
from envcoder_bench.core.yaml_files import parse_plain
from envcoder_bench.grid.robots import Layout, Robot, base_height_of
from envcoder_bench.grid.settings import JOINTS, GridSettings

OWN = "own"  # the name of a layout that comes with its policy
DEPLOY = ("deploy.yaml", "params/deploy.yaml", "../params/deploy.yaml")  # beside a policy's file
_PARTS = {  # names of mjlab's observation terms, and of the functions of Unitree's runtime
    **{"base_lin_vel": "lin_vel", "base_ang_vel": "ang_vel", "projected_gravity": "gravity"},
    **{"command": "commands", "velocity_commands": "commands"},
    **{"joint_pos": "joint_pos", "joint_pos_rel": "joint_pos", "joint_vel": "joint_vel", "joint_vel_rel": "joint_vel"},
    **{"actions": "actions", "last_action": "actions"},
}
_OBJECTS = re.compile(r"!!python/\S+")  # tags of objects of Python, which unitree_rl_lab writes
_OF_JOINTS = ("stiffness", "damping", "stance", "scale", "offset")
_AXES = ("lin_vel_x", "lin_vel_y", "ang_vel_z")
Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Deployment:
    """A policy's own numbers, with joints in the robot's order.

    Attributes:
        stiffness, damping: of the position drives, N m/rad and N m s/rad.
        stance: rad; observed joint positions are relative to it.
        action_scale, action_offset: joint target = offset + scale * action, rad.
        height: of the base in the stance on flat ground, m.
        layout: what the policy observes.
        commands: the range of each command, m/s and rad/s.
        files: what it was read from.
    """

    stiffness: Numbers
    damping: Numbers
    stance: Numbers
    action_scale: Numbers
    action_offset: Numbers
    height: float
    layout: Layout
    commands: tuple[tuple[float, float], ...]
    files: tuple[str, ...]

    @property
    def gains(self) -> tuple[Numbers, Numbers]:
        """Stiffness and damping."""
        return self.stiffness, self.damping


def read_deployment(name: str, path: Path, robot: Robot, settings: GridSettings) -> Deployment:
    """Read the numbers of a policy.

    Raises:
        UserError: there are none, or they do not fit the robot or the grid.
    """
    places = [(path.parent / word).resolve() for word in DEPLOY]
    beside = next((place for place in places if place.is_file()), None)
    properties = _properties(path) if path.suffix == ".onnx" else {}
    if "observation_terms_history_length" not in properties and beside is None:
        raise UserError(
            f"policy {name}: {path} does not have the gains and observations of {robot.name}: give an ONNX file that"
            " envcoder-bench export wrote of a task of mjlab, or one with Unitree's deploy.yaml beside it"
        )
    file, document = path, {}
    try:
        if beside is not None:
            file, document = beside, parse_plain(_OBJECTS.sub("", beside.read_text(encoding="utf-8")))
            ranges = document["commands"]["base_velocity"]["ranges"]
        else:
            ranges = {}
        commands = tuple(_pair(ranges.get(axis)) for axis in _AXES)
        if "observation_terms_history_length" in properties:
            file, numbers = path, _of_properties(properties, robot)
        else:
            numbers = _of_document(document, robot, settings.robots[robot.name].sdk_joints)
        numbers.check(settings)
        files = () if beside is None else (str(beside),)
        return numbers.deployment(robot, commands, files)
    except KeyError as error:
        raise UserError(f"policy {name}: {file}: the key {error} is missing") from error
    except (TypeError, AttributeError, IndexError, ValueError) as error:
        raise UserError(f"policy {name}: {file}: {message_line(error)}") from error


@dataclass(frozen=True)
class _Raw:
    """Numbers of a file, with joints in the policy's order.

    Attributes:
        joints: the robot's indices of the policy's joints.
        terms: name, scale, range, steps and width of each observation term.
    """

    joints: tuple[int, ...]
    step: float
    stiffness: Sequence[float]
    damping: Sequence[float]
    stance: Sequence[float]
    scale: Sequence[float]
    offset: Sequence[float]
    terms: Sequence[tuple[str, Any, Any, int, int]]

    def check(self, settings: GridSettings) -> None:
        """Raise ValueError if the policy acts at another rate."""
        if not math.isclose(self.step, settings.dt, rel_tol=1e-3):
            raise ValueError(f"it acts every {self.step:g} s, and the grid every {settings.dt:g} s: set control_hz")

    def deployment(self, robot: Robot, commands: Any, files: tuple[str, ...]) -> Deployment:
        """Return the numbers in the robot's order. Raises ValueError for a wrong count or an unknown term."""
        stiffness, damping, stance, scale, offset = map(self._ordered, _OF_JOINTS)
        height, layout = base_height_of(robot, stance), _layout(self.terms, self.joints)
        return Deployment(stiffness, damping, stance, scale, offset, height, layout, commands, files)

    def _ordered(self, key: str) -> Numbers:
        values = [float(x) for x in getattr(self, key)]
        if len(values) != len(self.joints) or not all(map(math.isfinite, values)):
            raise ValueError(f"{key} must be {len(self.joints)} finite numbers, got {len(values)}")
        placed = dict(zip(self.joints, values))
        return tuple(placed[k] for k in range(len(values)))


def _layout(terms: Sequence[tuple[str, Any, Any, int, int]], joints: tuple[int, ...]) -> Layout:
    parts, scales, widths, histories, clips = [], [], [], [], []
    for term, scale, clip, history, width in terms:
        if term not in _PARTS:
            raise ValueError(f"the observation {term} is not supported; there are {', '.join(_PARTS)}")
        part, steps = _PARTS[term], max(1, int(history))
        each = len(joints) if part in JOINTS else 3
        if width != each * steps:
            raise ValueError(f"the observation {term} has {width} numbers in {steps} steps, and not {each} a step")
        factors = [float(x) for x in scale] if isinstance(scale, (list, tuple)) else [float(scale)] * each
        if len(factors) != each:
            raise ValueError(f"the observation {term} has {len(factors)} scales for {each} numbers")
        parts.append(part)
        scales.append(factors[0] if len(set(factors)) == 1 else tuple(factors))
        widths.append(width)
        histories.append(steps)
        clips.append(_pair(clip))
    limited = any(math.isfinite(end) for clip in clips for end in clip)
    return Layout(
        OWN,
        tuple(parts),
        tuple(scales),
        joints,
        tuple(widths),
        histories=tuple(histories) if max(histories, default=1) > 1 else (),
        clips=tuple(clips) if limited else (),
    )


def _pair(ends: Any) -> tuple[float, float]:
    """Return a range; an unlimited one for null."""
    low, high = (-math.inf, math.inf) if ends is None else map(float, ends)
    if not low <= high:
        raise ValueError(f"{ends} is not a range")
    return low, high


def _joints(names: Sequence[str], robot: Robot) -> tuple[int, ...]:
    if sorted(names) != sorted(robot.dof_names):
        wrong = sorted(set(names) ^ set(robot.dof_names)) or sorted(names)
        raise ValueError(
            f"its {len(names)} joints are not the {len(robot.dof_names)} of the model, which differ in {wrong[0]}"
        )
    return tuple(robot.dof_names.index(name) for name in names)


# properties of ONNX


def _properties(path: Path) -> dict[str, str]:
    import onnx

    return {entry.key: entry.value for entry in onnx.load(str(path), load_external_data=False).metadata_props}


def _of_properties(properties: Mapping[str, str], robot: Robot) -> _Raw:
    def numbers(name: str, kind: Callable[[str], Any] = float) -> list[Any]:
        return [kind(word) for word in properties[name].split(",")]

    def several(word: str) -> Any:
        values = [float(x) for x in word.split(";")]
        return values if ";" in word else values[0]

    names, joints = numbers("observation_names", str), _joints(numbers("joint_names", str), robot)
    if "False" in properties.get("observation_terms_flatten_history_dim", ""):
        raise ValueError("its histories are not flat")
    columns = {"scale": several, "clip": several, "history_length": int, "width": int}
    lists = [numbers(f"observation_terms_{key}", kind) for key, kind in columns.items()]
    if any(len(values) != len(names) for values in lists):
        raise ValueError(f"it has {len(names)} observations, and other numbers of scales, ranges, histories or widths")
    keys = ("joint_stiffness", "joint_damping", "default_joint_pos", "action_scale", "action_offset")
    of_joints = {field: numbers(key) for field, key in zip(_OF_JOINTS, keys)}
    return _Raw(joints, float(properties["control_dt"]), **of_joints, terms=[*zip(names, *lists)])


# deploy.yaml


def _of_document(document: Mapping[str, Any], robot: Robot, sdk_joints: Any) -> _Raw:
    """Gains are in the order of the SDK's joints, everything else in the policy's."""
    if sdk_joints is None:
        raise ValueError(f"it does not name its joints: set robots.{robot.name}.sdk_joints to model, or to their names")
    sdk = _joints(robot.dof_names if sdk_joints == "model" else sdk_joints, robot)
    order = document["joint_ids_map"]
    if sorted(order) != list(range(len(sdk))):
        raise ValueError(f"joint_ids_map must have each of 0 to {len(sdk) - 1} once: the model has {len(sdk)} joints")
    if set(document["actions"]) != {"JointPositionAction"}:
        raise ValueError(f"its actions are {', '.join(document['actions'])}, and must be JointPositionAction")
    action = document["actions"]["JointPositionAction"]
    if action.get("clip") is not None:
        raise ValueError("actions.JointPositionAction.clip is not supported")
    stiffness, damping = ([document[key][k] for k in order] for key in ("stiffness", "damping"))
    terms = []
    for name, term in document["observations"].items():
        steps = max(1, int(term["history_length"]))
        terms.append((name, term["scale"], term["clip"], steps, len(term["scale"]) * steps))
    stance, scale, offset = document["default_joint_pos"], action["scale"], action["offset"]
    joints = tuple(sdk[k] for k in order)
    return _Raw(joints, float(document["step_dt"]), stiffness, damping, stance, scale, offset, terms)
