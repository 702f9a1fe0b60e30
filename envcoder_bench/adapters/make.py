"""The environments of one candidate by name, for trainers of other libraries."""

from collections.abc import Mapping, Sequence
from typing import Any

from envcoder_bench.adapters.single import CandidateLike, make_single
from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.run.inputs import checked_arguments

APIS = ("gymnasium", "rl_games", "rsl_rl")


@checked_arguments
def make_env(
    task: str,
    candidate: CandidateLike = None,
    num_envs: int = 256,
    *,
    api: str = "gymnasium",
    seed: int = 0,
    evaluation: bool = False,
    shaper_types: Sequence[str] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    **settings: Any,
) -> Any:
    """Make the environments of one candidate, which step together on one device.

    Args:
        task: a task's name, its folder or ``module:Class``.
        candidate: a file; a text by its name, ``{name: source}``; or ``"human"``, the default, or ``"unshaped"``.
        num_envs: number of environments.
        api: ``gymnasium`` for a ``gymnasium.vector.VectorEnv``, ``rl_games`` for its vecenv, ``rsl_rl`` for its
            ``VecEnv``.
        seed: the seed of a run's group; equal seeds give equal random numbers.
        evaluation: whether to use the initial states, goals, terminal and reward of the unshaped task with the
            candidate's observations and actions, as when fitness is measured.
        shaper_types: functions to take from the candidate; default all that it defines.
        overrides: values of keys of cfg/, ``["task.env.maxEffort=100"]`` or ``{"task.env.maxEffort": 100}``.
        settings: keys of cfg/config.yaml, such as ``device="cpu"`` or ``baseline="unshaped"``.

    Raises:
        UserError: bad input, a fault of the candidate, or a missing package.
    """
    if api not in APIS:
        raise UserError(f"unknown api '{api}'{near_matches(str(api), APIS)}; there are {', '.join(APIS)}")
    env = make_single(task, candidate, num_envs, seed, evaluation, shaper_types, overrides, **settings)
    if api == "rl_games":
        from envcoder_bench.adapters.rl_games import RlGamesVecEnv

        return RlGamesVecEnv(env)
    if api == "rsl_rl":
        from envcoder_bench.adapters.rsl_rl import RslRlVecEnv

        return RslRlVecEnv(env)
    try:
        from envcoder_bench.adapters.gymnasium_env import GymnasiumVectorEnv
    except ImportError as error:
        raise UserError("api='gymnasium' needs Gymnasium 1.1 or newer: pip install 'gymnasium>=1.1'") from error

    return GymnasiumVectorEnv(env)
