"""A task as its checks use it: new tasks, first episodes, random commands, and comparisons of states."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.settings import merged, nested, select
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.prepare.groups import Group, prepare
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.shaping.assemble import assemble
from envcoder_bench.shaping.binding import bind
from envcoder_bench.shaping.kinds import TORQUE
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.shaping.state import StateDict, own_constants
from envcoder_bench.sim import pick_simulator
from envcoder_bench.tasks.base import HUMAN, Task
from envcoder_bench.tasks.registry import baseline_path, get_spec, make_task
from envcoder_bench.tasks.sim_task import SimTask

FREQUENCY = "task.randomization_params.frequency"  # of tasks of IsaacGymEnvs


class TaskProbe:
    """A task on a simulator, with the human baseline's episodes and actions.

    Args:
        task: its name, its folder or ``module:Class``.
        sim, device: as in cfg/config.yaml.
        overrides: ``key=value`` for the config.

    Raises:
        UserError, ValueError, CandidateError: there is no such task, or its files are invalid.
    """

    def __init__(self, task: str, sim: str = "auto", device: str = "auto", overrides: Sequence[str] = ()) -> None:
        cfg = compose_config(str(task), ["num_envs_per_candidate=4", "compile_shapers=false", *overrides])
        self.spec = get_spec(str(task), cfg.task)
        self.name = self.spec.name
        self.sim, self.device = pick_simulator(sim, device)
        self.foreign = not issubclass(self.spec.task_class, SimTask)
        config, frequency = cfg.task, select(cfg.task, FREQUENCY)
        if isinstance(frequency, (int, float)):  # domain randomization must occur within the checks' steps
            config = merged(config, nested({FREQUENCY: min(frequency, 20)}))
        self.cfg = cfg.model_copy(update={"task": config, "sim": self.sim, "device": self.device})
        path = baseline_path(self.name, HUMAN)
        human = load_candidate(HUMAN, path.read_text(encoding="utf-8"), str(path))
        self.human = replace(assemble(human, human), action_dim=human.action_dim or 0)

    def baselines(self) -> Generator[str, None, dict[str, Group]]:
        """Yield the faults of the baselines, and return the groups of those without."""
        groups, faults = prepare(self.cfg, baseline_sources(self.name))
        yield from (f"{name}.py: {error}" for name, error in faults.items())
        return {group.name: group for group in groups}

    def make(self, num_envs: int) -> Task:
        """Create a task whose commands are those of the human baseline."""
        task = make_task(self.name, self.cfg.task, num_envs, self.sim, self.device)
        effort = self.human.functions.get("command") is not None and self.human.functions["command"].type == TORQUE
        task.set_drive_mode(torch.full((num_envs,), effort, device=self.device))
        return task

    def begun(self, num_envs: int) -> Task:
        """Create a task and begin the human baseline's first episodes, with equal random numbers."""
        task = self.make(num_envs)
        everywhere = torch.ones(num_envs, dtype=torch.bool, device=self.device)
        start = {key: x.clone() for key, x in task.default_state.items()}
        with torch.random.fork_rng():
            torch.manual_seed(0)
            start.update(self._called("initial_state", task))
            task.reset(everywhere, start, {})
            goal = self._called("goal", task)
            if goal:
                task.reset(everywhere, {}, goal)
        return task

    def _called(self, stage: str, task: Task) -> dict[str, Tensor]:
        """Return the result of the human baseline's function; empty if it has none."""
        function = self.human.functions.get(stage)
        made: Any = {} if function is None else bind(function, self._given(task))()
        return made

    def _given(self, task: Task) -> StateDict:
        n, width = task.num_envs, (task.fields["actions"].shape or (1,))[0]
        own = {"actions": torch.zeros(n, width), "progress_buf": torch.zeros(n, dtype=torch.int64)}
        own = {key: x.to(task.device) for key, x in own.items()}
        return StateDict({**task.state, **own, **own_constants(task.constants, task.device)})

    def commands(self, task: Task, steps: int, seed: int = 0) -> Iterator[Any]:
        """Yield random commands ``(num_envs, num_dofs)`` in the human baseline's action space."""
        function, state = self.human.functions.get("command"), self._given(task)
        width = self.human.action_dim or task.default_action_dim or state["actions"].shape[1]
        generator = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            action = (2.0 * torch.rand(task.num_envs, width, generator=generator) - 1.0).to(task.device)
            if function is None:
                yield task.default_dof_target(action, state)
            else:
                yield bind(function, state, action)()

    def differences(self, task: Task, other: Task, rows: Any = slice(None)) -> list[str]:
        """Return the keys of the states that differ in the environments ``rows``."""
        return self.unequal(
            {key: x[rows] for key, x in task.state.items()}, {key: x[rows] for key, x in other.state.items()}
        )

    def unequal(self, state: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
        """Return the keys that differ: bitwise on the CPU; on CUDA contact forces are sums in varying order."""
        close = 0.0 if self.device == "cpu" else 1e-2
        missing = [key for key in state if key not in other]
        both = [(key, x, other[key]) for key, x in state.items() if key in other]
        return missing + [key for key, x, y in both if not torch.allclose(x, y, rtol=close, atol=close)]
