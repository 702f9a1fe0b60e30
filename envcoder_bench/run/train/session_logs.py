"""Rows of a session in the run's log files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from envcoder_bench.report.logs import Point

if TYPE_CHECKING:
    from envcoder_bench.run.train.session import Session

CURVES = ("kl", "learning_rate", "entropy", "value_loss")  # statistics of a trainer, if it has them


def take_curves(session: Session, evaluated: bool) -> Callable[[], None]:
    """Return a function that logs the learning curves and reward components as they are now.

    ``evaluated``: whether this iteration was evaluated.
    """
    logs, iteration = session.logs, session.iteration
    returns = session.env.stats.shaped_return().tolist()
    stats = {name: session.stats[name].tolist() for name in CURVES if name in session.stats}
    components, failed = session.env.dispatch.components(), session.failures()
    fitness = [float(own.mean()) for own in session.point.fitness] if evaluated and session.point is not None else None
    taken = [(g, group, session.env_steps(g)) for g, group in enumerate(session.groups) if g not in failed]

    def write() -> None:
        for g, group, env_steps in taken:
            row: dict[str, float | None] = {
                "fitness": None if fitness is None else fitness[g],
                "shaped_return": returns[g],
                **{name: values[g] for name, values in stats.items()},
            }
            place = (iteration, env_steps, group.name, group.seed)
            logs.curves.add(*place, row)
            logs.components.add(*place, components[g])
            rewards = {f"reward/{name}": value for name, value in components[g].items()}
            logs.scalars.add(group.name, group.seed, env_steps, {**row, **rewards})
        logs.curves.flush()
        logs.components.flush()

    return write


def log_evaluation(session: Session) -> None:
    """Log the last evaluation, and the rewards in training since the one before."""
    logs, episodes, point = session.logs, session.episodes, session.point
    assert episodes is not None and point is not None
    decides = session.full and (session.cfg.race.enabled or session.cfg.evaluation.record)
    returns = session.env.stats.last_return.tolist()
    spreads, failed = session.env.dispatch.component_spreads(), session.failures()
    for g, group in enumerate(session.groups):
        if g not in failed:
            fitness, length = (float(x[g].double().mean()) for x in (point.fitness, point.length))
            when = (session.iteration, session.env_steps(g))
            logs.points.add(Point(group.name, group.seed, *when, fitness, length, spreads[g], returns[g]))
            if session.complete or decides:
                logs.episodes.add(*when, group.name, group.seed, episodes.fitness[g].tolist())
    logs.points.flush()
    logs.episodes.flush()
