"""Train the groups with rl_games, and between its iterations: evaluation, curves, checkpoints, faults, progress."""

from __future__ import annotations

import contextlib
import io
import logging
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import torch
from omegaconf import DictConfig, OmegaConf

from envcoder_bench.core import stream
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.grouping import flush_messages
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.core.profiling import EVALUATION, RESULTS, span
from envcoder_bench.core.run_log import note
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.env.evaluation import Episodes, run_episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.report.logs import RunLogs
from envcoder_bench.report.physics import PhysicsNews
from envcoder_bench.report.points import Point
from envcoder_bench.report.table import fixed
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.prepare import Group
from envcoder_bench.run.profile import RunProfile
from envcoder_bench.trainers.ppo.agent import ALGO_NAME, GroupedA2CAgent, register

with settings_kept():  # to import it changes how torch prints
    from rl_games.common import env_configurations, vecenv
    from rl_games.common.algo_observer import AlgoObserver
    from rl_games.torch_runner import Runner

log = logging.getLogger(__name__)
_ENV = "envcoder_bench"
_OUT_OF_MEMORY = (MemoryError, torch.cuda.OutOfMemoryError)


def make_agent(cfg: DictConfig, env: GroupedVecTask, observer: AlgoObserver) -> GroupedA2CAgent:
    """Create the agent through rl_games' Runner, from the config's ``train.params``.

    Raises:
        UserError: the config asks for what grouped training cannot do.
    """
    vecenv.register(_ENV, lambda *args, **kwargs: env)
    env_configurations.register(_ENV, {"vecenv_type": _ENV, "env_creator": None})
    params = OmegaConf.to_container(cfg.train.params, resolve=True)
    assert isinstance(params, dict)
    params["algo"]["name"] = ALGO_NAME
    params["seed"] = cfg.seed
    params["config"].update(
        env_name=_ENV, device=cfg.device, num_actors=env.num_envs, max_epochs=cfg.learning_iterations,
        full_experiment_name=cfg.task.name, name=cfg.task.name,
    )  # fmt: skip
    # rl_games tells its every step, and seeds all generators of the process
    with user_input(), contextlib.redirect_stdout(io.StringIO()), stream.seeded(None, cfg.device):
        runner = Runner(observer)
        register(runner)
        runner.load({"params": params})
        agent = runner.algo_factory.create(ALGO_NAME, base_name="run", params=runner.params)
    del vecenv.vecenv_config[_ENV]  # the registry would keep the environment for good
    return agent


@dataclass(frozen=True)
class Wave:
    """Groups that train together, the ``number``-th of ``total`` waves; ``best`` of those before it, if any."""

    groups: list[Group]
    number: int = 1
    total: int = 1
    best: tuple[str, float] | None = None


