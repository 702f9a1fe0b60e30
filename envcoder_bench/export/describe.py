"""The description of an exported policy: its inputs and outputs, with names, order, units and rates."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envcoder_bench.compile.program import ACTION, Program, reachable
from envcoder_bench.export.module import ACTIONS, COMMAND, OBS, Affine
from envcoder_bench.run.folder.policies import OpenedRun, Policy
from envcoder_bench.shaping.contract import CandidateFunction, Shaping
from envcoder_bench.shaping.kinds import VALUE
from envcoder_bench.tasks.contract import Key, TaskContract

FORMAT = 1  # version of the description
_JOINT = re.compile(r",\n\s*")
_ENVIRONMENT = {  # keys of the state that the environment owns
    "actions": Key((), "float32", "-", "the policy's last actions, clipped; 0 where an episode begins"),
    "progress_buf": Key((), "int64", "control steps", "control steps since the episode began"),
}


def observes_terms(description: Mapping[str, Any], widths: Sequence[int]) -> bool:
    """Return whether the policy observes the task's own terms, all of them in their order and nothing else."""
    columns = description["input"]["columns"] or ()
    return len(columns) == sum(widths) and all(
        x == {"reads": [f"obs_buf[{k}]"], "copied": True} for k, x in enumerate(columns)
    )


def describe(
    run: OpenedRun, policy: Policy, shaping: Shaping, contract: TaskContract, command: Affine | None
) -> dict[str, Any]:
    """Return the description as plain data for JSON; None means unknown or unlimited.

    Args:
        shaping: the candidate's shaping, checked and traced.
        command: the action function in the exported file; None if the file does not have it.
    """
    row = run.row(policy.candidate, policy.seed)
    # the keys of the state that the policy's functions read, if they are compiled
    observation, act = shaping.functions["observation"], shaping.functions.get("command")
    programs = [shaping.programs[stage] for stage in ("observation", "command") if stage in shaping.programs]
    read = sorted({name for program in programs for name in program.state_names()} - {ACTION})
    traced = "observation" in shaping.programs and (act is None or "command" in shaping.programs)
    state = {name: _key(contract, name) for name in (read if traced else (*contract.state, *_ENVIRONMENT))}
    return {
        "format": FORMAT,
        "task": contract.name,
        "candidate": policy.candidate,
        "seed": policy.seed,
        "fitness": None if row is None else _finite(row.fitness),
        "fitness_meaning": contract.fitness_meaning,
        "input": {
            "name": OBS,
            **_numbers(policy.obs_dim, contract.clip_observations, observation, run),
            "meaning": "the result of the observation function; clipping and normalization are part of the policy",
            "columns": _columns(shaping.programs.get("observation"), policy.obs_dim, state),
        },
        "outputs": {
            ACTIONS: _numbers(policy.action_dim, contract.clip_actions, act, run),
            COMMAND: _command(shaping, contract, command),
        },
        "rates": {
            "control_hz": 1.0 / contract.dt,
            "control_step_s": contract.dt,
            "physics_step_s": contract.dt / contract.substeps,
            "physics_steps_per_control_step": contract.substeps,
        },
        "episode_control_steps": contract.max_episode_length - 1,
        "state": state,
        "axes": {
            name: list(getattr(contract, name))
            for name in ("joints", "bodies", "sensors", "sites")
            if getattr(contract, name)
        },
    }


def _numbers(width: int, clip: float, function: CandidateFunction | None, run: OpenedRun) -> dict[str, Any]:
    """Describe an input or output of the policy, with the candidate's function that makes or reads it."""
    where = None if function is None else _place(function, run)
    return {"shape": ["n", width], "dtype": "float32", "clip": _finite(clip), "function": where}


def _command(shaping: Shaping, contract: TaskContract, command: Affine | None) -> dict[str, Any]:
    """Describe the drives' commands, also for a file without this output."""
    unit = "N m (slides: N)" if shaping.effort else "rad (slides: m)"
    described: dict[str, Any] = {
        "in_file": command is not None,
        "shape": ["n", contract.num_dofs],
        "dtype": "float32",
        "kind": "effort" if shaping.effort else "position_target",
        "unit": unit,
        "joints": list(contract.joints),
        "effort_limits": [_finite(x) for x in contract.effort_limits],
        "actuated": [i for i, limit in enumerate(contract.effort_limits) if limit != 0.0],
        "drives": None if shaping.effort else dict(contract.drives),
        "meaning": "held for a control step; the drives limit efforts to effort_limits (0: a passive joint);"
        " the actuators of model.xml are the joints at the positions actuated, in this order",
    }
    if command is None:
        described["why_not"] = "the action function also depends on the state, or is not linear: see actions.function"
    else:
        described["formula"] = "clamp(weight @ actions + bias, low, high)"
        described.update({name: _plain(getattr(command, name).tolist()) for name in command._fields})
    return described


