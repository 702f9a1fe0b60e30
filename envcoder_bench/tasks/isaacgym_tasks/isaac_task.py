"""An Isaac Gym task behind the Task contract."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Mapping

import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.tasks.base import EnvGroups, Field, Task
from envcoder_bench.tasks.isaacgym_tasks import tensors
from envcoder_bench.tasks.isaacgym_tasks.draws import Draws
from envcoder_bench.tasks.isaacgym_tasks.driver import Driver, make_driver
from envcoder_bench.tasks.isaacgym_tasks.gym_proxy import GymProxy, proxied
from envcoder_bench.tasks.isaacgym_tasks.importing import isaac_imports, one_line
from envcoder_bench.tasks.isaacgym_tasks.scene import Scene
from envcoder_bench.tasks.isaacgym_tasks.source import Source
from envcoder_bench.tasks.isaacgym_tasks.tensors import Place, Row

if TYPE_CHECKING:
    from envcoder_bench.sim.poses import PoseSource

ENV_BYTES = 160 * 1024  # of one environment in the physics engine, about; its tensors come on top
_NUMBERED = re.compile(r"ind(ex|ic)|handle|ids?$")  # of actors and bodies in the whole simulation
SOLVED = "solved_before"  # the state's key of a fitness that counts once


def make_isaac(source: Source, cfg: Mapping[str, Any], num_envs: int, device: str) -> tuple[Any, GymProxy]:
    """Build a task of its config, with a proxy as its gym. Raises ValueError."""
    config = {key: value for key, value in _as_dict(cfg).items() if key != "name" or "name" in source.config}
    if "name" in config:
        config["name"] = source.config["name"]
    if config.get("task", {}).get("randomize"):
        raise ValueError(
            f"{source.address}: task.randomize is True, but domain randomization is not available here: give"
            " task.task.randomize=false"
        )
    draws = Draws(num_envs, torch.device(device))
    with isaac_imports(*source.folders), proxied() as made, draws.call("make", None, True):
        task = source.make(config, num_envs, device)
    if not made:
        raise ValueError(f"{source.address} acquires no gym: it is no task of Isaac Gym")
    return task, made[0]


class IsaacTask(Task):
    """A task of Isaac Gym code; a subclass for each, which ``spec.py`` makes.

    Attributes:
        source: where it comes from.
        keys: where the task has the tensors of the state's keys, as far as the task has them itself.
        rows: all its tensors with rows for each environment.
        score: its fitness for one step, called with the keys of the state that its parameters name.
        once: whether an episode's fitness is whether ``score`` was ever above 0.
        config_keys, ignored_keys, only: of its YAML, as ``SimTask`` has them.
    """

    source: ClassVar[Source]
    keys: ClassVar[dict[str, Place]]
    rows: ClassVar[dict[Place, Row]]
    constant_names: ClassVar[tuple[str, ...]]
    score: ClassVar[Callable[..., Tensor] | None] = None
    once: ClassVar[bool] = False
    fields: dict[str, Field]
    config_keys: tuple[str, ...] = ()
    ignored_keys: tuple[str, ...] = ()
    only: Mapping[str, tuple[Any, str]] = {}

    def __init__(self, cfg: Mapping[str, Any], num_envs: int, device: str) -> None:
        self.cfg = _as_dict(cfg)
        self.isaac, self._gym = make_isaac(self.source, cfg, num_envs, device)
        self.num_envs, self.device = num_envs, torch.device(self.isaac.device)
        self._draws = Draws(num_envs, self.device)
        self._draws.wrap(self.isaac)
        self.driver: Driver = make_driver(self.isaac, self._gym)
        with self._draws.call("reset", None, True):  # some tasks make tensors where they observe
            self.driver.first()
        self.scene = Scene(self._gym, self.isaac.sim, num_envs, self.source.address)
        self.num_dofs, self.dt = self.scene.num_dofs, self.driver.dt
        self.dof_names, self.body_names = self.scene.dof_names, self.scene.body_names
        self.sim = SimpleNamespace(**self.scene.limits)
        self.substeps = int(getattr(self.isaac.sim_params, "substeps", 1))
        self.max_episode_length = self.driver.max_episode_length
        self.clip_actions, self.clip_observations = self.driver.clip_actions, self.driver.clip_observations
        self.default_action_dim = self.driver.num_actions
        self.object_keys = tuple(self.scene.objects)
        self.refusals = self.scene.refusals

        self.unstable = torch.zeros(num_envs, dtype=torch.bool, device=self.device)
        self._gym.blown = torch.zeros_like(self.unstable)
        self.contact_overflows = torch.zeros(num_envs, dtype=torch.int32, device=self.device)
        self.engine_warnings: dict[str, int] = {}
        self._progress = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self.state: dict[str, Tensor] = {}
        self._mirrored: dict[str, Place] = {}
        self._make_state()
        found = tensors.constants_of(self.isaac, 0)
        self.constants = {key: found[key] for key in self.constant_names if key in found}
        self.constants["max_episode_length"] = torch.tensor(self.max_episode_length)
        self.default_state = {key: x.clone() for key, x in self.state.items() if key in self.scene.keys}
        self._first = self.get_state()
        everyone = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self.attach(
            EnvGroups(
                seeds=everyone,
                lanes=torch.arange(num_envs, device=self.device),
                actions=torch.zeros(num_envs, self.default_action_dim, device=self.device),
                commands=everyone.bool(),
                initial_states=everyone.bool(),
                goals=everyone.bool(),
            )
        )
        self._begun: Tensor | None = None

    def _make_state(self) -> None:
        for key, place in self.keys.items():
            own, row = self._row(place), self.rows[place]
            if own is None and isinstance(tensors.read(self.isaac, place), Tensor):
                raise ValueError(f"{self.name}: '{key}' has another shape with this config than with the task's own")
            if own is None:  # made in a step
                own = torch.zeros(self.num_envs, *row.shape, dtype=row.dtype, device=self.device)
            self._mirrored[key] = place
            # what lies in one piece is read where it is; a task that puts another tensor there is copied from
            self.state[key] = own if own.is_contiguous() else own.contiguous()
        self.state.update({key: x.clone() for key, x in self.scene.read().items()})
        self.state["reset_buf"] = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        if self.once:
            self.state[SOLVED] = torch.zeros(self.num_envs, device=self.device)

    def _row(self, place: Place) -> Tensor | None:
        x = tensors.read(self.isaac, place)
        row = self.rows[place]
        if not isinstance(x, Tensor) or x.numel() != self.num_envs * _numel(row.shape):
            return None
        return tensors.view(x, row, self.num_envs)

    def _sync(self) -> None:
        """Bring the state up to date with the task."""
        for key, place in self._mirrored.items():
            own, kept = self._row(place), self.state[key]
            if own is not None and own.data_ptr() != kept.data_ptr():
                kept.copy_(own)
        for key, x in self.scene.read().items():
            self.state[key].copy_(x)

    @property
    def bytes_per_env(self) -> int:
        own = {x.untyped_storage().data_ptr(): x for _, x in tensors.tensors_of(self.isaac)}
        return ENV_BYTES + 3 * sum(x.untyped_storage().nbytes() for x in own.values()) // self.num_envs

    def pose_source(self) -> PoseSource | None:
        source = getattr(getattr(self.isaac.sim, "engine", None), "pose_source", None)
        return None if source is None else source()

    # what the environment says

    def attach(self, groups: EnvGroups) -> None:
        self._groups = groups
        self._draws.seeds, self._draws.lanes = groups.seeds, groups.lanes
        self._gym.commanded = groups.commands
        self._own_actions = ~groups.commands.unsqueeze(1)
        self._make_groups_alike()

    def _make_groups_alike(self) -> None:
        """Give every environment what the task's making drew or placed for the first one of its lane.

        Frictions, masses, origins and terrain levels are then those that a group meets alone.
        """
        lanes = self._groups.lanes
        if bool((lanes == torch.arange(self.num_envs, device=self.device)).all()):
            return
        for place, row in self.rows.items():
            x = tensors.read(self.isaac, place)
            if not isinstance(x, Tensor) or x.dim() == 0 or x.shape[0] != self.num_envs * row.repeats:
                continue
            if _writable(x) and (x.is_floating_point() or not _NUMBERED.search("".join(place))):
                own = x.reshape(self.num_envs, row.repeats, *x.shape[1:])[lanes]
                x.copy_(own.reshape(x.shape))
        self.driver.place(lanes)
        self.scene.make_alike(lanes)
        self._first = self.get_state()

    def set_drive_mode(self, effort: Tensor) -> None:
        self._gym.effort = effort
        self.scene.set_drives(self._groups.commands, effort)

    def restart(self) -> None:
        self.set_state(self._first)

    # one control step

    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        # the task's own pre_physics_step takes the action itself
        return torch.zeros(action.shape[0], self.num_dofs, dtype=action.dtype, device=action.device)

    def step(self, command: Tensor) -> None:
        self._gym.command = command if bool(self._groups.commands.any()) else None
        width = min(self.default_action_dim or 0, self._groups.actions.shape[1])
        actions = torch.zeros(self.num_envs, self.default_action_dim or 0, device=self.device)
        actions[:, :width] = self._groups.actions[:, :width] * self._own_actions
        if self.once:
            self.state[SOLVED].copy_(torch.maximum(self.state[SOLVED], self._score(self._known(self.state))))
        self._gym.blown.zero_()  # type: ignore[union-attr]
        self._draws.begin_step(self.step_count)
        try:
            self.driver.act(actions)
            ends = self.driver.judge(self._progress)
        except Exception as error:
            raise UserError(f"{self.source.address}: {one_line(error, self.source.file.parent)}") from error
        self._progress += 1
        self._sync()
        self.state["reset_buf"].copy_(ends)
        torch.logical_or(self._gym.blown, self._not_finite(), out=self.unstable)  # type: ignore[arg-type]

    def _not_finite(self) -> Tensor:
        found = ~torch.isfinite(self.isaac.rew_buf)
        for key in ("root_states", "dof_pos", "dof_vel"):
            if key in self.state:
                found = found | ~torch.isfinite(self.state[key]).flatten(1).all(dim=1)
        return found

    # episodes

    def prepare_reset(self, mask: Tensor) -> None:
        """Begin episodes as the task does where ``mask`` is True: ``default_state`` is then where they begin."""
        env_ids = mask.nonzero().flatten()
        self._begun = mask.clone()
        if not len(env_ids):
            return
        kept = tensors.Unmasked(self.isaac, self.rows)
        try:
            for own in self._by_group(mask, env_ids):
                self._reset(own)
            self._draws.begin_step(-1 - self.step_count)
            with self._draws.call("observe", None, True):
                self.driver.observe()
        except Exception as error:
            raise UserError(f"{self.source.address}: {one_line(error, self.source.file.parent)}") from error
        kept.restore(mask)
        self._progress.masked_fill_(mask, 0)
        self._sync()
        self.state["reset_buf"].masked_fill_(mask, 0)
        if self.once:
            self.state[SOLVED].masked_fill_(mask, 0.0)
        for key, x in self.default_state.items():
            x.copy_(self.state[key])

    def _by_group(self, mask: Tensor, env_ids: Tensor) -> list[Tensor]:
        """The environments to reset in one call of the task's code; on a CPU those of one group, so that it mixes none.

        On CUDA all of them: nothing is promised there to the bit, and each call costs.
        """
        if self.device.type != "cpu":
            return [env_ids]
        size = int(self._groups.lanes.max()) + 1
        found = torch.split(mask, size)
        return [own.nonzero().flatten() + k * size for k, own in enumerate(found) if bool(own.any())]

    def _reset(self, env_ids: Tensor) -> None:
        self._draws.begin_step(-1 - self.step_count)  # other numbers than those of the step
        with self._draws.call("reset", env_ids, True):
            self.driver.reset(env_ids)

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        if initial:
            if self._begun is None:
                self.prepare_reset(mask)
            self._begun = None
            own = mask & self._groups.initial_states
            self._lay_over("initial", own, lambda: self.scene.write(own, {**self.default_state, **initial}))
        if goal:
            for key in goal:
                if key not in self.goal_keys:
                    raise ValueError(f"{self.name} has no goal '{key}'{near_matches(key, self.goal_keys)}")
            own = mask & self._groups.goals
            self._lay_over("goal", own, lambda: self._write_goals(own, goal))

    def _lay_over(self, what: str, mask: Tensor, write: Callable[[], None]) -> None:
        """Write over what the task has made of new episodes, and let it observe that."""
        if not bool(mask.any()):
            return
        kept = tensors.Unmasked(self.isaac, self.rows)
        write()
        with self._draws.call(f"observe {what}", mask.nonzero().flatten(), True):
            self.driver.observe()
        kept.restore(mask)
        self._sync()

    def _write_goals(self, mask: Tensor, goal: dict[str, Tensor]) -> None:
        for key, value in goal.items():
            buffer = self._row(self.keys[key])
            assert buffer is not None
            buffer.copy_(torch.where(mask.view(-1, *[1] * (buffer.dim() - 1)), value, buffer))

    # fitness

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        value = self._score(self._known(state))
        return value * (1.0 - state[SOLVED]) if self.once else value

    def _known(self, state: Mapping[str, Tensor]) -> dict[str, Any]:
        return {**self.constants, **state}

    def _score(self, known: Mapping[str, Any]) -> Tensor:
        if self.score is None:
            return torch.zeros_like(known["reset_buf"], dtype=torch.float32)
        function = type(self).score
        assert function is not None
        return function(**{name: known[name] for name in inspect.signature(function).parameters})

    # checkpoints

    def get_state(self) -> dict[str, Tensor]:
        saved = {f"task.{'.'.join(place)}": x.to("cpu", copy=True) for place, x in tensors.tensors_of(self.isaac)}
        numbers = tensors.numbers_of(self.isaac)
        saved.update({f"number.{name}": value for name, value in _exact(numbers).items()})
        saved.update({f"sim.{key}": x for key, x in self.scene.get_state().items()})
        saved.update({f"state.{key}": self.state[key].to("cpu", copy=True) for key in self.state})
        saved.update({f"default.{key}": x.to("cpu", copy=True) for key, x in self.default_state.items()})
        return {**saved, "progress": self._progress.to("cpu", copy=True)}

    def set_state(self, state: dict[str, Tensor]) -> None:
        self.scene.set_state({key[4:]: x for key, x in state.items() if key.startswith("sim.")})
        for key, x in state.items():
            kind, _, name = key.partition(".")
            if kind == "task":
                attribute, _, entry = name.partition(".")
                place = (attribute, entry)
                own = tensors.read(self.isaac, place)
                if isinstance(own, Tensor) and own.shape == x.shape and _writable(own):
                    own.copy_(x)
                else:
                    tensors.write(self.isaac, place, x.to(self.device, copy=True))
            elif kind == "number":
                now = getattr(self.isaac, name, None)
                value = x.item()
                setattr(self.isaac, name, type(now)(value) if isinstance(now, (bool, int)) else value)
            elif kind == "state":
                self.state[name].copy_(x)
            elif kind == "default":
                self.default_state[name].copy_(x)
        self._progress.copy_(state["progress"])


def _exact(numbers: Mapping[str, Any]) -> dict[str, Tensor]:
    """Numbers as tensors that hold them exactly."""
    made: dict[str, Tensor] = {}
    for name, value in numbers.items():
        if isinstance(value, float):
            made[name] = torch.tensor(value, dtype=torch.float64)
        elif isinstance(value, (bool, int)) and abs(value) < 2**62:
            made[name] = torch.tensor(value)
    return made


def _writable(x: Tensor) -> bool:
    return 0 not in x.stride() and not x.is_inference()


def _numel(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _as_dict(cfg: Mapping[str, Any]) -> dict[str, Any]:
    from omegaconf import DictConfig, OmegaConf

    made: Any = OmegaConf.to_container(cfg, resolve=True) if isinstance(cfg, DictConfig) else cfg
    return dict(made)
