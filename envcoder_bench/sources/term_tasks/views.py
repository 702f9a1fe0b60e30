"""Views of some environments of a framework's objects and managers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError


class View:
    """An object through which code sees others; a checkpoint does not save what it holds."""


class NeedsAll(UserError):
    """Raised where code reads an object that has no view of some environments."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the task's code reads the term '{name}', which cannot be divided by candidates")


def rows_of(source: Any, rows: slice, num_envs: int, names: tuple[str, ...] = ()) -> Any:
    """Return a shallow copy of an object, whose tensors with a row per environment are views of ``rows``.

    ``names`` restricts it to these attributes.
    """
    result = copy.copy(source)
    for name, value in vars(source).items():
        per_env = isinstance(value, Tensor) and value.dim() and value.shape[0] == num_envs
        if per_env and (not names or name in names):
            object.__setattr__(result, name, value[rows])
    return result


class ManagerView:
    """Some environments of a manager: its tensors, and the results of ``get_command``."""

    def __init__(self, manager: Any, rows: slice) -> None:
        self._manager, self._rows = manager, rows

    def get_command(self, name: str) -> Tensor:
        return self._manager.get_command(name)[self._rows]

    def get_term(self, name: str) -> Any:
        term = self._manager.get_term(name)
        if isinstance(term, Tensor):
            return term[self._rows]
        raise NeedsAll(name)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._manager, name)
        return value[self._rows] if isinstance(value, Tensor) and value.dim() else value


def live_rows(
    source: Any,
    rows: slice,
    num_envs: int,
    other: Callable[[Any], Any],
) -> Any:
    """Return an object of the same class that reads the present attributes of ``source``.

    Of tensors with a row per environment it has ``rows``, and writes into them; ``other`` replaces other values.
    """
    cls = type(source)

    def getter(self: Any, name: str) -> Any:
        if name.startswith("__") or (
            name not in vars(source) and hasattr(cls, name)
        ):  # the class's attributes are the view's
            return object.__getattribute__(self, name)
        value = getattr(source, name)
        per_env = isinstance(value, Tensor) and value.dim() and len(value) == num_envs
        if name.endswith("_ids"):  # indices, of as many joints as there are environments
            per_env = per_env and value.is_floating_point()
        return value[rows] if per_env else other(value)

    def setter(self: Any, name: str, value: Any) -> None:
        getattr(self, name)[:] = value

    return object.__new__(type(cls.__name__, (cls,), {"__getattribute__": getter, "__setattr__": setter}))


class Commands(View):
    """The commands of all blocks, as action terms read them: ``env.command_manager``.

    Args:
        cfgs: their configs.

    Attributes:
        blocks: of the task; they come after the actions.
    """

    def __init__(self, cfgs: Mapping[str, Any] | None = None) -> None:
        self.blocks: Sequence[Any] = ()
        self._cfgs = cfgs or {}

    def get_command(self, name: str) -> Tensor:
        return self.joined(name, lambda manager: manager.get_command(name))

    def get_term(self, name: str) -> Any:
        """Return an object with the tensors of a term."""
        return _Command(self, name)

    def class_of(self, name: str) -> type:
        """Return the class of a term; before there are any, the one that its config says that it builds."""
        if not self.blocks and name in self._cfgs:
            build = type(self._cfgs[name]).build
            returned = build.__annotations__.get("return")
            cls = build.__globals__.get(returned) if isinstance(returned, str) else returned
            if isinstance(cls, type):
                return cls
        return self.joined(name, lambda manager: type(manager.get_term(name)))

    def joined(self, name: str, read: Callable[[Any], Any]) -> Any:
        """Return a copy of what ``read`` returns for each block: all rows of a tensor, and others of the first."""
        if not self.blocks:
            message = f"an action reads the command '{name}' while it is constructed"
            raise UserError(f"{message}, when there are no commands yet: read it in process_actions")
        values = [read(block.command_manager) for block in self.blocks]
        return torch.cat(values) if isinstance(values[0], Tensor) and values[0].dim() else values[0]


class _Command:
    def __init__(self, commands: Commands, name: str) -> None:
        vars(self).update(_commands=commands, _name=name)

    @property
    def __class__(self) -> Any:  # the term's, because code checks it
        return self._commands.class_of(self._name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._commands.joined(self._name, lambda manager: getattr(manager.get_term(self._name), name))

    def __setattr__(self, name: str, value: Any) -> None:
        raise UserError(f"an action sets '{name}' of the command '{self._name}', and it can only read commands")
