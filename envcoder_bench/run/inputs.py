"""The inputs of a run, its config and its candidates, read and checked before anything is written."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.folders import project_folder, user_file
from envcoder_bench.core.shell import quoted
from envcoder_bench.core.words import counted
from envcoder_bench.run.config import compose_config, find_task
from envcoder_bench.run.config_checks import (
    check_deterministic,
    check_half_step,
    check_race,
    check_task,
    check_training,
    check_values,
    share_out,
)
from envcoder_bench.run.fitness import read_fitness
from envcoder_bench.run.folder.tracking import check_tracking
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.isaac_yaml import file_overrides
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.seeds import refuse_in_race, seed_count
from envcoder_bench.run.spec import CandidateSource, RunConfig, RunSpec
from envcoder_bench.run.workers.devices import requested_devices
from envcoder_bench.shaping.contract import CandidateError
from envcoder_bench.shaping.discovery import find_candidates, refuse_clashes, select
from envcoder_bench.shaping.functions import source_of
from envcoder_bench.shaping.loading import load_source, parse
from envcoder_bench.shaping.scan import MAX_CHARACTERS
from envcoder_bench.sim import pick_simulator
from envcoder_bench.tasks.base import BASELINE_FILES
from envcoder_bench.tasks.spec import TaskSpec
from envcoder_bench.trainers.registry import full_name

Source = str | Callable[..., Any] | Sequence[Callable[..., Any]]  # a text, or functions
P = ParamSpec("P")
R = TypeVar("R")
Candidates = None | str | Path | Sequence[str | Path] | Mapping[str, Source]


def checked_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function raise UserError for arguments that do not fit its signature, or are not of the right type."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            names = ", ".join(str(each.replace(annotation=each.empty)) for each in signature.parameters.values())
            raise UserError(f"{function.__name__}: {error}; its arguments are {names}") from None
        _check_types({**dict(zip(signature.parameters, bound.args)), **bound.kwargs})
        return function(*args, **kwargs)

    return call


def _check_types(arguments: Mapping[str, Any]) -> None:
    """Raise UserError for an argument of another type than its own.

    None is the default of all but ``_NEEDED``. Other names are those of keys, which the config checks.
    """
    for name, value in arguments.items():
        types, words = _ARGUMENTS.get(name, (object, ""))
        allowed = isinstance(value, types) and not (isinstance(value, bool) and types in (Integral, Real))
        if isinstance(value, (list, tuple, bytes)) and name in _OF_TEXTS:
            allowed = all(isinstance(each, (str, os.PathLike)) for each in value)
        if not (allowed or (value is None and name not in _NEEDED)):
            raise UserError(f"{name} must be {words}, got {value!r}")


_PATH = (str, os.PathLike)
_NEEDED = ("task", "folder", "no_baselines", "terms", "device", "physics")
_OF_TEXTS = ("candidates", "overrides", "sweep")
_ARGUMENTS: dict[str, tuple[Any, str]] = {
    "task": (_PATH, "a task's name, its folder or module:Class"),
    "folder": (_PATH, "the folder of a run"),
    "candidates": ((Iterable, os.PathLike), "files or folders, or texts or functions by name"),
    "candidate": ((*_PATH, Mapping, TaskSpec), "a file, or a text by its name, or human or unshaped"),
    "shaper_types": (Iterable, "names of functions, such as ['compute_reward']"),
    "overrides": (Iterable, "texts such as ['seed=1'], or values by key, {'seed': 1}"),
    "candidate_idx": (Iterable, "positions, such as [0, 2] or '0,2'"),
    "num_envs": (Integral, "a whole number"),
    **{name: (Integral, "a whole number") for name in ("draws", "episodes")},
    "seconds": (Real, "a number"),
    "output_dir": (_PATH, "the path of a new folder"),
    "reporter": (Reporter, "an envcoder_bench.Reporter"),
    "stop": (StopRequest, "an envcoder_bench.StopRequest"),
    "trainer": (str, "the name of a trainer"),
    "train_config": (_PATH, "the path of a YAML file"),
    "task_config": (_PATH, "the path of a YAML file"),
    "no_baselines": (bool, "True or False"),
    "terms": (bool, "True or False"),
    "physics": (bool, "True or False"),
    "device": (str, "auto, cpu or cuda:N"),
    "sweep": (Iterable, "values by name, {'effort': [0, 1]}"),
}


def resolve(task: str | TaskSpec, overrides: Sequence[str] = (), ranks: bool = True) -> RunSpec:
    """Return the result of ``described``. Raises UserError, too, if the task's code fails with this config."""
    spec = described(task, overrides, ranks)
    with user_input():
        spec.try_code()
    return spec


