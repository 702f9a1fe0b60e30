"""Binding of the parameters of candidate functions by name. It is done once, because state tensors never move."""

from collections.abc import Callable
from functools import partial
from inspect import Parameter

from torch import Tensor

from envcoder_bench.shaping.contract import CandidateError, CandidateFunction
from envcoder_bench.shaping.state import DICTS, StateDict, entries_of, instead

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
    return partial(function.call, *positional, **named)


def _value(parameter: Parameter, by_name: dict[str, object], function: CandidateFunction, state: StateDict) -> object:
    if parameter.name not in by_name:
        if parameter.default is not Parameter.empty:
            return parameter.default
        hint = instead(parameter.name, by_name.keys())
        raise CandidateError(
            f"parameter {parameter.name!r} is not a key of the state{hint}",
            function.file,
            function.line,
            function.type,
        )
    value = by_name[parameter.name]
    number = parameter.annotation if parameter.annotation in (float, int, bool) else None
    if number is not None and isinstance(value, Tensor) and value.dim() == 0 and value.device.type == "cpu":
        return number(value.item())  # TorchScript accepts no tensor as a float; constants are on the CPU
    return value
