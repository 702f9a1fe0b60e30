"""The contract of a task as plain data, for checking, tracing, the jail, prompts and ``--describe``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.tasks.base import Field, Task
from envcoder_bench.tasks.spec import TaskSpec

Names = tuple[str, ...]
_LIMITS = ("dof_limits_lower", "dof_limits_upper", "effort_limits")
_OF_TASK = (
    "name", "num_dofs", "dt", "max_episode_length", "goal_keys", "object_keys", "default_action_dim", "clip_actions",
    "clip_observations", "fitness_meaning", "fitness_reduction", "bytes_per_env", "drive_formula",
    "quaternions", "notes",
)  # fmt: skip


@dataclass(frozen=True)
class Key:
    """A key of ``state_dict``: shape (of state: without the environment axis), kind of number, unit and meaning."""

    shape: tuple[int, ...]
    dtype: str
    unit: str = ""
    meaning: str = ""


@dataclass(frozen=True)
class TaskContract:
    """The properties of a task that candidates rely on, with the numbers of one config; no tensors and no code.

    Attributes:
        dt, substeps, max_episode_length: seconds of a control step, its physics steps, control steps of an episode.
        state: keys with an environment axis, without ``actions`` and ``progress_buf``, which the environment owns.
        constants, values: keys without one, and their numbers.
        fields: the declarations of all keys, the environment's included, in the order of printing; without sources.
        default_state: default values of the keys that ``compute_initial_state`` may set.
        goal_keys, object_keys, default_action_dim, clip_actions, clip_observations, fitness_meaning,
            fitness_reduction, bytes_per_env, refusals, drive_formula, quaternions, notes: as ``Task`` has them.
        joints, bodies, sensors, sites: names, in the order of the state's axes.
        dof_limits_lower, dof_limits_upper, effort_limits: of each joint, rad or m, and N m or N.
        drives: gains of the position drives, e.g. ``stiffness``: 85; empty without drives.
        masses, joint_facts, pushes: kg of each body, 0 if it is fixed; axes and signs of the joints by name; what
            efforts change. ``task_contract`` fills them in for a MuJoCo model, see ``sim.joint_facts``.
    """

    name: str
    num_dofs: int
    dt: float
    substeps: int
    max_episode_length: int
    state: Mapping[str, Key]
    constants: Mapping[str, Key]
    values: Mapping[str, Any]
    fields: Mapping[str, Field]
    default_state: Mapping[str, Any]
    goal_keys: Names
    object_keys: Names
    default_action_dim: int | None
    clip_actions: float
    clip_observations: float
    fitness_meaning: str
    fitness_reduction: str
    joints: Names
    bodies: Names
    sensors: Names
    sites: Names
    dof_limits_lower: tuple[float, ...]
    dof_limits_upper: tuple[float, ...]
    effort_limits: tuple[float, ...]
    drives: Mapping[str, Any]
    masses: tuple[float, ...]
    joint_facts: Mapping[str, str]
    pushes: Names
    bytes_per_env: int
    refusals: Mapping[str, str]
    drive_formula: str
    quaternions: str
    notes: str

    @classmethod
    def of(cls, task: Task) -> TaskContract:
        """Return the contract of a task; without a simulator it has no names of joints and bodies, and no limits."""

        def key(name: str, x: Tensor, first: int) -> Key:
            field = task.fields.get(name)
            words = (field.unit, field.meaning) if field is not None else ()
            return Key(tuple(x.shape[first:]), str(x.dtype).split(".")[1], *words)

        def names(kind: str) -> Names:
            return tuple(getattr(task, kind, ()))

        def limits(kind: str) -> tuple[float, ...]:
            limit = getattr(getattr(task, "sim", None), kind, None)
            return () if limit is None else tuple(limit.tolist())

        return cls(
            substeps=getattr(task, "substeps", 1),
            state={name: key(name, x, 1) for name, x in task.state.items()},
            constants={name: key(name, x, 0) for name, x in task.constants.items()},
            values={name: x.tolist() for name, x in task.constants.items()},
            fields={name: Field(field.shape, field.unit, field.meaning) for name, field in task.fields.items()},
            default_state={name: x[0].tolist() for name, x in task.default_state.items()},
            joints=names("dof_names"),
            bodies=names("body_names"),
            sensors=names("sensor_names"),
            sites=names("site_names"),
            drives=_drives(task),
            masses=(),
            joint_facts={},
            pushes=(),
            refusals=dict(task.refusals),
            **{kind: limits(kind) for kind in _LIMITS},
            **{name: getattr(task, name) for name in _OF_TASK},
        )

    def to_plain(self) -> dict[str, Any]:
        """Return it as numbers, texts, lists and dicts, for JSON."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> TaskContract:
        """Create it from the result of ``to_plain``, also after JSON, which has no tuples."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            value = plain[field.name]
            values[field.name] = tuple(value) if isinstance(value, list) else value
        for name in ("state", "constants"):
            specs = values[name].items()
            values[name] = {key: Key(**{**key_spec, "shape": tuple(key_spec["shape"])}) for key, key_spec in specs}
        values["fields"] = {
            name: Field(**{**field, "shape": _shape(field["shape"])}) for name, field in plain["fields"].items()
        }
        return cls(**values)

    def state_table(self, values: Mapping[str, str] | None = None, without: Collection[str] = ()) -> str:
        """Return the keys of ``state_dict`` as a Markdown table; n is the number of environments of a group.

        Args:
            values: values of constants by key, as text; None to omit them.
            without: keys to leave out.
        """
        rows = ["| key | shape | unit | meaning |", "|---|---|---|---|"]
        for key, field in self.fields.items():
            if key in without:
                continue
            shape = "constant" if field.shape is None else str(("n", *field.shape)).replace("'", "")
            value = f": {values[key]}" if values and key in values else ""
            rows.append(f"| `{key}` | {shape} | {field.unit} | {field.meaning}{value} |")
        return "\n".join(rows)


def _drives(task: Task) -> dict[str, Any]:
    """Return the gains of the position drives: the config's, else the model's."""
    control = getattr(task, "cfg", {}).get("env", {}).get("control", {})
    asked = {name: control[name] for name in ("stiffness", "damping") if name in control}
    gains = getattr(getattr(task, "sim", None), "drive_gains", {})
    of_model = {name: x.tolist() for name, x in gains.items() if bool(gains["stiffness"].any())}
    return asked or of_model


def _shape(shape: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if shape is None else tuple(shape)


def _of_contract(name: str) -> Any:
    return property(lambda snapshot: getattr(snapshot.contract, name))


@dataclass(frozen=True)
class TaskSnapshot:
    """A task on which functions are checked: its contract, a real state of some environments, constants and drives.

    Attributes:
        state: per-environment tensors ``(n, ...)``, with the environment's own keys.
        constants: tensors on the CPU, as ``Task`` has them.
        default_dof_target: the task's own drives.
        fitness: the task's own, of a state; None in the jail.
    """

    contract: TaskContract
    state: dict[str, Tensor]
    constants: dict[str, Tensor]
    device: torch.device
    default_dof_target: Callable[[Tensor, dict[str, Tensor]], Tensor]
    fitness: Callable[[dict[str, Tensor]], Tensor] | None = None

    # attributes that a task has under the same name
    name = _of_contract("name")
    num_dofs = _of_contract("num_dofs")
    default_action_dim = _of_contract("default_action_dim")
    goal_keys = _of_contract("goal_keys")
    object_keys = _of_contract("object_keys")
    default_state = _of_contract("default_state")
    refusals = _of_contract("refusals")


AnyTask = Task | TaskSnapshot


def contract_of(task: AnyTask) -> TaskContract:
    """Return the contract of a task or snapshot."""
    return task.contract if isinstance(task, TaskSnapshot) else TaskContract.of(task)


def task_contract(spec: TaskSpec, cfg: Mapping[str, Any]) -> TaskContract:
    """Build a task and return its contract.

    Args:
        spec: the task.
        cfg: its YAML, with the user's overrides.

    Raises:
        ValueError: as ``TaskSpec.make``.
    """
    # on the CPU, because all simulators run the same model; some Isaac Gym tasks need two environments
    task = spec.make(cfg, 2, "mujoco_cpu", "cpu")
    contract = TaskContract.of(task)
    sim: Any = getattr(task, "sim", None)
    if not hasattr(sim, "joint_facts") or "dof_pos" not in task.default_state:
        return contract
    # signs: those of keys that are a joint's position alone, too
    dof_pos = task.default_state["dof_pos"][0].tolist()
    columns = {x.data_ptr(): name for x, name in zip(task.state["dof_pos"].unbind(dim=1), contract.joints)}
    joints = {key: columns[x.data_ptr()] for key, x in task.state.items() if x.dim() == 1 and x.data_ptr() in columns}
    facts, pushes, masses = sim.joint_facts(dof_pos, {joint: key for key, joint in joints.items()})
    declared = dict(contract.fields)
    for key, joint in joints.items():
        _, _, sign = facts.get(joint, "").partition(", positive ")
        if sign:
            declared[key] = replace(declared[key], meaning=f"{declared[key].meaning}; positive {sign}")
    return replace(contract, fields=declared, joint_facts=facts, pushes=tuple(pushes), masses=tuple(masses))


def shown(value: Any) -> str:
    """Format a number or a list of numbers with five digits: ``0.0166``, ``[3, 6, 9, 12]``, ``16 times 0.5``."""
    if not isinstance(value, (list, tuple)):
        return f"{value:.5g}" if isinstance(value, float) else str(value)
    items: list[str] = [shown(x) for x in value]
    if len(items) > 3 and len(set(items)) == 1:
        return f"{len(items)} times {items[0]}"
    return f"[{', '.join(items)}]"
