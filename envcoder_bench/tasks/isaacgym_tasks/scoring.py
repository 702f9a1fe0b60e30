"""The fitness of an Isaac Gym task, step by step."""

import inspect
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

SOLVED = "solved_before"  # key of the state for fitness functions that count once per episode


class Scoring:
    """Fitness of the state.

    Args:
        function: the fitness of one step, called with the keys that its parameters name; None for a fitness of 0.
        once: whether an episode's fitness is 1 if ``function`` was ever above 0. ``state`` then gets a key for it.
        state, constants: of the task; tensors of the state stay in place.
    """

    def __init__(
        self,
        function: Callable[..., Tensor] | None,
        once: bool,
        state: dict[str, Tensor],
        constants: Mapping[str, Tensor],
    ) -> None:
        self._function, self._once, self._state, self._constants = function, once, state, constants
        self._names = () if function is None else tuple(inspect.signature(function).parameters)
        if once:
            state[SOLVED] = torch.zeros(len(state["reset_buf"]), device=state["reset_buf"].device)

    def fitness(self, state: Mapping[str, Tensor]) -> Tensor:
        value = self._score(state)
        return value * (1.0 - state[SOLVED]) if self._once else value

    def note_solved(self) -> None:
        """Note before a step which episodes are solved."""
        if self._once:
            self._state[SOLVED].copy_(torch.maximum(self._state[SOLVED], self._score(self._state)))

    def forget(self, mask: Tensor) -> None:
        """Begin episodes where ``mask`` is True."""
        if self._once:
            self._state[SOLVED].masked_fill_(mask, 0.0)

    def _score(self, state: Mapping[str, Tensor]) -> Tensor:
        if self._function is None:
            return torch.zeros_like(state["reset_buf"], dtype=torch.float32)
        known = {**self._constants, **state}
        return self._function(**{name: known[name] for name in self._names})
