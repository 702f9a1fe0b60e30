"""A task of mjlab without learning: ours, mjlab's own environment, and the simulation alone, in turn."""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from bench import records
from bench.records import Record

from envcoder_bench.sim import pick_simulator
from envcoder_bench.tasks.base import EnvGroups
from envcoder_bench.tasks.mjlab_tasks.source import quiet
from envcoder_bench.tasks.registry import find_spec, make_task


def mjlab(args: Namespace) -> Iterator[Record]:
    """Time control steps with random actions and resets; needs mjlab."""
    from mjlab.envs import ManagerBasedRlEnv

    sim, device = pick_simulator(args.sim, args.device)
    spec, n = find_spec(f"mjlab:{args.task}"), args.envs
    task = make_task(spec, {"name": spec.name, "sim": {"backend": "auto"}}, n, sim, device)
    groups = replace(EnvGroups.alone(n, torch.zeros(n, task.num_dofs, device=device)), keys=frozenset())
    task.attach(groups)
    task.step_count = 0
    task.prepare_reset(torch.ones(n, dtype=torch.bool, device=device))
    task.settle()
    config = spec.task_class.source.env_cfg()
    config.scene.num_envs = n
    with quiet():
        theirs = ManagerBasedRlEnv(config, device=device)
    theirs.reset()

    def step() -> None:
        groups.actions.normal_().mul_(0.3)
        task.step_count += 1
        task.step(groups.actions)
        ended = task.state["reset_buf"] | task.timed_out
        if device != "cpu" or bool(ended.any()):  # as in a run
            task.prepare_reset(ended)
        task.settle()

    def physics() -> None:
        for _ in range(task.substeps):
            task.world.sim.step()

    ways: dict[str, Callable[[], object]] = {
        "ours": step,
        "mjlab": lambda: theirs.step(0.3 * torch.randn(n, task.num_dofs, device=device)),
        "physics": physics,
    }
    speeds = {name: [] for name in ways}
    for _ in range(args.rounds + 1):  # the first one warms up
        for name, way in ways.items():
            began = time.perf_counter()
            for _ in range(args.steps):
                way()
            if device != "cpu":
                torch.cuda.synchronize()
            speeds[name].append(n * args.steps / (time.perf_counter() - began))
    medians = {name: sorted(values[1:])[args.rounds // 2] for name, values in speeds.items()}
    yield records.identify({"kind": "mjlab", "task": args.task, "envs": n, **medians, **records.describe(device)})
