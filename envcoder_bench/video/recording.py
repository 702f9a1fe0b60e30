"""Recorded episodes of several policies, as arrays and plain data in one file."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from envcoder_bench.core.bounded import parse_json, read_arrays
from envcoder_bench.core.files import write_atomic


@dataclass
class Episode:
    """An episode of one policy, in T frames.

    Attributes:
        name, seed: the candidate, and the seed that its policy was trained with.
        qpos: ``(T, nq)`` float32 poses; the first is the initial state, the others follow a control step each.
        fitness: ``(T - 1,)`` fitness of each control step.
        reward, components: ``(T - 1,)`` the candidate's own reward of each control step, and its components by name.
        goals: ``(T, ...)`` the task's goals by key.
        mocap_pos, mocap_quat: ``(T, nmocap, 3)`` and ``(T, nmocap, 4)``; None if the model has no mocap bodies.
        ended: why the episode ended before its time-out: ``terminated``, an error, or empty.
    """

    name: str
    seed: int
    qpos: np.ndarray
    fitness: np.ndarray
    reward: np.ndarray
    components: dict[str, np.ndarray] = field(default_factory=dict)
    goals: dict[str, np.ndarray] = field(default_factory=dict)
    mocap_pos: np.ndarray | None = None
    mocap_quat: np.ndarray | None = None
    ended: str = ""

    @property
    def steps(self) -> int:
        """Number of control steps."""
        return len(self.qpos) - 1


@dataclass
class Recording:
    """Episodes of several policies with the same random numbers, so that they have the same start and goals.

    Attributes:
        task: the task's name.
        dt: seconds of a control step.
        full_episode: control steps until the time-out.
        summed: whether an episode's fitness is the sum of its steps' fitness; otherwise the mean over a full episode.
        same_start: whether the episodes begin in the same state.
        episodes: one for each policy.
        failed: why candidates are missing, by name; not saved.
        model: the MjModel of the poses in the process that recorded; not saved.
    """

    task: str
    dt: float
    full_episode: int
    summed: bool
    same_start: bool = True
    episodes: list[Episode] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    model: Any = None

    def episode_fitness(self, episode: Episode) -> float:
        """Return an episode's fitness as evaluations compute it; for a shortened recording, that of its part."""
        total = float(np.sum(episode.fitness, dtype=np.float64))
        return total if self.summed else total / max(self.full_episode, 1)

    def so_far(self, episode: Episode, steps: int) -> np.ndarray:
        """Return the fitness after 1 to ``steps`` steps: the sum or the mean; steps after an early end count as 0."""
        fitness = np.zeros(steps)
        fitness[: len(episode.fitness)] = episode.fitness[:steps]
        sums = np.cumsum(fitness)
        return sums if self.summed else sums / np.arange(1, steps + 1)

    def fitness_at(self, episode: Episode, step: int) -> float:
        """Return the fitness after ``step`` steps, see ``so_far``."""
        return float(self.so_far(episode, step)[-1]) if step else 0.0

    def save(self, path: Path) -> None:
        """Write everything to one compressed file."""
        arrays: dict[str, np.ndarray] = {}
        plain_fields = ("task", "dt", "full_episode", "summed", "same_start")
        plain: dict[str, Any] = {**{name: getattr(self, name) for name in plain_fields}, "episodes": []}
        for k, episode in enumerate(self.episodes):
            plain_episode: dict[str, Any] = {"name": episode.name, "seed": episode.seed, "ended": episode.ended}
            for key in ("qpos", "fitness", "reward", "mocap_pos", "mocap_quat"):
                value = getattr(episode, key)
                if value is not None:
                    arrays[f"{k}/{key}"] = np.asarray(value, dtype=np.float32)
            for key in ("components", "goals"):
                values = getattr(episode, key)
                plain_episode[key] = list(values)
                arrays.update({f"{k}/{key}/{i}": np.asarray(x, np.float32) for i, x in enumerate(values.values())})
            plain["episodes"].append(plain_episode)
        arrays["plain"] = np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8)
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)  # pyright: ignore[reportArgumentType]
        write_atomic(path, content.getvalue())

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read what ``save`` wrote. Raises OSError, or ValueError if the file is damaged or too large."""
        arrays = read_arrays(path.read_bytes())
        try:
            plain = parse_json(arrays["plain"].tobytes())
            episodes = []
            for k, fields in enumerate(plain.pop("episodes")):
                keys = ("qpos", "fitness", "reward", "mocap_pos", "mocap_quat")
                fields.update({key: arrays[f"{k}/{key}"] for key in keys if f"{k}/{key}" in arrays})
                for key in ("components", "goals"):
                    fields[key] = {name: arrays[f"{k}/{key}/{i}"] for i, name in enumerate(fields[key])}
                episodes.append(Episode(**fields))
            return cls(**plain, episodes=episodes)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not a recording: {error}") from error
