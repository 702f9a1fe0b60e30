"""Start or resume a search; its inputs are checked before any request is sent."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.files import stamped_folder, write_atomic
from envcoder_bench.core.shell import quoted, shown
from envcoder_bench.jail.probing import log_confinement
from envcoder_bench.report.words import counted
from envcoder_bench.run.fitness import fitness_meaning, read_fitness
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.prepare.task_place import remedy
from envcoder_bench.run.seeds import AUTO
from envcoder_bench.run.workers.start import shared_ray
from envcoder_bench.search import screen
from envcoder_bench.search.folder import FITNESS, PROMPT, START, SearchFolder
from envcoder_bench.search.limits import LIMITS, MODEL, change_model, kept_address, raise_limits, whole_address
from envcoder_bench.search.loop import Search, SearchResult
from envcoder_bench.search.prompt import load_templates
from envcoder_bench.search.providers.base import Provider
from envcoder_bench.search.providers.replay import ReplayProvider
from envcoder_bench.search.screen import View
from envcoder_bench.search.settings import compose_settings, explain_unknown, with_defaults
from envcoder_bench.search.spec import SearchSpec
from envcoder_bench.shaping.discovery import find_candidates
from envcoder_bench.shaping.loading import load_source
from envcoder_bench.tasks.registry import find_spec

UNTRUSTED = "untrusted=true"
DESCRIPTION = "a policy whose fitness is as high as can be"  # default task description


def start(
    task: str,
    llm: str,
    task_description: str | None = None,
    overrides: Sequence[str] = (),
    base_url: str | None = None,
    candidates: Sequence[Path] | None = None,
    output_dir: Path | None = None,
    view: View | None = None,
) -> SearchResult:
    """Run a new search.

    Args:
        task: a task's name, its folder or ``module:Class``.
        llm: the model, see ``providers.choice.kind_of``.
        task_description: the desired behaviour, for the model; by default DESCRIPTION, or that of a replayed search.
        overrides: ``key=value`` for cfg/auto_shape.yaml and for the config of a run.
        base_url: URL of another server with the provider's protocol.
        candidates: files or folders of candidates to begin with.
        output_dir: a new folder; by default ``searches/<task>_<time>``.
        view: shows the progress, and may stop the search.

    Raises:
        UserError: for bad input, before anything is written or any request is sent; or as ``Search.run``.
    """
    with user_input():
        task = find_spec(task).name
    if task_description is not None and not task_description.strip():
        raise UserError("--task_description is empty: say what the policy should do, or leave it out")
    settings, words = compose_settings(overrides)
    spec = SearchSpec(
        task,
        llm,
        task_description or DESCRIPTION,
        base_url,
        settings,
        [*words, UNTRUSTED],
        load_templates(None if settings.prompt.dir is None else Path(settings.prompt.dir)),
        _read_starts(task, candidates),
    )
    try:
        spec.run_config()
    except UserError as error:
        raise explain_unknown(error) from error
    provider = spec.provider()
    seeds_line = spec.settle_seeds()
    cfg = spec.run_config()
    if task_description is None and isinstance(provider, ReplayProvider):
        spec = replace(spec, task_description=provider.meta.get("task_description", DESCRIPTION))
    spec.check(cfg, provider)
    path = (output_dir or stamped_folder("searches", task)).resolve()
    files = {f"{PROMPT}/{name}": text for name, text in spec.templates.items()}
    files.update({f"{START}/{name}.py": text for name, text in spec.starts.items()})
    fitness = read_fitness(cfg)
    if fitness is not None:
        files[FITNESS] = fitness.source
    config = {name: getattr(spec, name) for name in ("llm", "task_description")}
    config.update(task=find_spec(task).address, **kept_address(base_url))
    folder = SearchFolder.create(path, {**config, "search": settings, "overrides": list(spec.overrides)}, files)
    spec.overrides.extend(_fitness_override(folder))
    cfg = spec.run_config()
    return _run(folder, spec, cfg, provider, True, view or View(), seeds_line)


def resume(path: Path, view: View | None = None, changed: Mapping[str, Any] | None = None) -> SearchResult:
    """Resume the search in a folder.

    Args:
        path: the folder.
        view: as for ``start``.
        changed: higher values of its ``limits.LIMITS``, other values of its ``limits.MODEL``.

    Raises:
        UserError: for values that are not possible, before anything is changed; or as ``start``.
    """
    folder, config = SearchFolder.open(path.resolve())
    raised = {key: value for key, value in (changed or {}).items() if key in LIMITS}
    model = {key: value for key, value in (changed or {}).items() if key in MODEL}
    if changed:
        with RunFolder(folder.path).locked():
            if model:
                change_model(config, model)
                whole_address(config, model.get("base_url"))  # raises before anything is written
            if raised:
                raise_limits(folder, config, raised)
            else:
                write_atomic(folder.config, OmegaConf.to_yaml(config))
    try:
        task = find_spec(config.task).name
    except ValueError as error:
        raise UserError(f"{folder.config}: {error}{remedy(config.task, 'task')}") from error
    left = _rounds_left(folder, config.search.num_iters)
    spec = SearchSpec(
        task,
        config.llm,
        config.task_description,
        config.base_url if not left else whole_address(config, model.get("base_url")),
        with_defaults(config.search),
        [*config.overrides, *_fitness_override(folder)],
        load_templates(folder.path / PROMPT),
        {file.stem: load_source(file) for file in sorted((folder.path / START).glob("*.py"))},
    )
    if spec.run_config().seeds == AUTO:
        spec.overrides.append("seeds=1")  # the default when the search began, before there was auto
    cfg = spec.run_config()
    return _run(folder, spec, cfg, spec.provider() if left else None, left, view or View())


def _rounds_left(folder: SearchFolder, count: int) -> bool:
    """Return whether further rounds must be proposed."""
    for number in range(1, count + 1):
        round = folder.read_round(number)
        if round is None or round.stopped:
            return round is None
    return False


def _fitness_override(folder: SearchFolder) -> list[str]:
    """Return the override for the search's copy of the fitness file, because the original may change."""
    copy = folder.path / FITNESS
    return [f"fitness={quoted(str(copy))}"] if copy.is_file() else []


