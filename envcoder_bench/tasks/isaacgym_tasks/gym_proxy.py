"""A proxy of ``gym`` that merges candidates' commands into the task's own."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.tasks.isaacgym_tasks.own_properties import OwnProperties

_STATES = ("refresh_actor_root_state_tensor", "refresh_dof_state_tensor")
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
        self._acquired: dict[str, dict[str, Tensor]] = {}  # by the method that refreshes them, and the actor's name
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

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._gym, name)
        if not callable(method):
            return method
        if name.startswith("acquire_"):
            made = self._acquiring(name, method)
        elif name.startswith("refresh_"):
            made = self._refreshing(name, method)
        else:
            made = self._forwarding(name, method)
        self.__dict__[name] = made  # so that the next call finds it at once
        return made

    def _acquiring(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        kind = name[len("acquire_") :]
        several = kind in ("jacobian_tensor", "mass_matrix_tensor")
        refresh = f"refresh_{kind}{'s' if several else ''}"

        def acquire(*args: Any) -> Any:
            if refresh not in self.acquired:
                self.acquired.append(refresh)
            made = method(*args)
            if isinstance(made, Tensor):
                self._acquired.setdefault(refresh, {})[str(args[1:])] = made
            return made

        return acquire

    def _refreshing(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        state = name in _STATES

        def refresh(*args: Any) -> Any:
            own = self._acquired.get(name, {}).values()
            counts = (self._written if state else 0, self._stepped)
            if own and self._fresh.get(name) == (*counts, *(x._version for x in own)):
                return True
            made = method(*args)
            for x in own:
                increment_version(x)  # as torch's own writes do
            self._fresh[name] = (*counts, *(x._version for x in own))
            return made

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
        made = self._gym.simulate(sim)
        blown = getattr(getattr(sim, "engine", None), "blown", None)
        if blown is not None and self.blown is not None:
            self.blown |= blown
        return made

    def _merged(self, given: Any, effort: bool) -> Any:
        if self.command is None or not isinstance(given, Tensor):
            return given
        assert self.commanded is not None and self.effort is not None
        rows = (self.commanded & (self.effort == effort)).unsqueeze(1)
        return torch.where(rows, self.command, given.reshape(self.command.shape)).contiguous()


def _or(given: Any, other: Tensor) -> Tensor:
    return given if isinstance(given, Tensor) else other


@contextlib.contextmanager
def proxied() -> Iterator[list[GymProxy]]:
    """Make ``acquire_gym`` return a proxy inside the block; yields a list, to which the proxy is added."""
    from isaacgym import gymapi  # type: ignore[import-not-found]

    made: list[GymProxy] = []
    acquire = gymapi.acquire_gym

    def acquire_gym(*args: Any) -> GymProxy:
        if not made:
            made.append(GymProxy(acquire(*args)))
        return made[0]

    gymapi.acquire_gym = acquire_gym  # type: ignore[assignment]
    try:
        with settings_kept():
            yield made
    finally:
        gymapi.acquire_gym = acquire
