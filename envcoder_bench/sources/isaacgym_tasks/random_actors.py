"""Properties of actors as functions of random samples, set through ``gym`` in one environment at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core.errors import near_matches
from envcoder_bench.sources.isaacgym_tasks.gym_proxy import inertial, set_inertial
from envcoder_bench.sources.isaacgym_tasks.random_params import KINDS, SCALE, Distribution, Params
from envcoder_bench.sources.isaacgym_tasks.scene import Scene

_DOFS, _BODIES = KINDS[:2]
_GETTERS = {kind: f"get_actor_{kind}" for kind in KINDS}


class RandomActors:
    """The randomized properties of all environments' actors.

    Every property is computed from its original value and a sample, so that the order in which environments were
    randomized, or the number of times, changes no bit.

    Args:
        params: which properties, and their distributions.
        gym, scene: of the task.
        envs: handles of the environments.

    Attributes:
        distributions: by key, such as ``hand.dof_properties.damping``.
        samples: by key, ``(num_envs, columns)`` float64; NaN where the property has its original value.

    Raises:
        ValueError: an unknown actor or attribute.
    """

    def __init__(self, params: Params, gym: Any, scene: Scene, envs: Sequence[Any]) -> None:
        self._gym, self._scene, self._envs, self._actors = gym, scene, envs, params.actors
        self._handles = {actor: self._handle(actor) for actor in params.actors}
        self.distributions: dict[str, Distribution] = {}
        self._originals: dict[str, np.ndarray] = {}
        for actor, kinds in params.actors.items():
            if actor in params.scales:
                self.distributions[f"{actor}.{SCALE}"] = params.scales[actor]
                self._originals[f"{actor}.{SCALE}"] = np.ones((len(envs), 1))
            for kind, attributes in kinds.items():
                self._read(actor, kind, list(attributes))
                for name, distribution in attributes.items():
                    self.distributions[f"{actor}.{kind}.{name}"] = distribution
            # both change masses and inertias
            if actor in params.scales or _BODIES in kinds:
                self._read_bodies(actor)
        self.samples = {key: self._unset(key) for key in self.distributions}

    def _handle(self, actor: str) -> int:
        first, gym = self._envs[0], self._gym
        handles = {gym.get_actor_name(first, k): k for k in range(gym.get_actor_count(first))}
        if actor not in handles:
            raise ValueError(
                f"task.randomization_params.actor_params.{actor}: the task has no such actor"
                f"{near_matches(actor, handles)}: {', '.join(handles)}"
            )
        return handles[actor]

    def _unset(self, key: str) -> Tensor:
        return torch.full(self._originals[key].shape, torch.nan, dtype=torch.float64)

    def _get(self, env: int, actor: str, kind: str) -> Any:
        return getattr(self._gym, _GETTERS[kind])(self._envs[env], self._handles[actor])

    def _read(self, actor: str, kind: str, names: list[str]) -> None:
        """Read the original values of attributes in all environments."""
        first = self._get(0, actor, kind)
        for name in names:
            key = f"task.randomization_params.actor_params.{actor}.{kind}.{name}"
            if kind == _DOFS:
                attributes = list(first.dtype.names or ())
            else:
                attributes = [name for name in dir(first[0]) if _is_number(getattr(first[0], name))] if first else []
            if name not in attributes:
                hint = near_matches(name, attributes)
                raise ValueError(f"{key} is not a number of this actor{hint}: {', '.join(attributes)}")
        # every environment, because a task may have made them unequal
        originals: dict[str, list[Any]] = {name: [] for name in names}
        for env in range(len(self._envs)):
            rows = self._get(env, actor, kind)
            for name in names:
                originals[name].append(rows[name].copy() if kind == _DOFS else [getattr(row, name) for row in rows])
        self._originals.update({f"{actor}.{kind}.{name}": np.array(x, dtype=float) for name, x in originals.items()})

    def _read_bodies(self, actor: str) -> None:
        """Read masses, centres of mass and inertias, which follow a mass or a scale."""
        envs = range(len(self._envs))
        numbers = np.array([[inertial(body) for body in self._get(env, actor, _BODIES)] for env in envs], dtype=float)
        parts = {"mass": numbers[..., 0], "com": numbers[..., 1:4], "inertia": numbers[..., 4:]}
        self._originals.update({f"{actor}.{_BODIES}.{name}": x for name, x in parts.items()})

    def use_lanes(self, lanes: Tensor) -> None:
        """Take the originals of every environment from the environment whose index is its lane; forget all samples."""
        rows = lanes.cpu().numpy()
        self._originals = {key: x[rows] for key, x in self._originals.items()}
        self.samples = {key: self._unset(key) for key in self.distributions}

    def columns(self, key: str) -> int:
        """Return the number of samples of a property per environment."""
        return self.samples[key].shape[1]

    def set_samples(self, envs: Tensor, samples: dict[str, Tensor]) -> None:
        """Set new samples ``(len(envs), columns)`` of some properties in the environments ``envs``."""
        for key, x in samples.items():
            self.samples[key][envs] = x
        changed = {key.rpartition(".")[0] for key in samples}
        for env in envs.tolist():
            for actor, kinds in self._actors.items():
                if actor in changed:  # the key of a scale is ``<actor>.scale``
                    self._set_scale(env, actor)
                for kind in kinds:
                    if f"{actor}.{kind}" in changed or (actor in changed and kind in (_BODIES, _DOFS)):
                        self._set(env, actor, kind)

    def restore(self, samples: dict[str, Tensor]) -> None:
        """Set saved samples ``(num_envs, columns)`` where they differ from the present ones."""
        differ = torch.zeros(len(self._envs), dtype=torch.bool)
        for key, x in samples.items():
            differ |= ~torch.isclose(x, self.samples[key], rtol=0.0, atol=0.0, equal_nan=True).all(dim=1)
        envs = differ.nonzero().flatten()
        if len(envs):
            self.set_samples(envs, {key: x[envs] for key, x in samples.items()})

    def _value(self, env: int, key: str, original: np.ndarray | None = None) -> np.ndarray:
        values = self._originals[key][env] if original is None else original
        return self.distributions[key].applied(values, self.samples[key][env].numpy())

    def _set_scale(self, env: int, actor: str) -> None:
        """Set an actor's scale; masses follow."""
        handle = self._envs[env], self._handles[actor]
        self._gym.set_actor_scale(*handle, 1.0)
        self._put_bodies(env, actor, self._originals[f"{actor}.{_BODIES}.mass"][env], 1.0)
        self._gym.set_actor_scale(*handle, float(self._value(env, f"{actor}.{SCALE}")[0]))

    def _set(self, env: int, actor: str, kind: str) -> None:
        """Set one kind of properties of an actor."""
        prefix, names = f"{actor}.{kind}", list(self._actors[actor][kind])
        if kind == _DOFS:
            values = {name: self._value(env, f"{prefix}.{name}") for name in names}
            self._scene.set_dof_properties(env, self._handles[actor], values)
            return
        # masses follow from the size, too, and change the inertia with them
        if kind == _BODIES and "mass" in names:
            scale = float(self._value(env, f"{actor}.{SCALE}")[0]) if f"{actor}.{SCALE}" in self.samples else 1.0
            original = self._originals[f"{prefix}.mass"][env] * scale**3
            self._put_bodies(env, actor, self._value(env, f"{prefix}.mass", original), scale)
            names.remove("mass")
        if names:
            properties = self._get(env, actor, kind)
            for name in names:
                for row, value in zip(properties, self._value(env, f"{prefix}.{name}").tolist()):
                    setattr(row, name, value)
            more = (False,) if kind == _BODIES else ()
            setter = getattr(self._gym, f"set_actor_{kind}")
            setter(self._envs[env], self._handles[actor], properties, *more)

    def _put_bodies(self, env: int, actor: str, masses: np.ndarray, scale: float) -> None:
        """Set masses, with centres of mass of the scaled actor and inertias in proportion."""
        prefix = f"{actor}.{_BODIES}"
        original, com, inertia = (self._originals[f"{prefix}.{name}"][env] for name in ("mass", "com", "inertia"))
        ratio = masses / np.where(original > 0, original, 1.0) * scale**2
        properties = self._get(env, actor, _BODIES)
        for k, body in enumerate(properties):
            set_inertial(body, [float(masses[k]), *(com[k] * scale).tolist(), *(inertia[k] * ratio[k]).tolist()])
        self._gym.set_actor_rigid_body_properties(self._envs[env], self._handles[actor], properties, False)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
