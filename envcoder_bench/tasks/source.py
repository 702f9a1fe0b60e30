"""Where tasks come from: a plug-in that finds the tasks whose addresses it claims.

A source of another package is an entry point of the group ``envcoder_bench.task_sources``, whose value is the
``module:Class`` of a ``TaskSource``. Its module should import neither torch nor a simulator, because it is loaded to
see which ``--task`` is its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it imports torch, which the names of tasks do not need
    from envcoder_bench.tasks.spec import TaskSpec


class TaskSource(ABC):
    """A source of tasks.

    Attributes:
        prefixes: the beginnings of its addresses, such as ``mjlab:``.
        titled_by_address: whether tables and plots name a task by its address, and not by its name.
    """

    prefixes: tuple[str, ...] = ()
    titled_by_address: bool = False

    def claims(self, address: str) -> bool:
        """Return whether ``--task`` is an address of this source; by default one with its prefixes."""
        return address.startswith(self.prefixes)

    def with_config(self, address: str, config: str | None) -> tuple[str, str | None]:
        """Return an address and ``--task_config``, which the address may take up; by default they are unchanged."""
        return address, config

    def file(self, address: str) -> str:
        """Return the file or folder that an address names; by default the address."""
        return address

    def is_current(self, spec: TaskSpec) -> bool:
        """Return whether a task that was found in this process is as its files are now; by default it is."""
        return True

    @abstractmethod
    def find(self, address: str) -> TaskSpec:
        """Find a task, without simulating it if that takes a while. Raises ValueError if there is none."""
