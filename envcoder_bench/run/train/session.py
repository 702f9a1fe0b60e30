"""Training of one wave on one device, with evaluation, curves, checkpoints and failures between iterations."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError, first_line, user_input
from envcoder_bench.core.groups import GroupLayout, common, join_states
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.core.profiling import EVALUATION, RESULTS, span
from envcoder_bench.core.run_log import flush_messages, note
from envcoder_bench.core.words import format_fitness
from envcoder_bench.env.evaluation import Episodes, bin_ends, has_mean_fitness, run_episodes, run_point
from envcoder_bench.env.grouped_vec_task import GroupedVecTask, padded
from envcoder_bench.env.trajectories import Recorder, Trajectories
from envcoder_bench.results.logs import Point, RunLogs
from envcoder_bench.results.rows import best_mean
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.prepare.environments import at_half_step, build_env
from envcoder_bench.run.prepare.groups import Group
from envcoder_bench.run.spec import PARAMS, RunConfig, RunSpec
from envcoder_bench.run.train.monitors import FitnessMonitor, NoiseMonitor, PhysicsMonitor
from envcoder_bench.run.train.profile import RunProfile
from envcoder_bench.run.train.rungs import compared_iterations, evaluation_iterations
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.tasks.base import BASELINES
from envcoder_bench.trainers.base import Stats, Trainer, train_iteration
from envcoder_bench.trainers.registry import trainer_class

log = logging.getLogger(__name__)

_OUT_OF_MEMORY = (MemoryError, torch.cuda.OutOfMemoryError)
TRAINER_SCALARS = ("kl", "learning_rate", "entropy", "value_loss")  # results.logs.SCALARS that a trainer may lack
State = Mapping[str, Any]  # a session's or a group's: CPU tensors and plain Python data


@dataclass(frozen=True)
class Wave:
    """Groups that train together.

    Attributes:
        number, total: it is the ``number``-th of ``total`` waves.
        best: a candidate and its fitness, of earlier waves, if any.
        until: the iteration up to which it trains; None: the last one.
    """

    groups: list[Group]
    number: int = 1
    total: int = 1
    best: tuple[str, float] | None = None
    until: int | None = None


@dataclass(frozen=True)
class Shared:
    """What a session shares with its run: log files, the caller's hooks, and the profile."""

    logs: RunLogs
    reporter: Reporter = Reporter()  # noqa: RUF009  it has no state
    stop: StopRequest = field(default_factory=StopRequest)
    profile: RunProfile | None = None


def make_trainer(
    cfg: RunConfig, env: GroupedVecTask, layout: GroupLayout | None = None, groups: Sequence[Group] = ()
) -> Trainer:
    """Create the trainer that the config's ``train.params`` specify for the groups of an environment.

    Args:
        layout: the layout of the environments to train in; None for that of ``env``.
        groups: they may have values of their own of keys of the config; empty: they have none.

    Raises:
        UserError: the config is invalid.
    """
    params = cfg.params
    params["config"]["max_epochs"] = cfg.learning_iterations
    with user_input():
        make = trainer_class(params)
        shared = (env.obs_dims, env.action_dims, env.group_seeds)
        more: dict[str, Any] = {"critic_dims": env.critic_dims} if any(env.critic_dims) else {}
        if any(group.overrides for group in groups):
            values = [{key.removeprefix(PARAMS): x for key, x in group.overrides.items()} for group in groups]
            more["numbers"] = values
        return make(layout or env.layout, *shared, params, torch.device(cfg.device), **more)


def _point_steps(cfg: RunConfig, env: GroupedVecTask) -> int:
    """Return the control steps of each episode that a point of the learning curves shows, but for the last point.

    A recorded evaluation is replayed as a race, and a sum of fewer steps is another measure: there episodes are full.
    """
    full, asked = env.full_episode, cfg.evaluation.point_steps
    if asked is None or cfg.evaluation.record or not has_mean_fitness(env):
        return full
    return min(asked, full)