class RunObserver(AlgoObserver):
    """Watches the agent of one wave; rl_games calls ``after_print_stats`` when an iteration is done.

    Args:
        logs: the run's.
        on_evaluation: called after every evaluation.
        save: keeps a state, with which ``begin`` goes on.
        profile: told of every iteration's end.
        reporter, stop: of whoever started the run.
    """

    def __init__(
        self,
        cfg: DictConfig,
        wave: Wave,
        env: GroupedVecTask,
        evaluation: GroupedVecTask,
        logs: RunLogs,
        on_evaluation: Callable[[RunObserver], None],
        save: Callable[[dict[str, Any]], None],
        profile: RunProfile | None = None,
        reporter: Reporter | None = None,
        stop: StopRequest | None = None,
    ) -> None:
        self.cfg, self.wave, self.groups = cfg, wave, wave.groups
        self.logs, self.on_evaluation, self.save, self.profile = logs, on_evaluation, save, profile
        self.env, self.evaluation = env, evaluation
        self.reporter, self.stop = reporter or Reporter(), stop or StopRequest()
        self.iteration = 0
        self.episodes: Episodes | None = None
        self._horizon = cfg.train.params.config.horizon_length
        self._rounds = -(-cfg.evaluation.final_episodes // cfg.evaluation.num_envs)
        self._evaluate_at = _spread(cfg.learning_iterations, cfg.evaluation.points)
        self._log_at = _spread(cfg.learning_iterations, cfg.log_points) | self._evaluate_at
        self._failed_at: dict[int, int] = {}  # group: iteration
        self._physics = PhysicsNews([group.name for group in self.groups])
        self._began = self._saved_at = time.monotonic()

    def after_init(self, algo: Any) -> None:
        self.agent = algo

    def begin(self, state: dict[str, Any] | None, file: Path) -> None:
        """Get ready to train, on from ``state`` of a checkpoint ``file`` if there is one.

        Raises:
            UserError: the state is that of other groups.
        """
        if state is not None:
            try:
                self._restore(state)
            except _OUT_OF_MEMORY:
                raise
            except (ValueError, RuntimeError, LookupError, TypeError, AttributeError) as error:
                reason = str(error).strip().splitlines()[0]
                message = f"{file} does not fit the run's config.yaml ({reason}): put back both as they were"
                raise UserError(message) from error
        self.reporter.wave_began(self.wave.number, self.wave.total, self.iteration, self.cfg.learning_iterations)
        if self.profile is not None:
            self.profile.begin(self.iteration, self.cfg.learning_iterations, self.env.layout)

    def _restore(self, state: dict[str, Any]) -> None:
        self.agent.set_full_state_weights(state["agent"])
        self.iteration = state["iteration"]
        self.episodes = None if state["episodes"] is None else Episodes(**state["episodes"])
        self.evaluation.dispatch.set_state(state["evaluation"])
        self._failed_at = dict(state["failed_at"])
        self._began -= state["seconds"]

    def env_steps(self, group: int) -> int:
        """Environment steps that a group has trained on."""
        return self._failed_at.get(group, self.iteration) * self._horizon * self.env.layout.envs_per_group

    def seconds(self) -> float:
        """Wall-clock time of the wave so far, of all its parts if it was resumed."""
        return time.monotonic() - self._began

    @property
    def complete(self) -> bool:
        """Whether there is nothing left to train."""
        return self.iteration >= self.cfg.learning_iterations or not any(self.env.alive)

    def after_print_stats(self, frame: int, epoch_num: int, total_time: float) -> None:
        self.iteration = epoch_num
        self.env.dispatch.poll()
        if self.iteration in self._evaluate_at:
            with span(EVALUATION, whole=True):
                self._evaluate(final=self.iteration == self.cfg.learning_iterations)
        with span(RESULTS):
            if self.iteration in self._log_at:
                self._log()
            self._report_failures()
            self._report_physics()
            flush_messages()
            if self.iteration in self._evaluate_at:
                self._log_points()
                self.on_evaluation(self)
                self._note_progress()
        env_steps = self.iteration * self._horizon * self.env.num_envs
        self.reporter.iteration_done(self.iteration, env_steps, self._best())
        self.agent.stop = self.complete or self.stop.by is not None
        due = time.monotonic() - self._saved_at > 60 * self.cfg.checkpoint_minutes
        if not self.complete and (due or self.agent.stop):
            with span(RESULTS):
                self.checkpoint()
        if self.profile is not None:
            self.profile.iteration_done(self.iteration)

    def _evaluate(self, final: bool) -> None:
        policy = self.agent.deterministic_policy(self.evaluation.layout)
        # a rare branch of a function shows late in an episode, if at all: another step at every evaluation
        check_at = (self.iteration - 1) * self.evaluation.full_episode // self.cfg.learning_iterations
        rounds = self._rounds if final else 1
        played = run_episodes(self.evaluation, policy, rounds, EVALUATION_STEP, check_at).cpu()
        self.episodes = played.first(self.cfg.evaluation.final_episodes) if final else played
        self.evaluation.dispatch.poll()
        self.env.dispatch.recheck()

    def failures(self) -> dict[int, Any]:
        """Faults by group, of training and of evaluation."""
        return {**self.evaluation.failures, **self.env.failures}

    def _report_failures(self) -> None:
        for group, error in self.failures().items():
            if group not in self._failed_at:
                self._failed_at[group] = self.iteration
                who = self.groups[group]
                log.warning("candidate %s (seed %s) failed: %s", who.name, who.seed, error)
                # a fault in evaluation ends the training too, and the other way round
                self.env.dispatch.fail(group, error)
                self.evaluation.dispatch.fail(group, error)

    def _report_physics(self) -> None:
        """Add up what the simulations count, and say what is new; one device sync."""
        stats, tasks = self.env.stats, (self.env.task, self.evaluation.task)
        stats.contact_overflows += self.env.take_contact_overflows() + self.evaluation.take_contact_overflows()
        warnings = sum((Counter(task.engine_warnings) for task in tasks), Counter())
        overflows, blow_ups = torch.stack((stats.contact_overflows, stats.unstable_resets)).tolist()
        for line in self._physics.lines(overflows, blow_ups, warnings):
            log.warning(line)

    def _note_progress(self) -> None:
        best = self._best()
        told = "" if best is None else f", best {fixed(best[1], 3)} {best[0]}"
        place = f"iteration {self.iteration} of {self.cfg.learning_iterations}"
        note(f"{place}: {self.iteration * self._horizon * self.env.num_envs:,} env-steps{told}")

    def _best(self) -> tuple[str, float] | None:
        if self.episodes is None:
            return self.wave.best
        fitness = self.episodes.fitness.mean(dim=1)
        failed = self.failures()
        alive = [g for g in range(len(self.groups)) if g not in failed]
        found = [(self.groups[g].name, float(fitness[g])) for g in alive]
        return max([*found, *filter(None, [self.wave.best])], key=lambda one: one[1], default=None)

    def _log(self) -> None:
        returns = self.env.stats.shaped_return().tolist()
        stats = {name: values.tolist() for name, values in self.agent.group_stats.items()}
        components = self.env.dispatch.components()
        evaluated, failed = self.iteration in self._evaluate_at, self.failures()
        for g, group in enumerate(self.groups):
            if g in failed:
                continue
            row: dict[str, float | None] = {
                "fitness": float(self.episodes.fitness[g].mean()) if evaluated and self.episodes is not None else None,
                "shaped_return": returns[g],
                **{name: stats[name][g] for name in ("kl", "learning_rate", "entropy", "value_loss")},
            }
            place = (self.iteration, self.env_steps(g), group.name, group.seed)
            self.logs.curves.add(*place, row)
            self.logs.components.add(*place, components[g])
            rewards = {f"reward/{name}": value for name, value in components[g].items()}
            self.logs.tensorboard.add(group.name, group.seed, self.env_steps(g), {**row, **rewards})
        self.logs.curves.flush()
        self.logs.components.flush()

    def _log_points(self) -> None:
        """Log the evaluation, and what rewards were in training since the one before."""
        assert self.episodes is not None
        returns = self.env.stats.last_return.tolist()
        spreads, failed = self.env.dispatch.component_spreads(), self.failures()
        for g, group in enumerate(self.groups):
            if g not in failed:
                fitness, length = (float(x[g].double().mean()) for x in (self.episodes.fitness, self.episodes.length))
                when = (self.iteration, self.env_steps(g))
                self.logs.points.add(Point(group.name, group.seed, *when, fitness, length, spreads[g], returns[g]))
        self.logs.points.flush()

    def checkpoint(self) -> None:
        """Save everything that going on needs."""
        self.logs.tensorboard.flush()
        self.save(
            {
                "iteration": self.iteration,
                "agent": self.agent.get_full_state_weights(),
                "episodes": None if self.episodes is None else dict(vars(self.episodes)),
                "evaluation": self.evaluation.dispatch.get_state(),
                "failed_at": self._failed_at,
                "seconds": self.seconds(),
            }
        )
        self._saved_at = time.monotonic()

    def close(self) -> None:
        """Say what is left to say of the physics, and measure no more."""
        for line in self._physics.last():
            log.warning(line)
        flush_messages()
        self.reporter.wave_ended()
        if self.profile is not None:
            self.profile.stop()


def _spread(total: int, points: int) -> set[int]:
    """``points`` iterations spread evenly over ``total``, the last one included."""
    return {max(1, round(total * (k + 1) / points)) for k in range(points)} if points > 0 else {total}
