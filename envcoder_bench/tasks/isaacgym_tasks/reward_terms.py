"""The terms of a task's own reward, noted while the task computes it, for candidates that weigh them anew.

Two ways of writing a reward have terms that can be noted without a change of the task's code:

- legged_gym's: a list ``reward_functions`` with ``reward_names``. A term is what a function returns, without its scale;
  ``termination`` is a function of its own.
- sums of each term over the episode, as in AnymalTerrain and AllegroKuka: a dict of tensors, to which the reward adds
  its terms. A term is what is added, with its scale.

A reward that is computed as one expression, as in most tasks of IsaacGymEnvs, has none.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

TERMS = "reward_terms"  # an attribute that the task gets: a dict of tensors (num_envs,)
_SUMS = ("episode_sums", "rewards_episode")
_END = "termination"


class RewardTerms:
    """Notes the terms of a task's reward in its attribute ``reward_terms``; it does nothing if there are none.

    Attributes:
        meaning: what a term is.
    """

    def __init__(self, task: Any) -> None:
        self._task, self._sums = task, ""
        functions, names = getattr(task, "reward_functions", None), getattr(task, "reward_names", None)
        if isinstance(functions, list) and isinstance(names, list) and functions and len(functions) == len(names):
            self._terms = {str(name): self._zeros() for name in names}
            task.reward_functions = [self._noting(f, str(name)) for f, name in zip(functions, names)]
            if _END in getattr(task, "reward_scales", ()) and _END not in self._terms:
                self._terms[_END] = self._zeros()
                setattr(task, f"_reward_{_END}", self._noting(getattr(task, f"_reward_{_END}"), _END))
        else:
            self._sums = next((name for name in _SUMS if self._is_sums(getattr(task, name, None))), "")
            self._terms = {key: self._zeros() for key in getattr(task, self._sums, {})} if self._sums else {}
        self.meaning = f"term of the task's own reward, {'with' if self._sums else 'without'} its scale"
        if self._terms:
            setattr(task, TERMS, self._terms)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note the terms that the task adds to the sums of its episodes inside the block."""
        if not self._sums:
            yield
            return
        before = {key: x.clone() for key, x in getattr(self._task, self._sums).items()}
        for x in getattr(self._task, self._sums).values():
            x.zero_()
        yield
        for key, x in getattr(self._task, self._sums).items():
            if key in before:
                self._note(key, x)
                x.add_(before[key])  # the same sum, bit by bit: 0 + term is the term

    def _noting(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def noting(*args: Any, **kwargs: Any) -> Any:
            term = function(*args, **kwargs)
            self._note(name, term)
            return term

        return noting

    def _note(self, name: str, term: Any) -> None:
        if isinstance(term, Tensor) and term.numel() == self._task.num_envs:
            self._terms[name].copy_(term.detach().view(-1))

    def _zeros(self) -> Tensor:
        return torch.zeros(self._task.num_envs, device=self._task.device)

    def _is_sums(self, value: Any) -> bool:
        shapes = {getattr(x, "shape", None) for x in value.values()} if isinstance(value, dict) else set()
        return shapes == {(self._task.num_envs,)}