def described(task: str | TaskSpec, overrides: Sequence[str] = (), ranks: bool = True) -> RunSpec:
    """Return the description of a run without candidates, with simulator and device resolved; no task's code is run.

    Args:
        task: a task, or its name, its folder or ``module:Class``.
        ranks: whether a fitness is needed; without one only a ``--fitness`` file is read.

    Raises:
        UserError: the task does not exist, or a value is invalid.
    """
    task = find_task(task)
    with user_input():
        cfg = compose_config(task, overrides)
        check_values(cfg)
        refuse_in_race(cfg, overrides)
        check_task(task, cfg.task)
        check_tracking(cfg)
        spec = RunSpec(task, pick_device(cfg))
        check_deterministic(spec)
        check_half_step(spec)
    fitness = read_fitness(task, cfg) if ranks or cfg.fitness is not None else None
    return replace(spec, fitness=fitness)


def with_candidates(spec: RunSpec, candidates: Sequence[CandidateSource], num_envs: int | None = None) -> RunSpec:
    """Return the run with these candidates, after the task's baselines if they are evaluated.

    ``num_envs`` is the total number of environments, instead of ``num_envs_per_candidate``. Raises UserError.
    """
    cfg = spec.config
    if num_envs is not None:
        count = len(candidates) + len(BASELINE_FILES) * cfg.baselines
        spec = spec.changed(num_envs_per_candidate=share_out(num_envs, count * seed_count(cfg)))
    check_training(spec)
    check_race(spec)
    with user_input():  # the task's code may refuse the overrides
        spec.try_code()
    return replace(spec, sources=(*(baseline_sources(spec.task, cfg.task) if cfg.baselines else ()), *candidates))


def pick_device(cfg: RunConfig) -> RunConfig:
    """Return a config with ``sim`` and ``device`` resolved. Raises UserError or ValueError without a device.

    With several devices they are those of each worker, which this machine need not have.
    """
    devices = requested_devices(cfg)
    sim, device = pick_simulator(cfg.sim, cfg.device) if devices is None else devices.simulator
    return cfg.model_copy(update={"sim": sim, "device": device})


def read_candidates(
    task: str, candidates: Candidates = None, candidate_idx: str | Sequence[int] | None = None
) -> list[CandidateSource]:
    """Read the candidates.

    Args:
        candidates: files or folders, or texts or functions by name; default ``user_functions/<task>``.
        candidate_idx: positions to keep, e.g. ``"0,2,5"`` or ``[0, 2, 5]``.

    Raises:
        UserError: there are none, one cannot be read, or a name is not valid.
    """
    texts = _checked(candidates) if isinstance(candidates, Mapping) else None
    with user_input():
        if texts is not None:
            files = [Path(f"{name}.py") for name in texts]
            refuse_clashes(files)
        else:
            paths = [candidates] if isinstance(candidates, (str, Path)) else list(candidates or [])
            # user_functions/ of the working folder, or of this package
            root = Path() if Path("user_functions").is_dir() else project_folder("user_functions").parent
            files = find_candidates([user_file(path) for path in paths], task, root)
        if candidate_idx is not None:
            words = candidate_idx if isinstance(candidate_idx, str) else ",".join(map(str, candidate_idx))
            files = select(files, words)
    try:
        return [
            CandidateSource(path.stem, str(path), load_source(path) if texts is None else texts[path.stem])
            for path in files
        ]
    except OSError as error:
        raise UserError(f"a candidate cannot be read: {error}") from error


