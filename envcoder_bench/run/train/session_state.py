"""The state of a session as CPU tensors and plain Python data: of all groups together, or of each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envcoder_bench.core.groups import GroupLayout, common, join_states
from envcoder_bench.env.evaluation import Episodes
from envcoder_bench.env.grouped_vec_task import padded

if TYPE_CHECKING:
    from envcoder_bench.run.train.session import Session

State = Mapping[str, Any]


def get_state(session: Session) -> dict[str, Any]:
    """Return the state that ``set_state`` needs to continue bitwise."""
    return {
        "iteration": session.iteration,
        "trainer": session.trainer.get_state(),
        "obs": None if session.obs is None else session.obs.cpu().clone(),
        "env": session.env.get_state(),
        "episodes": None if session.episodes is None else dict(vars(session.episodes)),
        "evaluation": session.evaluation.dispatch.get_state(),
        "failed_at": session.failed_at,
        "seconds": session.seconds(),
    }


def set_state(session: Session, state: State) -> None:
    """Restore the result of ``get_state`` or ``join``, except ``seconds``."""
    session.trainer.set_state(state["trainer"])
    session.obs = None if state["obs"] is None else state["obs"].to(session.env.device)
    session.env.set_state(state["env"])
    session.iteration = state["iteration"]
    session.episodes = None if state["episodes"] is None else Episodes(**state["episodes"])
    session.evaluation.dispatch.set_state(state["evaluation"])
    session.failed_at = dict(state["failed_at"])


def split(session: Session) -> list[dict[str, Any]]:
    """Return the state of each group.

    Raises:
        ValueError: the task's or the trainer's state cannot be split.
    """
    state = get_state(session)
    obs = session.env.layout.split_state({"obs": state["obs"]})
    played = state["episodes"]
    episodes = None if played is None else GroupLayout(len(session.groups), 1).split_state(played)
    parts = zip(
        session.trainer.split_state(state["trainer"]),
        session.env.split_state(state["env"]),
        session.evaluation.dispatch.split_state(state["evaluation"]),
    )
    return [
        {
            "iteration": session.iteration,
            "trainer": trainer,
            "obs": obs[g]["obs"][:, : session.env.obs_dims[g]].clone(),
            "env": env,
            "episodes": None if episodes is None else episodes[g],
            "evaluation": evaluation,
            "failed_at": session.failed_at.get(g),
        }
        for g, (trainer, env, evaluation) in enumerate(parts)
    ]


def join(session: Session, parts: Sequence[State]) -> dict[str, Any]:
    """Return the state of the session's groups together, from the results of ``split`` in their order.

    Raises:
        ValueError: they belong to other groups, or not to the same iteration.
    """
    missing = any(part["episodes"] is None for part in parts)
    return {
        "iteration": common(parts, "iteration"),
        "trainer": session.trainer.join_states([part["trainer"] for part in parts]),
        "obs": padded([part["obs"] for part in parts], max(session.env.obs_dims)),
        "env": session.env.join_states([part["env"] for part in parts]),
        "episodes": None if missing else join_states([part["episodes"] for part in parts]),
        "evaluation": session.evaluation.dispatch.join_states([part["evaluation"] for part in parts]),
        "failed_at": {g: part["failed_at"] for g, part in enumerate(parts) if part["failed_at"] is not None},
        "seconds": 0.0,
    }
