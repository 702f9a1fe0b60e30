"""The moments of a control step at which a task's own reward and observation read its tensors.

A task's step goes on after its reward: legged_gym's overwrites ``last_actions`` and ``last_dof_vel`` by the present
values. A candidate's reward must read what the task's own reward read, and its observation what the task's own read.
"""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor

REWARD = "rew_buf"
OBSERVATIONS = ("compute_observations", "_compute_observations")
# attributes by what they are, with the words of ``stress/sensors.py``
_UNMEASURED = {
    "base_lin_vel": "the base's linear velocity",
    "root_states": "the base's linear velocity",
    "measured_heights": "heights of the ground",
    "contact_forces": "forces of contacts",
    "vec_sensor_tensor": "forces of contacts",
    "potentials": "the place of the target",
}
# what a step returns: functions of candidates read the present values at any moment
_RETURNED = (REWARD, "obs_buf", "states_buf", "privileged_obs_buf")


class Moments:
    """Calls functions before a task's own reward and after its own observation, inside its step.

    Args:
        task: the task; its methods are wrapped.

    Attributes:
        results: attributes that the step returns, and those that are assigned together with the reward, such as
            ``reset_goal_buf``; the others keep the values that the reward read.
        observing: returns a context in which the task observes, such as that of sensors with errors.
        judged, observed: whether the task has begun its reward, and has observed, in this step.
    """

    def __init__(self, task: Any) -> None:
        methods = _reward_methods(type(task))
        together = [name for functions in methods.values() for f in functions for name in _assigned_with_reward(f)]
        self.results = frozenset((*_RETURNED, *together))
        self.judged = self.observed = True  # outside of a step
        self._observes = False
        self._before_reward: Callable[[], None] = _nothing
        self._after_observation: Callable[[], None] = _nothing
        self.observing: Callable[[], AbstractContextManager[None]] = nullcontext
        for name in methods:
            setattr(task, name, self._with_reward(getattr(task, name)))
        for name in OBSERVATIONS:
            if hasattr(task, name):
                setattr(task, name, self._with_observation(getattr(task, name)))

    def watch(self, before_reward: Callable[[], None], after_observation: Callable[[], None]) -> None:
        """Set the functions that are called in each step."""
        self._before_reward, self._after_observation = before_reward, after_observation

    def begin(self) -> None:
        """Begin a step."""
        self.judged = self.observed = False

    def end(self) -> None:
        """End a step: what the task has not done itself in it is at its end."""
        if not self.judged:
            self._before_reward()
        if not self.observed:
            self._after_observation()
        self.judged = self.observed = True

    @staticmethod
    def unmeasured(task: Any) -> set[str]:
        """Return what a task's own observation reads and a robot does not measure, in words."""
        names: set[str] = set()
        for name in OBSERVATIONS:
            function = inspect.unwrap(getattr(type(task), name, _nothing))
            names |= {*function.__code__.co_names}
        names = {name for name in names if isinstance(getattr(task, name, None), Tensor)}
        return {meaning for name, meaning in _UNMEASURED.items() if name in names}

    def _with_reward(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not self.judged:
                self.judged = True
                self._before_reward()
            return method(*args, **kwargs)

        return wrapped

    def _with_observation(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self._observes:  # one of the methods calls the other: sensors err once
                return method(*args, **kwargs)
            self._observes = True
            try:
                with self.observing():
                    result = method(*args, **kwargs)
                    if not self.observed:
                        self.observed = True
                        self._after_observation()
            finally:
                self._observes = False
            return result

        return wrapped


def _nothing() -> None:
    """Do nothing: no one watches."""


def _reward_methods(task_class: type) -> dict[str, list[Any]]:
    """Return the methods that compute a task's reward, each with its functions in the class and its bases."""
    methods: dict[str, list[Any]] = {}
    for cls in task_class.__mro__:
        for name, member in vars(cls).items():
            function = inspect.unwrap(member) if inspect.isfunction(member) else None
            if function is not None and "reward" in name.lower() and REWARD in function.__code__.co_names:
                methods.setdefault(name, []).append(function)
    return methods


def _assigned_with_reward(function: Any) -> set[str]:
    """Return the attributes that a function assigns in one line with the reward."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):  # without a file
        return set()
    names: set[str] = set()
    for line in ast.walk(tree):
        if isinstance(line, ast.Assign):
            nodes = [node for target in line.targets for node in ast.walk(target)]
            stored = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            names |= stored if REWARD in stored else set()
    return names
