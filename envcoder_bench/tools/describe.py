"""The description of a task: its fitness, functions that candidates may define, and the keys of its state.

``task_facts`` returns it as data, ``describe`` as text.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.shell import display_path
from envcoder_bench.core.words import wrap
from envcoder_bench.run.config import compose_config, find_task
from envcoder_bench.run.fitness import fitness_meaning, read_fitness
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.shaping.contract import CandidateError
from envcoder_bench.shaping.kinds import KINDS, SHAPER_TYPES, Kind
from envcoder_bench.shaping.loading import load_candidate, load_source
from envcoder_bench.shaping.state import DICTS
from envcoder_bench.tasks.base import BASELINE_FILES
from envcoder_bench.tasks.contract import TaskContract, shown, task_contract
from envcoder_bench.tasks.spec import TaskSpec


@dataclass(frozen=True)
class FunctionFacts:
    """A function that candidates may define: what it returns for n environments, and what the baselines' do."""

    name: str
    returns: str
    baselines: dict[str, str]


@dataclass(frozen=True)
class KeyFacts:
    """A key of ``state_dict``: its shape in words, unit and meaning; for a constant its value as text."""

    key: str
    shape: str
    unit: str
    meaning: str
    value: str = ""


@dataclass(frozen=True)
class TaskFacts:
    """What a candidate's author must know of a task.

    Attributes:
        task, summary: its title, and a sentence on the robot and the goal.
        fitness, timing: what fitness measures; control rate, and length of an episode.
        dt, max_episode_length: seconds of a control step, and control steps of an episode.
        default_actions: what actions do without an action function; empty if one is needed.
        dicts: names by which functions get several keys of the state as a dict.
        names: names of joints, bodies, sensors and sites, in the order of the state's axes.
        notes: what else the task says.
        baselines: the files of the baselines.
    """

    task: str
    summary: str
    fitness: str
    timing: str
    dt: float
    max_episode_length: int
    functions: tuple[FunctionFacts, ...]
    default_actions: str
    state: tuple[KeyFacts, ...]
    dicts: tuple[str, ...]
    names: dict[str, tuple[str, ...]]
    notes: str
    baselines: dict[str, str]


def task_facts(name: str, overrides: Sequence[str] = ()) -> TaskFacts:
    """Return the description of a task as data; arguments and errors as of ``describe``."""
    task = find_task(name)
    cfg = compose_config(task, overrides)
    spec = RunSpec(task, cfg)
    fitness = _fitness(spec)  # first: building a task takes a while
    facts = task_contract(spec.task, cfg.task)
    axes = {"joints": facts.joints, "bodies": facts.bodies, "sensors": facts.sensors, "sites": facts.sites}
    values = {key: shown(value) for key, value in facts.values.items()}
    return TaskFacts(
        task=cfg.task_title,
        summary=spec.task.summary,
        fitness=fitness,
        timing=timing(facts),
        dt=facts.dt,
        max_episode_length=facts.max_episode_length,
        functions=_functions(spec, facts),
        default_actions=_default_actions(facts),
        state=tuple(
            KeyFacts(key, _shape(facts, key), field.unit, field.meaning, values.get(key, ""))
            for key, field in facts.fields.items()
        ),
        dicts=tuple(_dicts(facts)),
        names={what: names for what, names in axes.items() if names},
        notes=facts.notes,
        baselines={name: str(spec.task.baseline_path(name, cfg.task)) for name in BASELINE_FILES},
    )


def describe(name: str, width: int = 110, overrides: Sequence[str] = ()) -> str:
    """Describe a task on lines of about ``width`` characters.

    Args:
        overrides: ``key=value`` for the config that its numbers come from.

    Raises:
        ValueError: the task does not exist.
        UserError: an override is malformed or names an unknown key, or the fitness file or a baseline cannot be used.
    """
    return render_task(task_facts(name, overrides), width)


def render_task(facts: TaskFacts, width: int = 110) -> str:
    """Return the description of a task as text."""
    functions = [
        "\n".join(
            [
                wrap(f"  {function.name}: {function.returns}", width, then="    "),
                *(wrap(f"    {name}: {text}", width, then="      ") for name, text in function.baselines.items()),
            ]
        )
        for function in facts.functions
    ]
    sections = [
        wrap(f"{facts.task}: {facts.summary}", width, then=""),
        wrap(f"fitness: {facts.fitness}", width, then="  "),
        wrap(f"timing: {facts.timing}", width, then="  "),
        "functions that a candidate may define, what they return for n environments, and what the baselines do",
        *functions,
        *(
            [wrap(f"  without an action function: {facts.default_actions}", width, then="")]
            * bool(facts.default_actions)
        ),
        "state_dict, a tensor for each key; the first axis is the environments; constants have none, and a value",
        _state(facts.state, width),
        *(wrap(f"  {line}", width, then="    ") for line in facts.dicts),
        *(wrap(f"  {what}: {', '.join(names)}", width, then="    ") for what, names in facts.names.items()),
    ]
    files = [f"  {name}: {display_path(Path(file))}" for name, file in facts.baselines.items()]
    sections.append("\n".join(["files of the baselines, whose functions fill in those that a candidate lacks", *files]))
    if facts.notes:
        sections.append("\n".join(wrap(line, width, then="    ") for line in facts.notes.replace("`", "").splitlines()))
    return "\n\n".join(sections)


