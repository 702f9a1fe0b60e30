"""Write the folder of a new task from a robot's model: a complete task with an example goal, to be edited."""

import keyword
import re
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from envcoder_bench.core.errors import UserError, message_line
from envcoder_bench.core.words import counted
from envcoder_bench.sim.mujoco_model import RobotModel, load_robot
from envcoder_bench.sim.rendering import planar_base
from envcoder_bench.sim.robot_file import RobotFile, convert_file
from envcoder_bench.sources.registry import task_names

CONTROL_STEP = 0.02  # seconds, rounded to a whole number of the model's time steps
MODEL = "model.xml"
FILES = ("task.py", "task.yaml", "human.py", "unshaped.py")
WIDTH = 110  # characters in lines of numbers and names
_TAKEN = ("SimTask", "Field", "Any", "Tensor", "torch")  # names that a task file imports
_GENERIC = ("scene", "robot", "model", "main")  # names of files that say nothing about the robot


@dataclass(frozen=True)
class NewTask:
    """A task that was written.

    Attributes:
        driven: the joints that it drives, in the order of its actions.
        changes: what differs from the model's file, one line each.
        step: the length of a control step.
    """

    folder: Path
    name: str
    driven: list[str]
    changes: list[str]
    step: str


def new_task(
    model: Path, name: str | None = None, output: Path | None = None, floating: bool = False, ground: bool = False
) -> NewTask:
    """Write a task's folder from an MJCF or URDF file.

    Args:
        name: the name of the task; None derives it from the file's name.
        output: the folder, which must not exist; None for a folder of the task's name in the working folder.
        floating, ground: see ``convert``.

    Raises:
        UserError: the file cannot be read, has parts that are not supported, or the folder exists.
    """
    name = name or _name(model)
    folder = output or Path(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
    _check_names(model, name, folder)
    try:
        file = convert_file(model, floating, ground)
        robot = _load(file)
    except (ValueError, NotImplementedError) as error:
        text = message_line(error)
        raise UserError(text if text.startswith(str(model)) else f"{model}: {text}") from error
    # the files, from templates
    loader = PackageLoader("envcoder_bench.tools", "new_task_files")
    templates = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True)
    templates.filters["as_list"] = _list_code
    templates.filters["in_quotes"] = lambda text: re.sub(r'["\\]', "'", text)
    facts = _facts(name, model, file, robot)
    texts = {part: templates.get_template(f"{part}.jinja").render(facts).rstrip() + "\n" for part in FILES}
    # write only after all texts are known
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"--output {folder} cannot be made: {error.strerror}") from error
    file.write(folder / MODEL)
    for part, text in texts.items():
        (folder / part).write_text(text, encoding="utf-8")
    step = f"{robot.dt:.6g} s, {counted(robot.substeps, 'physics step')}"
    return NewTask(folder, name, [robot.dof_names[j] for j in robot.actuated], file.changes, step)


def _check_names(model: Path, name: str, folder: Path) -> None:
    if not model.is_file():
        raise UserError(f"{model}: {'it is a folder' if model.is_dir() else 'the file does not exist'}")
    if model.suffix not in (".xml", ".urdf"):
        raise UserError(f"{model}: give a robot's file that ends with .xml (MJCF) or .urdf")
    if not name.isidentifier() or keyword.iskeyword(name) or name in _TAKEN:
        raise UserError(f"--name {name}: it must be letters, digits and _, such as Pendulum, and not a word of Python")
    if name in task_names():
        raise UserError(f"--name {name}: there is a task of this name; choose another one")
    if folder.exists():
        raise UserError(f"{folder}: it exists already; give another folder with --output")


