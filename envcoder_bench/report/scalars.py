"""Scalars of training for several trackers at once, such as TensorBoard and Weights & Biases."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class ScalarLog(Protocol):
    """Receives scalars of each candidate and seed during training."""

    def add(self, candidate: str, seed: int, env_steps: int, scalars: Mapping[str, float | None]) -> None:
        """Add scalars at ``env_steps``; None and NaN are left out."""

    def flush(self) -> None:
        """Pass on what was added."""

    def close(self) -> None:
        """End the log; a later run may continue it."""


class SeveralLogs:
    """Scalar logs that receive the same."""

    def __init__(self, logs: Sequence[ScalarLog]) -> None:
        self._logs = logs

    def add(self, candidate: str, seed: int, env_steps: int, scalars: Mapping[str, float | None]) -> None:
        for log in self._logs:
            log.add(candidate, seed, env_steps, scalars)

    def flush(self) -> None:
        for log in self._logs:
            log.flush()

    def close(self) -> None:
        for log in self._logs:
            log.close()