def _run(
    folder: SearchFolder,
    spec: SearchSpec,
    cfg: DictConfig,
    provider: Provider | None,
    left: bool,
    view: View,
    seeds_line: str = "",
) -> SearchResult:
    """Run a search to its end.

    Args:
        left: whether there are rounds to propose.
        seeds_line: why the search takes its number of seeds, if it chose it.
    """
    with RunFolder(folder.path).locked(), shared_ray(cfg):
        proposer = spec.proposer(cfg, provider, folder.transcript, view) if left else None
        writer = provider.name if provider is not None else spec.llm
        view.say(screen.opening(_facts(folder, spec, cfg, seeds_line)))
        log_confinement()
        meta = spec.meta(cfg)
        about = {
            **meta,
            "fitness_meaning": meta["fitness"],
            "llm": spec.llm,
            "rounds_planned": spec.settings.num_iters,
        }
        search = Search(folder, spec.settings, cfg, spec.overrides, proposer, writer, about, view)
        result = search.run()
        if isinstance(provider, ReplayProvider) and provider.by_label:
            found = f"{counted(provider.by_label, 'reply', 'replies')} found by label"
            view.say(f"{found}: the prompts differ from the recorded ones")
        return result


def _facts(folder: SearchFolder, spec: SearchSpec, cfg: DictConfig, seeds_line: str) -> dict[str, str]:
    """Return the facts that are shown before the search begins."""
    search = spec.settings
    kinds = "all functions" if cfg.shaper_types is None else ", ".join(cfg.shaper_types)
    size = f"{counted(cfg.num_envs_per_candidate, 'environment')} x {counted(cfg.learning_iterations, 'iteration')}"
    rounds = f"{counted(search.num_iters, 'round')} of {counted(search.shapers_per_iter, 'candidate')}"
    several = [f"devices {cfg.devices}"] * (cfg.devices is not None) + [f"Ray at {cfg.ray}"] * (cfg.ray is not None)
    where = ", ".join(several) or cfg.device
    limits = [
        counted(search.max_tokens, "token") if search.max_tokens is not None else "",
        counted(search.max_cost, "US dollar") if search.max_cost is not None else "",
    ]
    facts = {
        "task": f"{spec.task}: {spec.task_description}",
        "ranked by": _measure(spec, cfg),
        "candidates": f"{kinds}, by {spec.llm}; what they lack comes from the {cfg.baseline} baseline",
        "search": f"{rounds}, each {size}, {counted(cfg.seeds, 'seed')}, on {where}",
        "seeds": seeds_line,
        "limits": ", ".join(limit for limit in limits if limit),
        "folder": f"{shown(folder.path)} (after a stop: {folder.command})",
    }
    return {name: text for name, text in facts.items() if text}


def _measure(spec: SearchSpec, cfg: DictConfig) -> str:
    """Return what ranks the candidates, and that the description may ask for something else."""
    meaning = fitness_meaning(cfg)
    if cfg.fitness is not None or spec.task_description == DESCRIPTION:
        return meaning
    return f"{meaning.rstrip('.')}; if the description means another measure, give it with --fitness FILE"


def _read_starts(task: str, candidates: Sequence[Path] | None) -> dict[str, str]:
    if not candidates:
        return {}
    try:
        with user_input():
            return {path.stem: load_source(path) for path in find_candidates(candidates, task, Path())}
    except OSError as error:
        raise UserError(f"a candidate cannot be read: {error}") from error