def _load(file: RobotFile) -> RobotModel:
    """Load a converted model. Raises ValueError if ``load_robot`` refuses it, or nothing drives it."""
    substeps = max(1, round(CONTROL_STEP / file.timestep))
    with tempfile.TemporaryDirectory() as scratch:
        file.write(Path(scratch) / MODEL)
        try:
            robot = load_robot(Path(scratch) / MODEL, substeps * file.timestep, substeps)
        except ValueError as error:
            raise ValueError(str(error).removeprefix(f"{Path(scratch) / MODEL}: ")) from None
    if not len(robot.actuated):
        raise ValueError(
            'no hinge or slide of the robot has an actuator: add <actuator><motor joint=... forcerange="-1 1"/>'
            f"</actuator>, in URDF <limit effort=.../>; its joints are {', '.join(robot.dof_names) or 'none'}"
        )
    return robot


def _name(model: Path) -> str:
    stem = model.parent.resolve().name if model.stem.lower() in _GENERIC else model.stem
    words = re.split(r"[^A-Za-z0-9]+", stem)
    name = "".join(word[:1].upper() + word[1:] for word in words) or "Robot"
    name = name if name.isidentifier() else f"Robot{name}"
    return f"My{name}" if name in task_names() else name


def _facts(name: str, model: Path, file: RobotFile, robot: RobotModel) -> Mapping[str, Any]:
    """Return the values that the templates print."""
    # Isaac Gym's order: quaternions end with w
    qpos, first = file.qpos, robot.first_qpos
    pose = [*qpos[:3], *qpos[4:7], qpos[3]] if robot.floating else []
    planar, height = None, float(qpos[2]) if robot.floating else 0.0
    base = None if robot.floating else planar_base(robot.mj_model)
    if base is not None:
        on_ground = [robot.dof_names.index(joint) for joint in base.on_ground]
        upward = None if base.upward is None else robot.dof_names.index(base.upward)
        seen = [k for k in range(len(robot.dof_names)) if k not in on_ground]
        planar, height = {"forward": on_ground[0], "upward": upward, "seen": seen}, base.height
    driven = robot.actuated.tolist()
    all_driven = len(driven) == len(robot.dof_names)
    # the column of each joint in the actions, which end with a zero for joints without a drive
    columns = [driven.index(j) if j in driven else len(driven) for j in range(len(robot.dof_names))]
    axes = {"joints": robot.dof_names, "bodies": robot.body_names, "sites": robot.sites.names}
    lines = []
    for kind, names in axes.items():
        if names:
            numbered = ", ".join(f"{k} {part}" for k, part in enumerate(names))
            lines += textwrap.wrap(f"{kind}: {numbered}", WIDTH - 2)
    return {
        "name": name,
        "source": model.name,
        "model": MODEL,
        "dof_names": robot.dof_names,
        "body_names": robot.body_names,
        "site_names": robot.sites.names,
        "axes": lines,
        "objects": [*zip(_keys(robot.object_names), robot.object_names)],
        "sensors": robot.sensor_names,
        "floating": robot.floating,
        "planar": planar,
        "moves": robot.floating or planar is not None,
        "driven": driven,
        "columns": None if all_driven else columns,
        "position": bool(np.all(robot.stiffness > 0)),
        "default_dof_pos": _digits(qpos[first : first + len(robot.dof_names)]),
        "default_root": [*_digits(pose), *[0.0] * 6],
        "height": float(f"{height:.4g}"),
        "timestep": robot.dt,
        "substeps": robot.substeps,
    }


def _list_code(values: list[Any]) -> str:
    """Return a list as Python code, on several lines if it is long."""
    lines = textwrap.wrap(f"{', '.join(map(str, values))},", WIDTH - 4)
    return f"[{lines[0][:-1]}]" if len(lines) == 1 else "\n".join(["[", *(f"    {line}" for line in lines), "]"])


def _keys(bodies: Sequence[str]) -> list[str]:
    """Return keys of the state for bodies, ``<body>_state``: different names that a parameter may have."""
    keys: list[str] = []
    for body in bodies:
        key = re.sub(r"\W", "_", f"{body}_state")
        key = key if key.isidentifier() else f"body_{key}"
        while key in keys:
            key = f"{key}_{len(keys) + 1}"
        keys.append(key)
    return keys


def _digits(values: Any) -> list[float]:
    return [round(float(x), 5) + 0.0 for x in values]