def metadata(description: Mapping[str, Any], deployment: Mapping[str, Any]) -> dict[str, str]:
    """Return what programs of robots read from an ONNX file: the names are those of mjlab's exporter, where it has any.

    Lists have commas between their entries, and semicolons in an entry. Gains are of position drives, and
    ``default_joint_pos`` and ``action_scale`` need an action function that scales one action for each joint.

    Args:
        deployment: what the task itself tells of it.
    """
    command = description["outputs"][COMMAND]
    values: dict[str, Any] = {
        "joint_names": command.get("joints"),
        "joint_effort_limits": command.get("effort_limits"),
        "command_kind": command.get("kind"),
        "control_dt": description["rates"]["control_step_s"],
        "action_delay": 0.0,  # s, as the policy was trained
        "history_length": 1,  # control steps in an observation
    }
    if command.get("drives"):
        values.update({f"joint_{name}": command["drives"].get(name) for name in ("stiffness", "damping")})
        for name in ("joint_stiffness", "joint_damping"):  # one number for all joints
            if isinstance(values[name], (int, float)):
                values[name] = [float(values[name])] * len(command["joints"])
    if command.get("in_file") and command["kind"] == "position_target":
        rows = [[x for x in row if x] for row in command["weight"]]
        if all(len(row) <= 1 for row in rows):
            values.update(default_joint_pos=command["bias"], action_scale=[row[0] if row else 0.0 for row in rows])
    values.update({name: value for name, value in deployment.items() if not isinstance(value, dict)})
    if "observation_terms_history_length" in deployment:
        values["history_length"] = max(1, *deployment["observation_terms_history_length"])
    return {name: _csv(value) for name, value in values.items() if value is not None}


def _csv(value: Any, separator: str = ",") -> str:
    if isinstance(value, (list, tuple)):
        return separator.join("inf" if x is None else _csv(x, ";") for x in value)
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def as_text(description: dict[str, Any]) -> str:
    """Return a description as JSON, with lists of numbers on one line."""
    text = json.dumps(description, indent=1, ensure_ascii=False, allow_nan=False)
    return re.sub(r"\[\n\s*([^][{}]*?)\n\s*\]", lambda match: f"[{_JOINT.sub(', ', match[1])}]", text) + "\n"


def _columns(program: Program | None, width: int, state: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return for each column of the observation the numbers of the state that it depends on, such as ``dof_pos[3]``.

    Return None if the observation is not traced.
    """
    if program is None or len(program.outputs[VALUE].nodes) != width:
        return None
    columns = []
    for node in program.outputs[VALUE].nodes:
        nodes = [program.nodes[i] for i in reachable(program, [node])]
        reads = sorted({(load.name, load.column) for load in nodes if load.op == "load"})
        names = [_column_name(name, column, state[name]["shape"]) for name, column in reads]
        columns.append({"reads": names, "copied": program.nodes[node].op == "load"})
    return columns


def _column_name(name: str, column: int, shape: Sequence[int]) -> str:
    if not shape:
        return name if name != "actions" else f"{name}[{column}]"
    return f"{name}[{', '.join(str(i) for i in np.unravel_index(column, shape))}]"


def _key(contract: TaskContract, name: str) -> dict[str, Any]:
    key = contract.state.get(name) or _ENVIRONMENT.get(name) or contract.constants[name]
    described: dict[str, Any] = {"shape": list(key.shape), "unit": key.unit, "meaning": key.meaning}
    if name in contract.values:
        described["value"] = _plain(contract.values[name])
    return described


def _place(function: CandidateFunction, run: OpenedRun) -> dict[str, Any]:
    """Return a function's name, file and line. If the run folder has a copy of the file, the path is relative to it."""
    copies = {source.file: run.folder.source(source.name) for source in run.sources.values()}
    copy = copies.get(function.file)
    file = function.file if copy is None else copy.relative_to(run.folder.path).as_posix()
    return {"name": function.type, "file": str(Path(file)), "line": function.line}


def _plain(values: Any) -> Any:
    return [_plain(value) for value in values] if isinstance(values, list) else _finite(values)


def _finite(value: Any) -> Any:
    """Return a number, or None if it is infinite or NaN: JSON does not have these."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