def refuse_unparsed(candidates: Sequence[CandidateSource]) -> None:
    """Raise UserError if none of the files parses; one among others is reported with the results.

    Files longer than an unread file may be are left to the run, whose jail parses them.
    """
    errors: list[CandidateError] = []
    for source in candidates:
        if len(source.source) > MAX_CHARACTERS:
            return
        try:
            parse(source.source, source.file)
            return
        except CandidateError as error:
            errors.append(error)
    others = f"; and {counted(len(errors) - 1, 'more candidate')} that cannot be parsed" if len(errors) > 1 else ""
    raise UserError(f"{errors[0]}{others}") from errors[0]


def _checked(sources: Mapping[str, Source]) -> dict[str, str]:
    """Return the texts of candidates by name."""
    if not sources:
        raise UserError("no candidates found: candidates={} names none")
    texts: dict[str, str] = {}
    for name, source in sources.items():
        # a text, a function, or several functions
        functions = [source] if callable(source) else [*source] if isinstance(source, (list, tuple)) else []
        usable = isinstance(source, str) or (functions and all(map(callable, functions)))
        if not isinstance(name, str) or not usable:
            got = f"{{{type(name).__name__}: {type(source).__name__}}}"
            raise UserError(
                "candidates by name are texts, {'name': 'def compute_reward(...): ...'}, or functions,"
                f" {{'name': compute_reward}}, got {got}"
            )
        if "/" in name:
            raise UserError(f"{name!r}: rename it: a candidate's name is used for a folder and cannot contain /")
        try:
            texts[name] = source if isinstance(source, str) else source_of(functions)
        except ValueError as error:
            raise UserError(f"candidate {name}: {error}") from None
    return texts


def override_words(
    task: str | TaskSpec,
    overrides: Sequence[str] | Mapping[str, Any],
    shaper_types: Sequence[str] | None,
    settings: Mapping[str, Any],
) -> list[str]:
    """Return all settings of keys of cfg/ as ``key=value`` in Hydra's override grammar.

    Args:
        settings: keys of cfg/config.yaml and flags of eval-shapers, such as ``gpu_id``.

    Raises:
        UserError: a value is not a number, text, list or mapping, a file of ``task_config`` or ``train_config`` is
            invalid, or flags contradict each other.
    """
    names = [shaper_types] if isinstance(shaper_types, str) else map(str, shaper_types or ())
    words = [] if shaper_types is None else [f"shaper_types=[{','.join(names)}]"]
    words += _flag_words(task, dict(settings))
    if isinstance(overrides, Mapping):
        return words + [f"{key}={override_word(key, value)}" for key, value in overrides.items()]
    return words + ([overrides] if isinstance(overrides, str) else list(overrides))


def _flag_words(task: str | TaskSpec, flags: dict[str, Any]) -> list[str]:
    # flags that stand for keys of the config
    gpu, trainer, without = (flags.pop(name, None) for name in ("gpu_id", "trainer", "no_baselines"))
    files = flags.pop("task_config", None), flags.pop("train_config", None)
    if gpu is not None and flags.get("device") not in (None, "auto"):
        raise UserError("--gpu_id and --device both choose the device: give one of them")
    if gpu is not None:
        flags["device"] = f"cuda:{gpu}"
    if without:
        flags["baselines"] = False
    if flags.pop("half_step", None):
        flags["evaluation.half_step"] = True
    for name in ("race", "wandb"):
        if isinstance(flags.get(name), bool):
            flags[f"{name}.enabled"] = flags.pop(name)
    with user_input():
        if trainer is not None:
            flags["train.params.algo.name"] = full_name(trainer)
        from_files = file_overrides(find_task(task), *files) if files != (None, None) else {}
    return [f"{key}={override_word(key, value)}" for key, value in [*from_files.items(), *flags.items()]]


def override_word(key: str, value: Any) -> str:
    """Return a value in Hydra's override grammar. Raises UserError for one of another type."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    value = value.tolist() if hasattr(value, "tolist") else value  # numbers of numpy or torch
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, Path)):
        return quoted(str(value))
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{override_word(key, item)}" for name, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ",".join(override_word(key, item) for item in value) + "]"
    raise UserError(f"{key} must be a number, a text, a list or a mapping, got {type(value).__name__} {value!r}")