def timing(facts: TaskContract) -> str:
    steps, seconds = f"{facts.max_episode_length:,}", f"{facts.max_episode_length * facts.dt:.4g}"
    return f"{1 / facts.dt:.4g} control steps a second; an episode lasts {steps} of them at most, {seconds} s"


def _fitness(spec: RunSpec) -> str:
    file = spec.config.fitness
    if file is not None:
        return f"{fitness_meaning(replace(spec, fitness=read_fitness(spec.task, spec.config)))} ({file})"
    meaning = spec.task.fitness_meaning
    return f"{meaning} (--fitness FILE replaces it)" if meaning else "none: give --fitness FILE to rank candidates"


def _functions(spec: RunSpec, facts: TaskContract) -> tuple[FunctionFacts, ...]:
    purposes = {baseline: function_docs(spec.task, baseline, spec.config.task) for baseline in BASELINE_FILES}
    return tuple(
        FunctionFacts(
            name,
            _returns(KINDS[name], facts),
            {baseline: docs[name] for baseline, docs in purposes.items() if name in docs},
        )
        for name in SHAPER_TYPES
    )


def _default_actions(facts: TaskContract) -> str:
    if facts.default_action_dim is None:
        return ""
    driven = "compute_dof_target" not in facts.refusals
    use = "move the task's own position drives" if driven else "are applied by the task itself"
    return f"{facts.default_action_dim} actions {use}"


def _returns(kind: Kind, facts: TaskContract) -> str:
    """Return a text on the result of a function for n environments of a task."""
    if kind.name in facts.refusals:
        return f"cannot be used: {facts.refusals[kind.name]}"
    keys = [f"{key} {_shape(facts, key)}" for key in (kind.keys(facts) if kind.keys else ()) if key in facts.fields]
    if kind.keys is not None and not keys:
        return f"not called: this task has no {kind.stage.replace('_', ' ')}"
    joints = _shape(facts, "dof_pos") if "dof_pos" in facts.fields else "(n, 0)"  # a flying robot may have none
    return Template(kind.returns).substitute(joints=joints, keys=", ".join(keys))


def function_docs(task: TaskSpec, baseline: str, config: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the first line of the docstring of each function of a baseline, which is loaded as in a run.

    Raises UserError if it cannot be loaded.
    """
    path = task.baseline_path(baseline, config)
    try:
        functions = load_candidate(baseline, load_source(path), path).functions
    except CandidateError as error:
        raise UserError(str(error)) from error
    return {kind: (inspect.getdoc(function.call) or "-").splitlines()[0] for kind, function in functions.items()}


def _shape(facts: TaskContract, key: str) -> str:
    shape = facts.fields[key].shape
    if shape is None:
        return "constant"
    return f"({', '.join(['n', *map(str, shape)])}{',' if not shape else ''})"


def _dicts(facts: TaskContract) -> Iterator[str]:
    """Yield a line for each name by which functions get several keys of the state as a dict."""
    for name in DICTS:
        entries = [key.removeprefix(f"{name}_") for key in facts.fields if key.startswith(f"{name}_")]
        if entries:
            yield f'{name} is also a dict: {name}["{entries[0]}"]'


def _state(state: Sequence[KeyFacts], width: int) -> str:
    columns: list[tuple[str, str, str]] = []
    for key in state:
        short = f" = {key.value}" if key.value and " " not in key.value else ""
        columns.append((key.key, key.shape + short, key.unit))
    longest = [max(len(row[k]) for row in columns) for k in range(3)]
    lines: list[str] = []
    for row, key in zip(columns, state):
        head = "  " + "  ".join(cell.ljust(n) for cell, n in zip(row, longest)) + "  "
        # wrap without the head, whose spaces align the columns
        room = max(20, width - len(head))
        meaning = wrap(key.meaning, room, then="").splitlines()
        if key.value and "=" not in row[1]:  # a list of numbers
            meaning += wrap(f"= {key.value}", room).splitlines()
        lines += [head + meaning[0], *(" " * len(head) + line for line in meaning[1:])]
    return "\n".join(lines)
