"""The base class of tasks with a Simulator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from envcoder_bench.core.errors import near_matches
from envcoder_bench.sim.base import Simulator
from envcoder_bench.sim.ground import Ground
from envcoder_bench.tasks.base import Field, Task

if TYPE_CHECKING:
    from mujoco_batches.physics.live_tensors import PoseSource

COMMON_KEYS = (
    "name",
    "env.clipActions",
    "env.clipObservations",
    "env.controlFrequencyInv",
    "env.control.controlFrequencyInv",
    "env.control.decimation",
    "sim.dt",
    "sim.substeps",
)
# keys of tasks with a Simulator: they replace the <option> of the model's file
ENGINE_KEYS = ("sim.mujoco.integrator", "sim.mujoco.iterations", "sim.mujoco.ls_iterations")
# keys of IsaacGymEnvs' YAML files that are accepted without an effect
ISAACGYM_KEYS = (
    "physics_engine",
    "env.numEnvs",
    "env.envSpacing",
    "env.enableCameraSensors",
    "env.plane",
    "env.asset",
    "env.urdfAsset",
    "env.viewer",
    "sim.up_axis",
    "sim.use_gpu_pipeline",
    "sim.gravity",
    "sim.physx",
    "task",
)


YAML_FILES: dict[str, str] = {}  # files of tasks from outside the package; the key is the name
# fields that tasks have in common
PROGRESS = Field((), "control steps", "steps since the episode began; int64")
MAX_EPISODE_LENGTH = Field(
    None, "control steps", "an episode times out after so many", lambda task: torch.tensor(task.max_episode_length)
)
DT = Field(None, "s", "one control step", lambda task: torch.tensor(task.dt))


class ModelFaults(ValueError):
    """A task's model or fields are not as its class says; ``findings`` has one line for each violation."""

    def __init__(self, findings: Sequence[str]) -> None:
        super().__init__("; ".join(findings))
        self.findings = list(findings)


def body_state(body: str, source: str | None = None) -> Field:
    """The 13 numbers of a free body."""
    numbers = "position 3, quaternion xyzw 4, linear velocity 3, angular velocity 3"
    return Field((13,), "m, -, m/s, rad/s", f"{body}: {numbers}; world frame", source)


def contact_forces(bodies: int, order: str = "") -> Field:
    """The forces on all bodies; ``order`` describes theirs."""
    meaning = f"net contact force on each body in the last physics step{order}; world frame"
    return Field((bodies, 3), "N", meaning, "sim.contact_forces")


def actions(width: int) -> Field:
    """The field of the last action; ``width`` is the human baseline's."""
    return Field((width,), "-", "last action, clipped; as wide as the candidate's; 0 where an episode begins")


