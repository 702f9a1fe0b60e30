"""The environments of one candidate by name, for trainers of other libraries."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envcoder_bench.adapters.single import SingleCandidateEnv
from envcoder_bench.core.errors import UserError, near_matches, user_input
from envcoder_bench.core.torch_settings import ALONE
from envcoder_bench.run.inputs import override_words, read_candidates, resolve
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare_one
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import CandidateSource
from envcoder_bench.tasks.base import BASELINE_FILES, HUMAN
from envcoder_bench.tasks.spec import TaskSpec

APIS = ("gymnasium", "elegantrl", "rl_games", "rsl_rl")
CandidateLike = None | str | Path | Mapping[str, str]


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
        candidate: a file; or a text by its name, ``{name: source}``; or ``"human"`` or ``"unshaped"``; default human.
        num_envs: number of environments.
        api: ``gymnasium`` for a ``gymnasium.vector.VectorEnv``, ``elegantrl`` for the environment of ElegantRL's Isaac
            Gym examples, ``rl_games`` for its vecenv, ``rsl_rl`` for its ``VecEnv``.
        seed: as of a run's group; equal seeds give equal random numbers.
        evaluation: use the initial states, goals, terminal and reward of the unshaped task, with the candidate's
            observations and actions, as when fitness is measured.
        shaper_types: functions to take from the candidate; default all that it defines.
        overrides: for keys of cfg/, ``["task.env.maxEffort=100"]`` or ``{"task.env.maxEffort": 100}``.
        settings: keys of cfg/config.yaml, such as ``device="cpu"`` or ``baseline="unshaped"``.

    Raises:
        UserError: bad input, a fault of the candidate, or a missing package.
    """
    if api not in APIS:
        raise UserError(f"unknown api '{api}'{near_matches(str(api), APIS)}; there are {', '.join(APIS)}")
    env = make_single(task, candidate, num_envs, seed, evaluation, shaper_types, overrides, **settings)
    if api == "elegantrl":
        from envcoder_bench.adapters.elegantrl import IsaacVecEnv

        words = override_words(overrides, None, settings)
        given = {"candidate": candidate, "seed": seed, "evaluation": evaluation, "shaper_types": shaper_types}
        return IsaacVecEnv.of(env, {"env_name": task, **given, "overrides": words})
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


def make_single(
    task: str,
    candidate: CandidateLike = None,
    num_envs: int = 256,
    seed: int = 0,
    evaluation: bool = False,
    shaper_types: Sequence[str] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    **settings: Any,
) -> SingleCandidateEnv:
    """Make what the adapters wrap. Arguments and errors as of ``make_env``."""
    sizes = {"num_envs_per_candidate": num_envs, "seed": seed, "seeds": 1}
    for key in sorted({*sizes, "devices", "ray", "isolate"} & settings.keys()):
        raise UserError(f"{key} is not a setting of make_env: it makes one group of environments on one device")
    spec = resolve(task, override_words(overrides, shaper_types, {**settings, **sizes}), ranks=False)
    source = _source(spec.task, candidate)
    group = prepare_one(spec, source, seed)
    with ALONE, user_input():
        env = build_env(spec, [group.evaluation if evaluation else group.shaping], [seed], num_envs)
    return SingleCandidateEnv(env, spec.task.name, source.name)


def _source(task: TaskSpec, candidate: CandidateLike) -> CandidateSource:
    """Read the one candidate."""
    baseline = HUMAN if candidate is None else candidate
    if isinstance(baseline, str) and baseline in BASELINE_FILES:
        return next(source for source in baseline_sources(task) if source.name == baseline)
    found = read_candidates(task.name, candidate)
    if len(found) != 1:
        raise UserError(f"make_env takes one candidate, and {candidate} has {len(found)}: give one file")
    return found[0]
