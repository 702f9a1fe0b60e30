"""A proxy of ``gym`` that merges candidates' commands into the task's own, and notes what the task's code sets."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from envcoder_bench.core.torch_settings import settings_kept

STATES = ("refresh_actor_root_state_tensor", "refresh_dof_state_tensor")
# what they set acts on other tensors in the next simulate
_WRITERS = ("set_actor_root_state_tensor", "set_dof_state_tensor", "set_dof_position_target_tensor",
            "set_dof_velocity_target_tensor", "set_dof_actuation_force_tensor", "apply_rigid_body_force")  # fmt: skip


class GymProxy:
    """The ``gym`` of a task; calls are forwarded, some with changes.

    A refresh is omitted if neither the simulation nor the tensor has changed since the last one.

    Attributes:
        commanded: ``(num_envs,)`` bool, environments whose drives follow ``command`` instead of the task.
        effort: ``(num_envs,)`` bool, which of these are commanded by efforts; the others by position targets.
        targeted: whether some of these are commanded by position targets.
        command: ``(num_envs, num_dofs)``.
        blown: ``(num_envs,)`` bool, environments whose physics failed since it was cleared.
        acquired: names of the methods that refresh the acquired tensors.
        steps: how often ``simulate`` was called.
        own_properties: what the task's code sets is noted there.
    """

    def __init__(self, gym: Any) -> None:
        self.__dict__.update(_gym=gym, _sim=None, _efforts=None, _targets=None)
        self._acquired: dict[str, dict[str, Tensor]] = {}  # keys: the method that refreshes them, then the actor's name
        self._written, self._stepped = 0, 0  # counts of writes to states, and of other changes of the simulation
        self._fresh: dict[str, tuple[int, ...]] = {}  # these counts and the tensors' versions, of the last refresh
        self.commanded: Tensor | None = None
        self.effort: Tensor | None = None
        self.targeted = False
        self.command: Tensor | None = None
        self.blown: Tensor | None = None
        self.acquired: list[str] = []
        self.steps = 0
        self.own_properties: OwnProperties | None = None
        self._kept: Sequence[str] = ()

    @contextlib.contextmanager
    def kept(self, refreshes: Sequence[str]) -> Iterator[None]:
        """Omit these refreshes inside the block."""
        self._kept = refreshes
        try:
            yield
        finally:
            self._kept = ()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._gym, name)
        if not callable(method):
            return method
        if name.startswith("acquire_"):
            wrapper = self._acquiring(name, method)
        elif name.startswith("refresh_"):
            wrapper = self._refreshing(name, method)
        else:
            wrapper = self._forwarding(name, method)
        self.__dict__[name] = wrapper  # so that the next call finds it at once
        return wrapper

    def _acquiring(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        kind = name[len("acquire_") :]
        several = kind in ("jacobian_tensor", "mass_matrix_tensor")
        refresh = f"refresh_{kind}{'s' if several else ''}"

        def acquire(*args: Any) -> Any:
            if refresh not in self.acquired:
                self.acquired.append(refresh)
            acquired = method(*args)
            if isinstance(acquired, Tensor):
                self._acquired.setdefault(refresh, {})[str(args[1:])] = acquired
            return acquired

        return acquire

    def _refreshing(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        state = name in STATES

        def refresh(*args: Any) -> Any:
            tensors = self._acquired.get(name, {}).values()
            counts = (self._written if state else 0, self._stepped)
            if name in self._kept or (tensors and self._fresh.get(name) == (*counts, *(x._version for x in tensors))):
                return True
            result = method(*args)
            for x in tensors:
                increment_version(x)  # torch's own writes do so, too
            self._fresh[name] = (*counts, *(x._version for x in tensors))
            return result

        return refresh

    def _forwarding(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        reads, writes = name.startswith(("get_", "fetch_")), name.startswith(_WRITERS)

        def forward(*args: Any, **kwargs: Any) -> Any:
            if not reads:
                self.changed(state_only=writes)
                if self.own_properties is not None:
                    self.own_properties.note(name, args)
            return method(*args, **kwargs)

        return forward

    def changed(self, state_only: bool = False) -> None:
        """Note that states of roots and DOFs have changed in the simulation, or anything in it."""
        self._written += 1
        self._stepped += not state_only

    def create_sim(self, *args: Any, **kwargs: Any) -> Any:
        self._sim = self._gym.create_sim(*args, **kwargs)
        return self._sim

    def set_dof_actuation_force_tensor(self, sim: Any, efforts: Tensor) -> Any:
        self._efforts = efforts
        return self._gym.set_dof_actuation_force_tensor(sim, self._merged(efforts, True))

    def set_dof_position_target_tensor(self, sim: Any, targets: Tensor) -> Any:
        self._targets = targets
        return self._gym.set_dof_position_target_tensor(sim, self._merged(targets, False))

    def simulate(self, sim: Any) -> Any:
        if self.command is not None:
            # efforts act in one simulate, and the task may set only targets
            zeros = torch.zeros_like(self.command)
            self._gym.set_dof_actuation_force_tensor(sim, self._merged(_or(self._efforts, zeros), True))
            if self.targeted:
                self._gym.set_dof_position_target_tensor(sim, self._merged(_or(self._targets, zeros), False))
        self._efforts = None
        self.steps += 1
        self.changed()
        result = self._gym.simulate(sim)
        blown = getattr(getattr(sim, "engine", None), "blown", None)
        if blown is not None and self.blown is not None:
            self.blown |= blown
        return result

    def _merged(self, commands: Any, effort: bool) -> Any:
        if self.command is None or not isinstance(commands, Tensor):
            return commands
        assert self.commanded is not None and self.effort is not None
        rows = (self.commanded & (self.effort == effort)).unsqueeze(1)
        return torch.where(rows, self.command, commands.reshape(self.command.shape)).contiguous()


def _or(commands: Any, other: Tensor) -> Tensor:
    return commands if isinstance(commands, Tensor) else other


@contextlib.contextmanager
def proxied() -> Iterator[list[GymProxy]]:
    """Make ``acquire_gym`` return a proxy inside the block; yields a list, to which the proxy is added."""
    from isaacgym import gymapi  # type: ignore[import-not-found]

    proxies: list[GymProxy] = []
    acquire = gymapi.acquire_gym

    def acquire_gym(*args: Any) -> GymProxy:
        if not proxies:
            proxies.append(GymProxy(acquire(*args)))
        return proxies[0]

    gymapi.acquire_gym = acquire_gym  # type: ignore[assignment]
    try:
        with settings_kept():
            yield proxies
    finally:
        gymapi.acquire_gym = acquire


Key = tuple[str, int, int]  # kind, index of the environment, index of the actor

_SHAPE = ("friction", "rolling_friction", "torsion_friction", "restitution")
_TENDON = ("stiffness", "damping", "limit_stiffness", "fixed_spring_rest_length")
# kinds by the methods of gym that set them
_KINDS = {
    "set_actor_rigid_shape_properties": "shapes",
    "set_actor_rigid_body_properties": "bodies",
    "set_actor_dof_properties": "dofs",
    "set_actor_tendon_properties": "tendons",
    "set_sim_params": "gravity",
}


class OwnProperties:
    """Notes what a task's code sets while it is watched, with the values before; saves and restores these properties.

    Args:
        gym: the task's gym.
        sim: its simulation.
        envs: handles of the environments.
    """

    def __init__(self, gym: Any, sim: Any, envs: list[Any]) -> None:
        self._gym, self._sim, self._envs = gym, sim, envs
        self._indices = {id(env): k for k, env in enumerate(envs)}
        self._first: dict[Key, np.ndarray] = {}
        self._watching = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Note what is set inside the block."""
        self._watching = True
        try:
            yield
        finally:
            self._watching = False

    def note(self, method: str, args: tuple[Any, ...]) -> None:
        """Note a call of a method of gym, before it is made."""
        if not self._watching or method not in _KINDS or len(args) < 2:
            return
        kind = _KINDS[method]
        key = (kind, 0, 0) if kind == "gravity" else (kind, self._indices.get(id(args[0]), -1), int(args[1]))
        if key[1] >= 0 and key not in self._first:
            self._first[key] = self._get(key)

    def get_state(self) -> dict[str, Tensor]:
        """Return the present values of what was noted."""
        return {".".join(map(str, key)): torch.from_numpy(self._get(key)) for key in self._first}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``get_state`` returned; what was noted since then gets its first values."""
        values_by_key = {_key(name): x.cpu().numpy() for name, x in state.items()}
        for key in values_by_key:
            self._first.setdefault(key, self._get(key))
        for key, first in self._first.items():
            values = values_by_key.get(key, first)
            if not np.array_equal(values, self._get(key)):
                self._set(key, values)

    def _get(self, key: Key) -> np.ndarray:
        """Return properties as numbers, one row for each shape, body, DOF or tendon."""
        rows = self._read(key)
        kind = key[0]
        if kind == "gravity":
            return np.array([rows.gravity.x, rows.gravity.y, rows.gravity.z])
        if kind == "dofs":
            return np.stack([rows[name].astype(float) for name in rows.dtype.names], axis=-1)
        if kind == "bodies":
            return np.array([inertial(body) for body in rows])
        return np.array([[getattr(row, name) for name in _names(kind)] for row in rows], dtype=float)

    def _set(self, key: Key, values: np.ndarray) -> None:
        kind, index, actor = key
        rows = self._read(key)
        if kind == "gravity":
            rows.gravity.x, rows.gravity.y, rows.gravity.z = map(float, values)
            self._gym.set_sim_params(self._sim, rows)
            return
        if kind == "dofs":
            for name, column in zip(rows.dtype.names, values.T):
                rows[name] = column
        elif kind == "bodies":
            for body, numbers in zip(rows, values.tolist()):
                set_inertial(body, numbers)
        else:
            for row, numbers in zip(rows, values.tolist()):
                for name, x in zip(_names(kind), numbers):
                    setattr(row, name, x)
        method = next(name for name, numbers in _KINDS.items() if numbers == kind)
        more = (False,) if kind == "bodies" else ()  # inertias are given
        getattr(self._gym, method)(self._envs[index], actor, rows, *more)

    def _read(self, key: Key) -> Any:
        kind, index, actor = key
        if kind == "gravity":
            return self._gym.get_sim_params(self._sim)
        method = next(name for name, setting in _KINDS.items() if setting == kind)
        return getattr(self._gym, method.replace("set_", "get_", 1))(self._envs[index], actor)


def _key(name: str) -> Key:
    kind, index, actor = name.split(".")
    return kind, int(index), int(actor)


def _names(kind: str) -> tuple[str, ...]:
    return _SHAPE if kind == "shapes" else _TENDON


def inertial(body: Any) -> list[float]:
    """Return the 13 numbers of a body's properties: mass, centre of mass and the rows of its inertia."""
    return [body.mass, *(number for x in _vectors(body) for number in (x.x, x.y, x.z))]


def set_inertial(body: Any, numbers: Sequence[float]) -> None:
    """Set what ``inertial`` returns."""
    body.mass = numbers[0]
    for k, x in enumerate(_vectors(body)):
        x.x, x.y, x.z = numbers[3 * k + 1 : 3 * k + 4]


def _vectors(body: Any) -> tuple[Any, ...]:
    return body.com, body.inertia.x, body.inertia.y, body.inertia.z