class SimTask(Task):
    """A Task with a Simulator, whose ``state`` and ``constants`` are declared by ``fields``.

    A subclass sets the class attributes below and those of Task, and ``default_state`` in its ``__init__``.

    Attributes:
        model: file name of the MuJoCo model in the task's folder.
        dof_names, body_names, sensor_names, site_names: the names that the model must have, in this order, which is
            that of the tensors' axes. Empty ones, as by default, become those of the model.
        object_keys: keys of ``state`` for the model's objects, in their order.
        kept_keys: keys of ``state`` that the task updates from step to step, and that checkpoints must include.
        config_keys: keys of the task's YAML that have an effect, in addition to COMMON_KEYS and sources of ``fields``;
            a key includes all keys below it.
        ignored_keys: keys of IsaacGymEnvs' YAML for this task that have no effect, in addition to ISAACGYM_KEYS.
        only: keys of which only one of IsaacGymEnvs' values is supported: that value, and the alternative.
        cfg: the task's YAML.
        substeps: physics steps of a control step.
    """

    model: str
    dof_names: tuple[str, ...] = ()
    body_names: tuple[str, ...] = ()
    sensor_names: tuple[str, ...] = ()
    site_names: tuple[str, ...] = ()
    goal_keys: tuple[str, ...] = ()
    kept_keys: tuple[str, ...] = ()
    config_keys: tuple[str, ...] = ("env.episodeLength",)
    ignored_keys: tuple[str, ...] = ()
    only: Mapping[str, tuple[Any, str]] = {}
    default_action_dim: int | None = None

    def __init__(self, cfg: Mapping[str, Any], sim: Simulator) -> None:
        # the model has the joints, bodies and objects that the task expects
        faults: list[str] = []
        for kind in ("dof_names", "body_names", "sensor_names", "site_names"):
            want, got = list(getattr(self, kind)), list(getattr(sim, kind))
            if want and want != got:
                faults.append(f"{self.model}: {self.name} needs the {kind} {want} in this order, not {got}")
            setattr(self, kind, tuple(got))
        check_only(cfg, self.only)
        if len(sim.object_names) != len(self.object_keys):
            names = f"{len(self.object_keys)} free objects, for {list(self.object_keys)}"
            hint = "; the free joint of the first body is the robot's base, so list the robot first" * sim.floating
            faults.append(f"{self.model}: {self.name} needs {names}, not {sim.object_names}{hint}")
        self.cfg, self.sim = cfg, sim
        self.num_envs, self.num_dofs, self.device, self.dt = sim.num_envs, sim.num_dofs, sim.device, sim.dt
        if not bool(sim.drive_gains["stiffness"].any()):
            reason = f"no joint of {self.name} has a position drive, so that targets move nothing: write compute_torque"
            self.refusals = {**self.refusals, "compute_dof_target": reason}
        self.substeps = control_timing(cfg)[1]
        self.max_episode_length = self._episode_steps()
        self.clip_actions = number(cfg, "env.clipActions")
        self.clip_observations = number(cfg, "env.clipObservations", math.inf)  # IsaacGymEnvs has the same default
        self.unstable = sim.unstable
        self.contact_overflows, self.engine_warnings = sim.contact_overflows, sim.engine_warnings
        # the state and the constants, in the order of the fields: a source may read earlier keys
        objects = self.object_keys[: len(sim.object_names)]
        self.state: dict[str, Tensor] = {key: sim.object_states[:, i] for i, key in enumerate(objects)}
        self.constants: dict[str, Tensor] = {}
        for key, field in self.fields.items():
            if field.source is None and key in self.goal_keys and field.shape is not None:
                self.state[key] = torch.zeros(self.num_envs, *field.shape, device=self.device)
            elif field.source is not None:
                tensors = self.constants if field.shape is None else self.state
                try:
                    tensors[key] = self._tensor(key, field)
                except ValueError as error:
                    faults.append(str(error))
        if faults:
            raise ModelFaults(faults)
        self.default_state: dict[str, Tensor] = {}

    @classmethod
    def ground(cls, cfg: Mapping[str, Any]) -> Ground | None:
        """Return what replaces the plane of the model's file; None keeps it."""
        return None

    def _episode_steps(self) -> int:
        """Return the control steps of an episode, from ``env.episodeLength`` or Anymal's key in seconds."""
        seconds = number(self.cfg, "env.learn.episodeLength_s", math.inf)
        if seconds != math.inf:
            return int(seconds / self.dt + 0.5)
        return int(number(self.cfg, "env.episodeLength"))

    def _tensor(self, key: str, field: Field) -> Tensor:
        """Create the tensor of a key from its source. Raises ValueError if it does not match its field."""
        source = field.source
        if callable(source):
            value = source(self)
        elif isinstance(source, str):
            owner, _, name = source.partition(".")
            if owner not in ("sim", "cfg") or (owner == "sim" and not hasattr(self.sim, name)):
                raise ValueError(f"{self.name}: the source of '{key}' is {source!r}, not a tensor or number there")
            value = getattr(self.sim, name) if owner == "sim" else numbers(self.cfg, name)
        else:
            value = torch.tensor(source)
            if field.shape is not None:
                value = value.to(self.device, torch.float32).expand(self.num_envs, *field.shape)
                value = value.clone(memory_format=torch.contiguous_format)
        # a source may return anything: its shape must be the declared one
        want = None if field.shape is None else (self.num_envs, *field.shape)
        if want is not None and tuple(value.shape) != want:
            raise ValueError(f"{self.name}: '{key}' is declared as {want}, but its tensor is {tuple(value.shape)}")
        return value

    @property
    def bytes_per_env(self) -> int:
        return self.sim.bytes_per_env

    def pose_source(self) -> PoseSource | None:
        source = getattr(self.sim, "pose_source", None)
        return None if source is None else source()

    def robot(self) -> Simulator:
        return self.sim

    def set_drive_mode(self, effort: Tensor) -> None:
        self.sim.set_drive_mode(effort)

    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        raise ValueError(f"{self.name} has no position drives of its own: define compute_torque or compute_dof_target")

    def step(self, command: Tensor) -> None:
        self.sim.step(command)

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        if initial:
            written = {key: x for key, x in initial.items() if key not in self.object_keys}
            if len(written) < len(initial):
                objects = [initial.get(key, self.state[key]) for key in self.object_keys]
                written["object_states"] = torch.stack(objects, dim=1)
            self.sim.write(mask, **written)
        for key, value in goal.items():
            if key not in self.goal_keys:
                raise ValueError(f"{self.name} has no goal '{key}'{near_matches(key, self.goal_keys)}")
            buffer = self.state[key]
            rows = mask.view(-1, *[1] * (buffer.dim() - 1))
            buffer.copy_(torch.where(rows, value, buffer))  # views of the buffer stay valid

    def get_state(self) -> dict[str, Tensor]:
        kept = {f"task.{key}": self.state[key].to("cpu", copy=True) for key in self.goal_keys + self.kept_keys}
        return {**{f"sim.{key}": x for key, x in self.sim.get_state().items()}, **kept}

    def set_state(self, state: dict[str, Tensor]) -> None:
        self.sim.set_state({key[len("sim.") :]: x for key, x in state.items() if key.startswith("sim.")})
        for key in self.goal_keys + self.kept_keys:
            self.state[key].copy_(state[f"task.{key}"])

    def per_env(self, row: Any) -> Tensor:
        """Return the same numbers for every environment: ``(num_envs, len(row))`` float32."""
        return torch.tensor(row, dtype=torch.float32, device=self.device).repeat(self.num_envs, 1)


