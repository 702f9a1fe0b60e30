"""Functions as policies of tasks, without training."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor, nn

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.results.stress import Settings, Stress
from envcoder_bench.run.inputs import described
from envcoder_bench.run.prepare.environments import build_task
from envcoder_bench.run.prepare.groups import Group, prepare
from envcoder_bench.run.spec import CandidateSource, RunSpec
from envcoder_bench.stress.disturbed_env import DisturbedEnv
from envcoder_bench.stress.measure import measure_groups, with_contacts

Controller = Callable[[Tensor], Tensor]


class Script(nn.Module):
    def __init__(self, controller: Controller) -> None:
        super().__init__()
        self.controller = controller

    def forward(self, obs: Tensor) -> Tensor:
        return self.controller(obs).clamp(-1.0, 1.0)


def groups_of(task: str, observation: str, names: list[str], more: tuple[str, ...] = ()) -> tuple[RunSpec, list[Group]]:
    spec = described(task, ["sim=mujoco_cpu", "device=cpu", "seeds=1", "compile_shapers=false", *more])
    sources = tuple(CandidateSource(name, f"{name}.py", observation) for name in names)
    spec = with_contacts(replace(spec, sources=sources))
    groups, faults = prepare(spec)
    assert not faults
    return spec, groups


def stress_of(spec: RunSpec, groups: list[Group], scripts: Mapping[str, Controller], settings: Settings) -> Stress:
    policies = {group.key: (Script(scripts[group.name]), "") for group in groups}
    rows, settings, faults = measure_groups(spec, groups, policies, settings)
    assert not faults
    return Stress(settings, tuple(rows))


def disturbed(spec: RunSpec, groups: list[Group], settings: Settings, **columns: float) -> DisturbedEnv:
    """An environment of one group where only some axes have values, the same in all draws."""
    grid = settings.grid
    values = grid.draws * 0.0 + [grid.column(axis.name)[0] for axis in grid.axes]
    for name, value in columns.items():
        values[:, [axis.name for axis in grid.axes].index(name)] = value
    layout = GroupLayout(1, (1 + settings.draws) * settings.episodes)
    task = build_task(spec, layout.num_envs)
    robot = task.robot()
    assert robot is not None
    return DisturbedEnv(task, robot, layout, [groups[0].evaluation], 0, replace(grid, draws=values))
