"""Faults that are planted in a trained policy, and what the columns of its stress say of them."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from bench.records import Record, describe
from scripted import ANYMAL, BALANCE, CARTPOLE, STANDS
from scripted_policies import groups_of, stress_of
from torch import Tensor, nn

from envcoder_bench import evaluate
from envcoder_bench.results.stress import Settings, Stress
from envcoder_bench.run.folder.policies import load_policy, open_run
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.stress.commands import probe_commands
from envcoder_bench.stress.episodes import acting
from envcoder_bench.stress.measure import measure_groups

COMMANDS = slice(9, 12)  # of the human baseline's observation
SCALES = torch.tensor([2.0, 2.0, 0.25])  # of commands in it
DEAD, TURN, CHATTER = 0.6, 0.3, 0.3  # m/s and rad/s that are not heard; rad/s that are added; in units of the action


class Planted(nn.Module):
    """A policy that hears other commands, and to whose actions a signal is added with changing sign."""

    def __init__(self, policy: nn.Module, hear: Callable[[Tensor], Tensor], chatter: float = 0.0) -> None:
        super().__init__()
        self.policy, self.hear, self.chatter = policy, hear, chatter

    def forward(self, obs: Tensor) -> Tensor:
        obs = obs.clone()
        obs[:, COMMANDS] = self.hear(obs[:, COMMANDS])
        self.chatter = -self.chatter
        return self.policy(obs) + self.chatter


FAULTS: dict[str, Callable[[nn.Module], Planted]] = {
    "none": lambda policy: Planted(policy, lambda x: x),
    "dead zone": lambda policy: Planted(policy, lambda x: torch.where(x.abs() < DEAD * SCALES, 0.0, x)),
    "drift": lambda policy: Planted(policy, lambda x: x + torch.tensor([0.0, 0.0, TURN]) * SCALES),
    "chatter": lambda policy: Planted(policy, lambda x: x, CHATTER),
}


CLOSED_FORM = (("Cartpole", CARTPOLE, BALANCE), ("Anymal", ANYMAL, STANDS))  # tasks, observations, controllers
OF_TESTS = Settings(1, draws=64, episodes=1, milliseconds=2000)


def fragile(_args: Namespace) -> Iterator[Record]:
    """Play controllers that are written down, some of which cannot stand delay or low friction."""
    for task, observation, controllers in CLOSED_FORM:
        stress = stress_of(*groups_of(task, observation, list(controllers)), controllers, OF_TESTS)
        for summary in stress.summaries:
            yield {
                **{"kind": "fragile", "task": task, "policy": summary.candidate},
                **{"draws": OF_TESTS.draws, "fitness": round(summary.nominal, 3)},
                "worst_decile": round(summary.worst_decile[0], 3),
                "survival": round(summary.survival, 3),
                "breaks": str(summary.breaks or ""),
                "passes": summary.passes,
                **describe("cpu"),
            }


def planted(args: Namespace) -> Iterator[Record]:
    """Plant each fault in the policy of Anymal's human baseline, and yield its columns."""
    with TemporaryDirectory() as folder:
        trained = Path(args.run) if args.run else Path(folder) / "run"
        if not args.run:
            size = {"num_envs_per_candidate": args.envs, "learning_iterations": args.iterations, "device": "cpu"}
            evaluate("Anymal", [], output_dir=trained, seeds=1, **size)
        run = open_run(trained)
        policy = load_policy(run, "human", run.cfg.seed).module
        spec = run.spec.changed(sim="mujoco_cpu", device="cpu", compile_shapers=False)
        groups = [group for group in prepare(spec)[0] if group.name == "human"][:1]
        settings = Settings(1, draws=args.draws, episodes=args.episodes, milliseconds=5000)
        for name, fault in FAULTS.items():
            module = fault(policy)
            rows, _, faults = measure_groups(spec, groups, {groups[0].key: (module, "")}, settings)
            assert not faults, faults
            followed, _ = probe_commands(spec, groups, lambda env, module=module: acting(env, [module]))
            summary = Stress(settings, tuple(rows)).summaries[0]
            yield {
                **{"kind": "planted", "fault": name, "draws": args.draws, "episodes": args.episodes},
                "iterations": run.cfg.learning_iterations,
                "fitness": round(summary.nominal, 3),
                "worst_decile": round(summary.worst_decile[0], 3),
                "action_acceleration": round(summary.motion["action_acceleration"]),
                "gain": round(float(np.mean([row.gain for row in followed])), 3),
                "dead_zone": max(row.dead_zone for row in followed),
                "drift": {row.axis: round(row.drift, 3) for row in followed},
                **describe("cpu"),
            }
