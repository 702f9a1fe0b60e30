"""Common parts of the tests of tasks."""

from pathlib import Path
from typing import Any

import torch
import yaml
from fake_simulator import FakeSimulator

from envcoder_bench.core.folders import project_folder
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.shaping.state import StateDict, bind, own_constants
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.sources.shipped import shipped_class
from envcoder_bench.tasks.base import Task


def candidate(task: str, stem: str) -> "Functions":
    """A candidate that is shipped for a task."""
    return Functions(project_folder("user_functions") / task / f"{stem}.py")


def shipped(name: str) -> dict[str, Any]:
    """The shipped YAML of a task."""
    return yaml.safe_load((project_folder("cfg") / "task" / f"{name}.yaml").read_text(encoding="utf-8"))


def fake(name: str, num_envs: int = 6) -> Task:
    """A task over a FakeSimulator that has the joints and bodies that it expects."""
    task_class, cfg = shipped_class(name), shipped(name)
    names = (task_class.dof_names, task_class.body_names, task_class.sensor_names)
    objects = {"object_names": task_class.object_keys, "site_names": task_class.site_names}
    sim = FakeSimulator(num_envs, *names, dt=cfg["sim"]["dt"], **objects)
    return task_class(cfg, sim)


def whole_state(task: Task, width: int = 0) -> StateDict:
    """What candidate functions see at the first step of an episode, with actions of ``width`` (0: the field's)."""
    width = width or task.fields["actions"].shape[0]
    n, device = task.num_envs, task.device
    own = {"actions": torch.zeros(n, width), "progress_buf": torch.zeros(n, dtype=torch.int64)}
    own = {key: x.to(device) for key, x in own.items()}
    return StateDict({**task.state, **own, **own_constants(task.constants, device)})


class Functions:
    """The functions of one candidate file, called with their parameters bound by name."""

    def __init__(self, path: Path) -> None:
        self.candidate = load_candidate(path.stem, path.read_text(encoding="utf-8"), path)

    def __call__(self, name: str, state: StateDict, action=None):
        return bind(self.candidate.functions[name], state, action)()


def baseline(task: str, name: str) -> Functions:
    return Functions(find_spec(task).baseline_path(name))


def begin(task: Task, functions: Functions) -> None:
    """Begin an episode everywhere with the candidate's initial state and goal."""
    everywhere = torch.ones(task.num_envs, dtype=torch.bool, device=task.device)
    state = whole_state(task)
    task.reset(everywhere, functions("compute_initial_state", state), {})
    if "compute_goal" in functions.candidate.functions:
        task.reset(everywhere, {}, functions("compute_goal", state))
