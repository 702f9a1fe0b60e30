"""Checks of what a task's own code returns, and its exceptions as messages with their place."""

import math
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError, near_matches, type_and_line
from envcoder_bench.tasks.base import Task
from envcoder_bench.tasks.sim_task import SimTask

PACKAGE = Path(__file__).resolve().parent.parent


@contextmanager
def task_code(folder: Path, where: str = "") -> Iterator[None]:
    """Convert an exception of a task's code to a one-line ValueError with its place.

    Args:
        folder: the task's folder; an exception that does not pass through its files is raised as it is.
        where: the beginning of the message.
    """
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        passed = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in passed if folder in Path(frame.filename).parents]
        where_raised = f"{inside[-1].filename}:{inside[-1].lineno}: " if inside else ""
        in_package = PACKAGE in Path(passed[-1].filename).parents and passed[-1] not in inside
        if isinstance(error, SyntaxError):
            where_raised = f"{error.filename}:{error.lineno}: "
        elif isinstance(error, ValueError) and in_package:
            raise  # it says what is wrong
        elif not inside and not where:
            raise
        raise ValueError(f"{where}{where_raised}{type_and_line(error)}") from error


def check_default_state(task: SimTask) -> None:
    """Check that an episode begins in a complete state, which does not depend on the one before.

    Raises:
        ValueError: ``default_state`` lacks a key, has an unknown one, or a tensor of another shape.
    """
    sim, n, joints = task.sim, task.num_envs, task.num_dofs
    shapes = {"root_states": (n, 13), "dof_pos": (n, joints), "dof_vel": (n, joints)}
    shapes.update({key: (n, 13) for key in task.object_keys})
    where = f"{task.name}: default_state"
    if not isinstance(task.default_state, dict):
        raise ValueError(f"{where} must be a dict of tensors, not {type(task.default_state).__name__}")
    if not sim.floating:
        del shapes["root_states"]
        if "root_states" in task.default_state:
            raise ValueError(f"{where} has 'root_states', but the robot has no free joint: its base cannot move")
    # what it has: known keys of the right shapes
    for key, x in task.default_state.items():
        if key not in shapes:
            raise ValueError(f"{where} has '{key}'{near_matches(key, shapes)}; its keys are {', '.join(shapes)}")
        if not isinstance(x, Tensor) or tuple(x.shape) != shapes[key]:
            actual = tuple(x.shape) if isinstance(x, Tensor) else f"a {type(x).__name__}"
            raise ValueError(f"{where}['{key}'] is {actual}: for {n} environments it must be {shapes[key]}")
    # and all of them, except those without numbers
    missing = [key for key, shape in shapes.items() if key not in task.default_state and math.prod(shape)]
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}: without it an episode begins where the last one ended")


def check_fitness_value(task: Task, state: dict[str, Tensor]) -> None:
    """Call the task's fitness once, so that a mistake in it is found before training.

    Args:
        state: the state of some environments, with ``actions`` and ``progress_buf``.

    Raises:
        ValueError: it is not a finite number of each environment.
    """
    value = task.fitness(state)
    n = len(state["progress_buf"])
    where = f"{task.name}: fitness returns"
    if not isinstance(value, Tensor) or tuple(value.shape) != (n,):
        returned = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{where} {returned}: for {n} environments it must be a tensor ({n},)")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{where} NaN or infinity one step after the beginning of an episode")


def computed(task: Task) -> dict[str, Tensor]:
    """Return copies of the keys of the state whose source is a function, and that no checkpoint keeps."""
    kept = {*task.goal_keys, *getattr(task, "kept_keys", ())}
    keys = [key for key, field in task.fields.items() if callable(field.source) and key in task.state]
    return {key: task.state[key].clone() for key in keys if key not in kept}


def frozen(task: Task, before: Mapping[str, Tensor]) -> list[str]:
    """Return the keys that stayed as they were although their source has another value now.

    Args:
        before: the result of ``computed``. Sources that draw random numbers are left out.
    """
    keys = []
    for key, x in before.items():
        source = task.fields[key].source
        if callable(source) and _equal(task.state[key], x):
            now, again = source(task), source(task)
            if _equal(now, again) and not _equal(now, x):
                keys.append(key)
    return keys


def frozen_message(key: str) -> str:
    """Return what is wrong with a key that ``frozen`` returned."""
    return (
        f"'{key}' keeps the value of the moment at which the task was built: its source must return a view of the"
        " simulator's tensors; copy what is computed into the tensor in step and reset, and list the key in kept_keys"
        " (also if its value is to stay)"
    )


def warn_of_frozen(task: Task, before: Mapping[str, Tensor]) -> None:
    """Warn of each key that ``frozen`` returns."""
    for key in frozen(task, before):
        warnings.warn(f"{task.name}: {frozen_message(key)}", RuntimeWarning, stacklevel=2)


def _equal(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and bool(torch.allclose(x, y, rtol=0.0, atol=0.0, equal_nan=True))
