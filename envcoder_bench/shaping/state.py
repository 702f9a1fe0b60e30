"""The ``state_dict`` of candidate functions, its constants, and the binding of functions to it."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from inspect import Parameter
from typing import NoReturn

import torch
from torch import Tensor

from envcoder_bench.core.errors import near_matches
from envcoder_bench.shaping.contract import CandidateError, CandidateFunction
from envcoder_bench.shaping.faults import FAULTS, LIKE, Exit, by_user

_ROTATED = "quat_rotate_inverse(root_states[:, 3:7], {}), from isaacgym.torch_utils import quat_rotate_inverse"
_NO_LAST = "the state has no actions of the step before: dof_vel or torques can be penalized instead"
_NO_OBJECT = "a plain function with the keys that it reads as parameters"
# names of other frameworks that are not keys, and how to compute them
_COMPUTED = {
    "base_lin_vel": _ROTATED.format("root_states[:, 7:10]"),
    "base_ang_vel": _ROTATED.format("root_states[:, 10:13]"),
    "projected_gravity": _ROTATED.format("gravity_vec"),
    "base_quat": "root_states[:, 3:7]",
    "base_pos": "root_states[:, 0:3]",
    **{name: _NO_LAST for name in ("prev_actions", "last_actions", "previous_actions")},
    **{name: _NO_OBJECT for name in ("self", "env", "envs", "task", "obs", "observation", "observations", "info")},
    "obs_buf": "it is the result of compute_observation: use the keys that it is computed from",
}
# terms of a reward and their scales; the state has the keys <name>_<term>
DICTS = ("reward_terms", "reward_scales", "rew_scales")


def instead(key: str, keys: Collection[str]) -> str:
    """Return a hint for a name that is not a key: how to compute it, near matches, or all keys."""
    remedy = _COMPUTED.get(key)
    if remedy is not None and ("root_states" in keys or "root_states" not in remedy):
        needs_gravity = "gravity_vec" in remedy and "gravity_vec" not in keys
        return f"; instead: {remedy}" if not needs_gravity else f"; instead: {remedy}, gravity_vec is (0, 0, -1)"
    return near_matches(key, keys, LIKE) or f"; the keys are {', '.join(keys)}"


def entries_of(state: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return the tensors ``<name>_<entry>`` of a state by entry if ``name`` is in ``DICTS``; else an empty dict."""
    if name not in DICTS:
        return {}
    return {key.removeprefix(f"{name}_"): x for key, x in state.items() if key.startswith(f"{name}_")}


class StateDict(dict[str, Tensor]):
    """A read-only dict of one group's tensors, whose KeyError names near matches.

    It is a subclass of dict, so that TorchScript accepts it as ``Dict[str, Tensor]``. Names of ``DICTS`` give dicts.
    """

    def __missing__(self, key: str) -> dict[str, Tensor]:
        entries = entries_of(self, key)
        if entries:
            return entries
        raise KeyError(f"state_dict has no key {key!r}{instead(str(key), self.keys())}")

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "state_dict is read-only: return new tensors instead of changing it, or work on a copy, dict(state_dict)"
        )

    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]
    clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]

    def copy(self) -> dict[str, Tensor]:
        """Return a plain dict of the same tensors, which may be changed."""
        return dict(self)


def own_constants(constants: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Clone the task's constants for one group.

    Single numbers stay on the CPU, where ``.item()`` and arithmetic with device tensors cost no sync. Index tensors go
    to the device: indexing a CUDA tensor with a CPU tensor copies it at every call, which syncs and cannot be captured.
    """
    return {key: x.clone() if x.dim() == 0 else x.to(device, copy=True) for key, x in constants.items()}


# parameters of candidate functions are bound by name, once, because state tensors never move

STATE_NAMES = ("state_dict", "state")
ACTION_NAMES = ("action", "actions")


def bind(function: CandidateFunction, state: StateDict, action: Tensor | None = None) -> Callable[[], object]:
    """Bind the inputs of ``function``; the returned callable takes no arguments.

    A parameter is ``state_dict`` (or ``state``), ``action`` / ``actions`` (``action`` if given, else the state's
    ``actions``), a key of the state, or a dict of several keys (``DICTS``). Other parameters keep their defaults.
    ``**kwargs`` receives the keys that no parameter names; ``*args`` is empty.

    Raises:
        CandidateError: a parameter without a default has another name.
    """
    by_name: dict[str, object] = {**state, **{name: state for name in STATE_NAMES}}
    by_name.update({name: entries for name in DICTS if (entries := entries_of(state, name))})
    by_name.update({name: state["actions"] if action is None else action for name in ACTION_NAMES})
    positional: list[object] = []
    named: dict[str, object] = {}
    for parameter in function.parameters:
        if parameter.kind is Parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is Parameter.VAR_KEYWORD:
            taken = {p.name for p in function.parameters}
            named.update({key: value for key, value in state.items() if key not in taken})
        elif parameter.kind is Parameter.KEYWORD_ONLY:
            named[parameter.name] = _value(parameter, by_name, function, state)
        else:
            positional.append(_value(parameter, by_name, function, state))
    call, file = partial(function.call, *positional, **named), function.file

    def call_safely() -> object:
        try:
            return call()
        except FAULTS:
            raise
        except BaseException as error:
            if by_user(error, file):
                raise
            raise Exit from error

    return call_safely


def _value(parameter: Parameter, by_name: dict[str, object], function: CandidateFunction, state: StateDict) -> object:
    if parameter.name not in by_name:
        if parameter.default is not Parameter.empty:
            return parameter.default
        hint = instead(parameter.name, state.keys())
        raise CandidateError(
            f"parameter {parameter.name!r} is not a key of the state{hint}",
            function.file,
            function.line,
            function.type,
        )
    value = by_name[parameter.name]
    number = parameter.annotation if parameter.annotation in (float, int, bool) else None
    if number is not None and isinstance(value, Tensor) and value.dim() == 0 and value.device.type == "cpu":
        return number(value.item())  # TorchScript does not take a tensor as a float; constants are on the CPU
    return value
