"""Where an Isaac Gym task comes from: its class, its config, and how it is constructed."""

import contextlib
import copy
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.tasks.isaacgym_tasks.importing import isaac_imports, one_line

Config = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A task's class and config, and how it is constructed.

    Attributes:
        address: what ``--task`` names it by.
        name: the name of the task in a run.
        task_class: its class.
        config: its YAML's content.
        train: the content of its rl_games YAML; None if it has none.
        file: where the class is defined.
        folders: where its imports are found.
        construct: makes the task from a config, a number of environments and a torch device.
        around: a context in which its code runs.
    """

    address: str
    name: str
    task_class: type
    config: Config
    train: Config | None
    file: Path
    folders: tuple[Path, ...]
    construct: Callable[[Config, int, str], Any]
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext

    def make(self, config: Config, num_envs: int, device: str) -> Any:
        """Construct the task. Any exception of its code is raised as a ValueError of one line with the place."""
        with isaac_imports(*self.folders), settings_kept(), self.around():
            _forget_simulation(self.task_class)
            try:
                return self.construct(copy.deepcopy(config), num_envs, device)
            except Exception as error:
                raise ValueError(f"{self.address} cannot be built: {one_line(error, self.file.parent)}") from error
            except SystemExit as error:
                raise ValueError(f"{self.address} cannot be built: its code called exit({error.code})") from error

    @contextlib.contextmanager
    def errors_of_code(self) -> Iterator[None]:
        """Convert any exception of the task's code inside the block to a UserError of one line."""
        try:
            yield
        except Exception as error:
            raise UserError(f"{self.address}: {one_line(error, self.file.parent)}") from error


@contextlib.contextmanager
def temporary_folder() -> Iterator[None]:
    """Work in a temporary folder: Quadcopter, Ingenuity and BallBalance write their models to the current one."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _forget_simulation(task_class: type) -> None:
    """Clear IsaacGymEnvs' global of the simulation, which allows only one per process."""
    for cls in task_class.__mro__:
        module = sys.modules.get(cls.__module__)
        if module is not None and hasattr(module, "EXISTING_SIM"):
            module.EXISTING_SIM = None  # type: ignore[attr-defined]