class Session:
    """A wave in training: ``while not session.reached: session.iterate()``, as in ``train``.

    It allocates what the wave needs on the config's device.

    Args:
        on_evaluation: called after every evaluation.
        save: saves a ``state()``, which ``restore`` accepts.

    Attributes:
        iteration: number of finished iterations.
        episodes: episodes of the last evaluation; None before the first.
        point: what the learning curves show of them: as many steps as of evaluations that do not compare candidates.
        full: whether they were played to their end.
        trajectories: of the final evaluation, by baseline, of the first seed.
        half_step: fitness of the final policies with half the physics step, by group; None if it is not measured.
        stats: the trainer's statistics of the last iteration.
        obs: observations of the training environments; None before the first reset.
        failed_at: the iterations at which groups failed, by group.
    """

    def __init__(
        self,
        spec: RunSpec,
        wave: Wave,
        shared: Shared,
        on_evaluation: Callable[[Session], None],
        save: Callable[[dict[str, Any]], None],
    ) -> None:
        self.spec, self.wave, self.groups = spec, wave, wave.groups
        self.cfg = cfg = spec.config
        groups, seeds = wave.groups, [group.seed for group in wave.groups]
        # two simulations: candidates train in their own shaping, and are evaluated in the unshaped task
        self.env = build_env(spec, [group.shaping for group in groups], seeds, cfg.num_envs_per_candidate)
        self.evaluation = build_env(spec, [group.evaluation for group in groups], seeds, cfg.evaluation.num_envs)
        self.trainer = make_trainer(cfg, self.env, groups=groups)
        self.logs, self.reporter, self.stop, self.profile = shared.logs, shared.reporter, shared.stop, shared.profile
        self.on_evaluation, self.save = on_evaluation, save
        # progress of the training
        self.iteration = 0
        self.episodes: Episodes | None = None
        self.point: Episodes | None = None
        self.full = False
        self.trajectories: dict[str, Trajectories] = {}
        self.half_step: list[float] | None = None
        self.stats: Stats = {}
        self.obs: Tensor | None = None
        # when it evaluates and logs
        self._rounds = -(-cfg.evaluation.final_episodes // cfg.evaluation.num_envs)
        self._point_steps = _point_steps(cfg, self.evaluation)
        self._evaluate_at = evaluation_iterations(cfg.learning_iterations, cfg.evaluation.points)
        self._compare_at = compared_iterations(cfg)
        self._log_at = evaluation_iterations(cfg.learning_iterations, cfg.log_points) | self._evaluate_at
        self.failed_at: dict[int, int] = {}
        self._unwritten: Callable[[], None] | None = None  # writes the last curves
        names = [group.name for group in self.groups]
        self._physics, self._fitness = PhysicsMonitor(names), FitnessMonitor(names)
        self._noise = NoiseMonitor(names, self.env.action_dims, cfg.params)
        self._saved_at, self._pause = time.monotonic(), 60 * cfg.checkpoint_minutes  # until the next checkpoint, s

    # training

    def train(self) -> None:
        """Iterate until the wave's end or until ``stop`` is requested; in the latter case save a checkpoint."""
        total = self.cfg.learning_iterations
        self.reporter.wave_began(self.wave.number, self.wave.total, self.iteration, total)
        if self.profile is not None:
            self.profile.begin(self.iteration, total, self.env.layout)
        try:
            with self.stop:
                while not self.reached:
                    self.iterate()
                    stopped = self.stop.by is not None
                    # a stop waits for the end of an iteration, whose checkpoint is exact
                    if not self.reached and (stopped or time.monotonic() - self._saved_at > self._pause):
                        with span(RESULTS):
                            self.checkpoint()
                    if self.profile is not None:
                        self.profile.iteration_done(self.iteration)
                    if stopped:
                        break
        # also after an error: what the physics warned of may be its cause
        finally:
            for line in self._physics.final_lines():
                log.warning(line)
            flush_messages()
            self.reporter.wave_ended()
            if self.profile is not None:
                self.profile.stop()

    def iterate(self) -> None:
        """Train for one iteration, then evaluate, log and report if due."""
        # train
        if self.obs is None:
            self.obs = self.env.reset()
        self.obs, self.stats = train_iteration(self.trainer, self.env, self.obs)
        self._write_curves()  # the iteration before, while a CUDA device trains this one: it counts as training
        self.iteration += 1
        self.env.dispatch.poll()
        # evaluate
        evaluate = self.iteration in self._evaluate_at
        if evaluate:
            with span(EVALUATION, whole=True):
                self.evaluate()
        # log and report, before the curves are written: a failed group has none
        with span(RESULTS):
            if self.iteration in self._log_at:
                self._unwritten = self._take_curves(evaluate)
                self._report_noise()
            self._report_failures()
            self._report_physics()
            if evaluate:
                self._report_fitness()
            flush_messages()
            if evaluate or self.reached or not self._overlaps:
                self._write_curves()
            if evaluate:
                self._log_evaluation()
                self.on_evaluation(self)
                self._note_progress()
        steps = self.iteration * self.trainer.horizon * self.env.num_envs
        self.reporter.iteration_done(self.iteration, steps, self._best())

    def evaluate(self) -> None:
        """Run deterministic episodes in the unshaped environment: full ones where candidates are compared.

        These are the last evaluation, which has more of them, and in a race its rungs and the first one.
        """
        # which episodes, and how many steps of them
        final = self.iteration == self.cfg.learning_iterations
        self.trainer.set_alive(self.env.alive)
        policy = self.trainer.policy(self.evaluation.layout)
        full_episode, compares = self.evaluation.full_episode, self.iteration in self._compare_at
        self.full = final or compares or self._point_steps == full_episode
        steps = full_episode if self.full else self._point_steps
        # rare branches of functions occur late in an episode, so each evaluation compares at a later step
        check_at = (self.iteration - 1) * steps // self.cfg.learning_iterations
        if final:
            # trajectories of the baselines, on which later checks judge rewards
            judges = {
                g: group.name
                for g, group in enumerate(self.groups)
                if group.key in {(name, self.cfg.seed) for name in BASELINES}
            }
            recorder = Recorder(self.evaluation, judges) if judges else None
            played = run_episodes(
                self.evaluation, policy, self._rounds, EVALUATION_STEP, check_at, recorder=recorder
            ).cpu()
            self.trajectories = {} if recorder is None else recorder.result(played.fitness)
            self.episodes = self.point = played.first(self.cfg.evaluation.final_episodes)
            if self.cfg.evaluation.half_step:
                self.half_step = self._play_at_half_step(policy)
        elif compares:
            both = run_point(self.evaluation, policy, EVALUATION_STEP, check_at, self._point_steps)
            self.episodes, self.point = (episodes.cpu() for episodes in both)
        else:
            self.episodes = run_episodes(self.evaluation, policy, 1, EVALUATION_STEP, check_at, steps).cpu()
            self.point = self.episodes
        self.evaluation.dispatch.poll()
        self.env.dispatch.recheck()

    def _play_at_half_step(self, policy: Callable[[Tensor], Tensor]) -> list[float]:
        """Return the mean fitness of each group in the episodes of the final evaluation with half the physics step."""
        shapings, seeds = [group.evaluation for group in self.groups], [group.seed for group in self.groups]
        env = build_env(at_half_step(self.spec), shapings, seeds, self.cfg.evaluation.num_envs)
        for group, fault in self.failures().items():
            env.dispatch.fail(group, fault)
        played = run_episodes(env, policy, self._rounds, EVALUATION_STEP).cpu()
        env.dispatch.poll()
        fitness = played.first(self.cfg.evaluation.final_episodes).fitness.double().mean(dim=1).tolist()
        return [math.nan if group in env.failures else mean for group, mean in enumerate(fitness)]

    @property
    def _overlaps(self) -> bool:
        """Whether the device trains while the host goes on."""
        return self.env.device.type == "cuda"

    def _write_curves(self) -> None:
        write, self._unwritten = self._unwritten, None
        if write is not None:
            write()

    # results so far

    @property
    def complete(self) -> bool:
        """Whether there is nothing left to train."""
        return self.iteration >= self.cfg.learning_iterations or not any(self.env.alive)

    @property
    def reached(self) -> bool:
        """Whether there is nothing left to train until the wave's end."""
        return self.complete or (self.wave.until is not None and self.iteration >= self.wave.until)

    def failures(self) -> dict[int, Fault]:
        """Return the faults of training and evaluation by group."""
        return {**self.evaluation.failures, **self.env.failures}

    def env_steps(self, group: int) -> int:
        """Return the number of environment steps that a group has trained on."""
        return self.failed_at.get(group, self.iteration) * self.trainer.horizon * self.env.layout.envs_per_group

    def _best(self) -> tuple[str, float] | None:
        if self.episodes is None:
            return self.wave.best
        fitness = self.episodes.fitness.mean(dim=1)
        failed = self.failures()
        alive = [g for g in range(len(self.groups)) if g not in failed]
        best = best_mean((self.groups[g].name, float(fitness[g])) for g in alive)
        return max(filter(None, [best, self.wave.best]), key=lambda score: score[1], default=None)

    # log files

    def _take_curves(self, evaluated: bool) -> Callable[[], None]:
        """Return a function that logs the learning curves and reward components as they are now.

        On a CUDA device the host writes them while the device trains the next iteration.
        """
        logs, iteration = self.logs, self.iteration
        # numbers of the device, before it goes on
        returns = self.env.stats.shaped_return().tolist()
        stats = {name: self.stats[name].tolist() for name in TRAINER_SCALARS if name in self.stats}
        components, failed = self.env.dispatch.components.means(), self.failures()
        fitness = [float(x.mean()) for x in self.point.fitness] if evaluated and self.point is not None else None
        alive = [(g, group, self.env_steps(g)) for g, group in enumerate(self.groups) if g not in failed]

        def write() -> None:
            for g, group, env_steps in alive:
                row: dict[str, float | None] = {
                    "fitness": None if fitness is None else fitness[g],
                    "shaped_return": returns[g],
                    **{name: values[g] for name, values in stats.items()},
                }
                key = (iteration, env_steps, group.name, group.seed)
                logs.curves.add(*key, row)
                logs.components.add(*key, components[g])
                rewards = {f"reward/{name}": value for name, value in components[g].items()}
                logs.scalars.add(group.name, group.seed, env_steps, {**row, **rewards})
            logs.curves.flush()
            logs.components.flush()

        return write

    def _log_evaluation(self) -> None:
        """Log the last evaluation, and the rewards in training since the one before."""
        logs, episodes, point = self.logs, self.episodes, self.point
        assert episodes is not None and point is not None
        race, record = self.cfg.race.enabled, self.cfg.evaluation.record
        # a course is of whole episodes only, which points are not
        ends, step_means = bin_ends(self.evaluation.full_episode), []
        if episodes.course is not None and (self.complete or race):
            step_means = episodes.step_means(ends[-1]).tolist()
        returns = self.env.stats.last_return.tolist()
        spreads, failed = self.env.dispatch.components.spreads(), self.failures()
        for g, group in enumerate(self.groups):
            if g not in failed:
                fitness, length = (float(x[g].double().mean()) for x in (point.fitness, point.length))
                when = (self.iteration, self.env_steps(g))
                logs.points.add(Point(group.name, group.seed, *when, fitness, length, spreads[g], returns[g]))
                key = (*when, group.name, group.seed)
                if self.complete or (self.full and (race or record)):
                    logs.episodes.add(*key, episodes.fitness[g].tolist())
                if step_means:
                    logs.step_fitness.add(*key, ends, step_means[g], self.evaluation.task.dt)
        for table in (logs.points, logs.episodes, logs.step_fitness):
            table.flush()

    # messages

    def _report_failures(self) -> None:
        for group, fault in self.failures().items():
            if group not in self.failed_at:
                self.failed_at[group] = self.iteration
                who = self.groups[group]
                log.warning("candidate %s (seed %s) failed: %s", who.name, who.seed, fault)
                # a fault in evaluation ends the training, too, and vice versa
                self.env.dispatch.fail(group, fault)
                self.evaluation.dispatch.fail(group, fault)

    def _report_physics(self) -> None:
        """Add the simulations' counts and warnings, and report new ones; one device sync."""
        stats, tasks = self.env.stats, (self.env.task, self.evaluation.task)
        stats.contact_overflows += self.env.take_contact_overflows() + self.evaluation.take_contact_overflows()
        warnings = sum((Counter(task.engine_warnings) for task in tasks), Counter())
        overflows, blow_ups = torch.stack((stats.contact_overflows, stats.unstable_resets)).tolist()
        for line in self._physics.lines(overflows, blow_ups, warnings):
            log.warning(line)

    def _report_fitness(self) -> None:
        assert self.episodes is not None
        left = [g for g in range(len(self.groups)) if g not in self.failed_at]
        for line in self._fitness.lines(self.evaluation, self.episodes, left, self.iteration):
            log.warning(line)

    def _report_noise(self) -> None:
        if "entropy" in self.stats:
            left = [g for g in range(len(self.groups)) if g not in self.failed_at]
            for line in self._noise.lines(self.stats["entropy"].tolist(), left, self.iteration):
                log.warning(line)

    def _note_progress(self) -> None:
        best = self._best()
        best_text = "" if best is None else f", best {format_fitness(best[1])} {best[0]}"
        steps = self.iteration * self.trainer.horizon * self.env.num_envs
        note(f"iteration {self.iteration} of {self.cfg.learning_iterations}: {steps:,} env-steps{best_text}")

    # checkpoints

    def checkpoint(self) -> None:
        """Save a checkpoint."""
        self._write_curves()
        self.logs.scalars.flush()
        began = time.monotonic()
        self.save(self.state())
        self._saved_at = time.monotonic()
        # replay rings may take many gigabytes: then checkpoints take at most a twentieth of the time
        pause = 60 * self.cfg.checkpoint_minutes
        self._pause = max(pause, min(20 * (self._saved_at - began), 10 * pause))

    def state(self) -> dict[str, Any]:
        """Return the state that ``restore`` needs to continue bitwise."""
        return {
            "iteration": self.iteration,
            "trainer": self.trainer.get_state(),
            "obs": None if self.obs is None else self.obs.cpu().clone(),
            "env": self.env.get_state(),
            "episodes": None if self.episodes is None else self.episodes.state(),
            "evaluation": self.evaluation.dispatch.get_state(),
            "failed_at": self.failed_at,
        }

    def restore(self, state: State, file: Path) -> None:
        """Restore the ``state`` read from ``file``. Raises UserError if it belongs to other groups."""
        with _fits(file):
            self.trainer.set_state(state["trainer"])
            self.obs = None if state["obs"] is None else state["obs"].to(self.env.device)
            self.env.set_state(state["env"])
            self.iteration = state["iteration"]
            self.episodes = None if state["episodes"] is None else Episodes(**state["episodes"])
            self.evaluation.dispatch.set_state(state["evaluation"])
            self.failed_at = dict(state["failed_at"])

    def split(self) -> list[dict[str, Any]]:
        """Return the state of each group, for ``join`` in any wave. Raises ValueError if it cannot be split."""
        state = self.state()
        # groups are padded to the widest; what is kept of a group does not depend on the others
        goes_on = self.env.task.regroups  # otherwise episodes begin anew
        obs = self.env.layout.split_state({"obs": state["obs"]}) if goes_on else []
        played = state["episodes"]
        episodes = None if played is None else GroupLayout(len(self.groups), 1).split_state(played)
        parts = zip(
            self.trainer.split_state(state["trainer"]),
            self.env.split_state(state["env"]),
            self.evaluation.dispatch.split_state(state["evaluation"]),
        )
        return [
            {
                "iteration": self.iteration,
                "trainer": trainer,
                "obs": obs[g]["obs"][:, : self.env.obs_dims[g]].clone() if goes_on else None,
                "env": env,
                "episodes": None if episodes is None else episodes[g],
                "evaluation": evaluation,
                "failed_at": self.failed_at.get(g),
            }
            for g, (trainer, env, evaluation) in enumerate(parts)
        ]

    def join(self, parts: Sequence[State], file: Path) -> None:
        """Restore the states of this session's groups in their order, which ``split`` returned, read from ``file``.

        Raises UserError if they belong to other groups, or not to the same iteration.
        """
        with _fits(file):
            missing, goes_on = any(part["episodes"] is None for part in parts), self.env.task.regroups
            state = {
                "iteration": common(parts, "iteration"),
                "trainer": self.trainer.join_states([part["trainer"] for part in parts]),
                "obs": padded([part["obs"] for part in parts], max(self.env.obs_dims)) if goes_on else None,
                "env": self.env.join_states([part["env"] for part in parts]),
                "episodes": None if missing else join_states([part["episodes"] for part in parts]),
                "evaluation": self.evaluation.dispatch.join_states([part["evaluation"] for part in parts]),
                "failed_at": {g: part["failed_at"] for g, part in enumerate(parts) if part["failed_at"] is not None},
            }
            self.restore(state, file)


@contextlib.contextmanager
def _fits(file: Path) -> Iterator[None]:
    """Raise UserError if a state read from ``file`` does not fit a session."""
    try:
        yield
    except (*_OUT_OF_MEMORY, UserError):
        raise
    except (ValueError, RuntimeError, LookupError, TypeError, AttributeError) as error:
        message = f"{file} does not fit the run's config.yaml ({first_line(error)}): restore both as they were"
        raise UserError(message) from error