def numbers(cfg: Mapping[str, Any], key: str) -> Tensor:
    """Return a number, or a list of numbers, of a task's config as float32. Raises ValueError as ``number``."""
    value = read(cfg, key)
    if not isinstance(value, str) and hasattr(value, "__len__"):
        return torch.tensor([_float(cfg, key, x) for x in value])
    return torch.tensor(_float(cfg, key, value))


def used_keys(task_class: type[SimTask]) -> tuple[str, ...]:
    """Return the keys of a task's YAML that have an effect."""
    sources = [field.source for field in task_class.fields.values()]
    declared = [source[len("cfg.") :] for source in sources if isinstance(source, str) and source.startswith("cfg.")]
    return (*COMMON_KEYS, *ENGINE_KEYS, *task_class.config_keys, *dict.fromkeys(declared))


def ignored_keys(task_class: type[SimTask]) -> tuple[str, ...]:
    """Return the keys of IsaacGymEnvs' YAML for a task that are accepted without an effect."""
    return ISAACGYM_KEYS + task_class.ignored_keys


def yaml_file(cfg: Mapping[str, Any]) -> str:
    """Return the file of a task's config, for messages."""
    return YAML_FILES.get(cfg["name"], f"cfg/task/{cfg['name']}.yaml")


def read(cfg: Mapping[str, Any], key: str, default: Any | None = None) -> Any:
    """Return the value of a dotted key of a task's config.

    Raises:
        ValueError: the key is missing and has no default.
    """
    node: Any = cfg
    for part in key.split("."):
        if part not in node:
            if default is not None:
                return default
            raise ValueError(f"{yaml_file(cfg)}: the key '{key}' is missing")
        node = node[part]
    return node


def number(cfg: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """Return the number of a dotted key of a task's config.

    Raises:
        ValueError: the key is missing and has no default, or it is not a number.
    """
    return _float(cfg, key, read(cfg, key, default))


def _float(cfg: Mapping[str, Any], key: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        text = "empty" if value is None else repr(value)
        raise ValueError(f"{yaml_file(cfg)}: the key '{key}' must be a number, and it is {text}") from None


def control_timing(cfg: Mapping[str, Any]) -> tuple[float, int]:
    """Return seconds and physics steps of a control step: IsaacGymEnvs' ``sim.dt`` times ``controlFrequencyInv``.

    The latter is under ``env.control`` in Anymal, where AnymalTerrain has ``decimation``, and under ``env`` in others.
    """
    repeats = number(cfg, "env.control.controlFrequencyInv", number(cfg, "env.controlFrequencyInv", 1))
    repeats = int(number(cfg, "env.control.decimation", repeats))
    return number(cfg, "sim.dt") * repeats, int(number(cfg, "sim.substeps")) * repeats


def engine_options(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``sim.mujoco`` replaces in the model's ``<option>``; empty without that key."""
    options = read(cfg, "sim").get("mujoco")
    return {} if options is None else dict(options)


def check_only(cfg: Mapping[str, Any], only: Mapping[str, tuple[Any, str]]) -> None:
    """Raise ValueError for a key whose value is not the supported one in ``only``."""
    for key, (value, instead) in only.items():
        value_given = read(cfg, key, value)
        if value_given != value:
            raise ValueError(f"task.{key} is {value_given!r}, but can only be {value!r}: {instead}")


def check_config(cfg: Mapping[str, Any], used: tuple[str, ...], ignored: tuple[str, ...]) -> None:
    """Refuse unknown keys, and warn of keys without an effect.

    Raises:
        ValueError: an unknown key, with its near matches, or domain randomization, which is not supported.
    """
    file = yaml_file(cfg)
    if read(cfg, "task.randomize", False):
        raise ValueError(f"{file}: task.randomize is True, but domain randomization is not available: set it to False")
    without_effect: list[str] = []
    for key in _leaves(cfg):
        if covers(used, key):
            continue
        if not covers(ignored, key):
            raise ValueError(f"{file}: unknown key '{key}'{near_matches(key, used + ignored)}")
        without_effect.append(key)
    if without_effect:
        warnings.warn(f"{file}: these keys have no effect here: {', '.join(without_effect)}", stacklevel=2)


def covers(prefixes: tuple[str, ...], key: str) -> bool:
    """Return whether a dotted key is one of ``prefixes``, or below one."""
    return any(key == prefix or key.startswith(f"{prefix}.") for prefix in prefixes)


def _leaves(cfg: Mapping[str, Any], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name, value in cfg.items():
        keys += _leaves(value, f"{prefix}{name}.") if hasattr(value, "items") else [f"{prefix}{name}"]
    return keys
