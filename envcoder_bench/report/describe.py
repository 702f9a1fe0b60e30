"""What a task offers to candidates, as text: its fitness, the functions that shape it, and the keys of its state."""

from __future__ import annotations

import ast
import textwrap
from typing import Dict, List, Type

from envcoder_bench.shaping import contract
from envcoder_bench.tasks.base import BASELINES
from envcoder_bench.tasks.registry import baseline_path, get_spec
from envcoder_bench.tasks.sim_task import SimTask


def describe(name: str, width: int = 110) -> str:
    """Describe a task on lines of about ``width`` characters.

    Raises:
        ValueError: there is no such task.
    """
    task = get_spec(name).task_class
    sections = [
        _wrap(f"{name}: {(task.__doc__ or '').splitlines()[0]}", width),
        _wrap(f"fitness: {task.fitness_meaning} (--fitness FILE puts another in its place)", width, indent="  "),
        "functions that a candidate may define, what they return for n environments, and what the baselines do",
        *_functions(name, task, width),
        "state_dict, a tensor for each key; the first axis is the environments; constants have none",
        _state(task, width),
    ]
    return "\n\n".join(sections)


def _functions(name: str, task: Type[SimTask], width: int) -> List[str]:
    settable = (*contract.INITIAL_STATE_KEYS, *task.object_keys)
    initial = [f"{key} {_shape(task, key)}" for key in settable if key in task.fields]
    goals = [f"{key} {_shape(task, key)}" for key in task.goal_keys]
    joints = _shape(task, "dof_pos")
    returns = {
        contract.REWARD: "(n,), or a pair of it and {component: (n,)}",
        contract.OBSERVATION: "(n, k), any k",
        contract.TORQUE: f"{joints} joint torques, N m (forces, N), held for the control step",
        contract.DOF_TARGET: f"{joints} position targets of the joints' drives where the model has them, rad; or else"
        f" {contract.TORQUE}",
        contract.INITIAL_STATE: f"a dict of some of {', '.join(initial)}",
        contract.GOAL: f"a dict of some of {', '.join(goals)}" if goals else "not called: this task has no goal",
        contract.TERMINAL: "(n,), true where the episode ends; time-outs are added",
    }
    purposes = {baseline: _purposes(name, baseline) for baseline in BASELINES}
    sections: List[str] = []
    for function, returned in returns.items():
        lines = [_wrap(f"  {function}: {returned}", width, indent="    ")]
        for baseline, own in purposes.items():
            if function in own:
                lines.append(_wrap(f"    {baseline}: {own[function]}", width, indent="      "))
        sections.append("\n".join(lines))
    if task.default_action_dim is not None:
        text = f"  without an action function: {task.default_action_dim} actions move the task's own position drives"
        sections.append(_wrap(text, width))
    return sections


def _purposes(name: str, baseline: str) -> Dict[str, str]:
    """The first line of each function's docstring in a baseline's file, which is not run."""
    module = ast.parse(baseline_path(name, baseline).read_text(encoding="utf-8"))
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    return {node.name: (ast.get_docstring(node) or "-").splitlines()[0] for node in functions}


def _shape(task: Type[SimTask], key: str) -> str:
    shape = task.fields[key].shape
    if shape is None:
        return "constant"
    return f"({', '.join(['n', *map(str, shape)])}{',' if not shape else ''})"


def _state(task: Type[SimTask], width: int) -> str:
    columns = [(key, _shape(task, key), field.unit) for key, field in task.fields.items()]
    longest = [max(len(row[k]) for row in columns) for k in range(3)]
    lines: List[str] = []
    for row, field in zip(columns, task.fields.values()):
        head = "  " + "  ".join(cell.ljust(n) for cell, n in zip(row, longest)) + "  "
        # wrapped without the head, whose spaces align the columns
        meaning = _wrap(field.meaning, max(20, width - len(head))).splitlines()
        lines += [head + meaning[0], *(" " * len(head) + line for line in meaning[1:])]
    return "\n".join(lines)


def _wrap(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
