"""Start or resume a search; its inputs are checked before any request is sent.

A resumed search may change its limits, also if they have ended it, and the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import UserError, recorded_input, user_input
from envcoder_bench.core.files import refuse_taken, stamped_folder, write_atomic
from envcoder_bench.core.settings import Settings, merged
from envcoder_bench.core.shell import display_path, quoted
from envcoder_bench.core.words import counted
from envcoder_bench.core.yaml_files import to_yaml
from envcoder_bench.jail.probing import log_confinement
from envcoder_bench.run.config import find_task
from envcoder_bench.run.fitness import fitness_meaning
from envcoder_bench.run.folder.run_folder import RunFolder, missing_task
from envcoder_bench.run.inputs import read_candidates
from envcoder_bench.run.seeds import seed_count
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.run.workers.start import shared_ray
from envcoder_bench.search import screen
from envcoder_bench.search.folder import FITNESS, PROMPT, START, Round, SearchFolder
from envcoder_bench.search.loop import Search, SearchResult
from envcoder_bench.search.prompt.prompts import load_templates
from envcoder_bench.search.providers.base import Provider
from envcoder_bench.search.providers.choice import REPLAY, WITHOUT_MODEL, kind_of
from envcoder_bench.search.providers.sdk import check_base_url
from envcoder_bench.search.providers.transcript import ReplayProvider
from envcoder_bench.search.report import SearchFacts
from envcoder_bench.search.screen import View
from envcoder_bench.search.settings import LIMITS, MODEL, SearchSettings, compose_settings, explain_unknown
from envcoder_bench.search.spec import SearchSpec
from envcoder_bench.shaping.loading import load_source

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
        candidates: files or folders of candidates to begin with.
        output_dir: a new folder; by default ``searches/<task>_<time>``.
        view: shows the progress, and may stop the search.

    Raises:
        UserError: for bad input, before anything is written or any request is sent; or as ``Search.run``.
    """
    # inputs
    view = view or View()
    check_base_url(base_url or "")
    with user_input():
        if output_dir is not None:
            refuse_taken(output_dir)
    task_spec = find_task(task)
    if task_description is not None and not task_description.strip():
        raise UserError("--task_description is empty: say what the policy should do, or leave it out")
    settings, words = compose_settings(overrides)
    spec = SearchSpec(
        task_spec,
        llm,
        task_description or DESCRIPTION,
        base_url,
        settings,
        [*words, UNTRUSTED],
        load_templates(None if settings.prompt.dir is None else Path(settings.prompt.dir)),
        {source.name: source.source for source in read_candidates(task_spec.name, candidates)} if candidates else {},
    )
    # the rounds' runs are checked as any run, before a model is asked
    try:
        spec.described()
    except UserError as error:
        raise explain_unknown(error) from error
    # the model, the number of seeds, and what the search may cost
    provider = spec.provider(view)
    if provider is not None:
        spec.budget().check_price(provider)
    seeds_line = spec.settle_seeds()
    run = spec.run()
    # a replay finds replies by the prompt, which has the description
    if task_description is None and isinstance(provider, ReplayProvider):
        spec = replace(spec, task_description=provider.meta.get("task_description", DESCRIPTION))
    expected = spec.check(run, provider)
    folder = _new_folder((output_dir or stamped_folder("searches", task_spec.name)).resolve(), spec, run)
    spec.overrides.extend(_fitness_override(folder))
    return _run(folder, spec, spec.run(), provider, True, view, {"seeds": seeds_line, **expected})


def outside(task: str, llm: str, task_description: str, overrides: Sequence[str]) -> SearchSpec:
    """Return the inputs of a search whose rounds are made elsewhere; arguments as of ``start``.

    ``llm`` is the name of who makes them.
    """
    settings, words = compose_settings(overrides)
    texts = load_templates(None if settings.prompt.dir is None else Path(settings.prompt.dir))
    return SearchSpec(find_task(task), llm, task_description, None, settings, [*words, UNTRUSTED], texts, {})


def adopt(spec: SearchSpec, output_dir: Path) -> SearchFolder:
    """Create the folder of a search of ``outside``. Rounds are then written into it; ``resume`` validates them."""
    return _new_folder(output_dir, spec, spec.run())


def _new_folder(path: Path, spec: SearchSpec, run: RunSpec) -> SearchFolder:
    """Create a search's folder with all that ``resume`` needs."""
    files = {f"{PROMPT}/{name}": text for name, text in spec.templates.items()}
    files.update({f"{START}/{name}.py": text for name, text in spec.starts.items()})
    if run.fitness is not None:
        files[FITNESS] = run.fitness.source
    config = {
        "llm": spec.llm,
        "task_description": spec.task_description,
        "task": spec.task.address,
        "base_url": spec.base_url,
        "search": spec.settings.plain(),
        "overrides": list(spec.overrides),
    }
    return SearchFolder.create(path, config, files)


def resume(path: Path, view: View | None = None, changed: Mapping[str, Any] | None = None) -> SearchResult:
    """Resume the search in a folder.

    Args:
        changed: higher values of its ``LIMITS``, other values of its ``MODEL``.

    Raises:
        UserError: for values that are not possible, before anything is changed; or as ``start``.
    """
    view = view or View()
    folder, config = SearchFolder.open(path.resolve())
    raised = {key: value for key, value in (changed or {}).items() if key in LIMITS}
    model = {key: value for key, value in (changed or {}).items() if key in MODEL}
    with recorded_input(folder.config):
        # limits can be raised, and the model be replaced
        if changed:
            with RunFolder(folder.path).locked():
                if model:
                    config = change_model(config, model)
                if raised:
                    config = raise_limits(folder, config, raised)
                else:
                    write_atomic(folder.config, to_yaml(config))
        try:
            task = find_task(config.task)
        except UserError as error:
            raise missing_task(folder.config, "task", config.task, error) from error
        # a provider is only needed for rounds that are left
        left = _rounds_left(folder, config.search.num_iters)
        spec = SearchSpec(
            task,
            config.llm,
            config.task_description,
            config.base_url,
            SearchSettings.checked(config.search),
            [*config.overrides, *_fitness_override(folder)],
            load_templates(folder.path / PROMPT),
            {file.stem: load_source(file) for file in sorted((folder.path / START).glob("*.py"))},
        )
        run = spec.run()
    return _run(folder, spec, run, spec.provider(view) if left else None, left, view)


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
    run: RunSpec,
    provider: Provider | None,
    left: bool,
    view: View,
    begins: Mapping[str, str] | None = None,
) -> SearchResult:
    """Run a search to its end.

    Args:
        left: whether there are rounds to propose.
        begins: facts of a new search, by name: why it takes its number of seeds, its cost and its time.
    """
    with RunFolder(folder.path).locked(), shared_ray(run.config):
        proposer = spec.proposer(run, provider, folder.transcript) if left else None
        writer = provider.name if provider is not None else spec.llm
        view.say(screen.opening(_facts(folder, spec, run, begins or {})))
        log_confinement()
        facts = SearchFacts(
            task=spec.task.name,
            task_description=spec.task_description,
            fitness_meaning=fitness_meaning(run),
            llm=spec.llm,
            shaper_types=run.config.shaper_types,
            rounds_planned=spec.settings.num_iters,
        )
        search = Search(folder, spec.settings, run, spec.overrides, proposer, writer, facts, view)
        result = search.run()
        if isinstance(provider, ReplayProvider) and provider.by_label:
            replies = f"{counted(provider.by_label, 'reply', 'replies')} found by label"
            view.say(f"{replies}: the prompts differ from the recorded ones")
        return result


def _facts(folder: SearchFolder, spec: SearchSpec, run: RunSpec, begins: Mapping[str, str]) -> dict[str, str]:
    """Return the facts that are shown before the search begins."""
    search, cfg = spec.settings, run.config
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
        "task": f"{spec.task.name}: {spec.task_description}",
        "ranked by": _measure(spec, run),
        "candidates": f"{kinds}, by {spec.llm}; what they lack comes from the {cfg.baseline} baseline",
        "search": f"{rounds}, each {size}, {counted(seed_count(cfg), 'seed')}, on {where}",
        **begins,
        "limits": ", ".join(limit for limit in limits if limit),
        "folder": f"{display_path(folder.path)} (after a stop: {folder.command})",
    }
    return {name: text for name, text in facts.items() if text}


def _measure(spec: SearchSpec, run: RunSpec) -> str:
    """Return what ranks the candidates, and that the description may ask for something else."""
    meaning = fitness_meaning(run)
    if run.fitness is not None or spec.task_description == DESCRIPTION:
        return meaning
    return f"{meaning.rstrip('.')}; if the description means another measure, give it with --fitness FILE"


# what a resumed search may change


def raise_limits(folder: SearchFolder, config: Settings, raised: Mapping[str, Any]) -> Settings:
    """Raise limits of a search in its config, write and return it, and continue a search that they have ended.

    Validation and final evaluation of a search that had ended are kept in other folders, ``final_1``, ``final_2`` ...

    Args:
        raised: new values of settings in LIMITS.

    Raises:
        UserError: a limit is not higher than before, or the search ended for another reason; nothing was changed.
    """
    old = config.search
    for key, value in raised.items():
        if old[key] is not None and not value > old[key]:
            raise UserError(f"--{key} {value}: the search has {old[key]}, which can only be raised")
    settings = SearchSettings.checked(merged(old, raised))
    config = Settings({**config, "search": settings.plain()})
    rounds = [round for round in map(folder.read_round, range(1, old.num_iters + 1)) if round is not None]
    ended = next((round for round in rounds if round.stopped), None)
    if ended is not None and not any(f"--{key} " in ended.stopped for key in raised):
        raise UserError(f"the search ended because {ended.stopped}: raise that limit")
    write_atomic(folder.config, to_yaml(config))
    if ended is not None or "num_iters" in raised:
        folder.keep_ending()
    if ended is not None:
        _continue(folder, ended)
    return config


def change_model(config: Settings, changed: Mapping[str, Any]) -> Settings:
    """Return a search's config with another model, server or settings of requests; the replies so far are kept.

    Args:
        changed: new values of MODEL.

    Raises:
        UserError: for an invalid value, or if the search or the new model uses no server; nothing was changed.
    """
    llm = changed.get("llm", config.llm)
    for name in (config.llm, llm):
        if kind_of(name) in (*WITHOUT_MODEL, REPLAY):
            flags = ", ".join(f"--{key}" for key in changed)
            raise UserError(f"{flags}: --llm {name} sends no requests, so the search cannot continue with it or with"
                            " another model: start a new one")  # fmt: skip
    changes = {key: changed[key] for key in MODEL if key in changed and key in config.search}
    settings = SearchSettings.checked(merged(config.search, changes)).plain()
    address = changed.get("base_url", config.base_url)
    check_base_url(address or "")
    return Settings({**config, "search": settings, "llm": llm, "base_url": address})


def _continue(folder: SearchFolder, ended: Round) -> None:
    """Let the search go on after its last round; a round without any candidate is proposed again."""
    if ended.ready or ended.failed:
        ended.stopped = ""
        folder.write_round(ended)
    else:
        (folder.round(ended.number) / "round.json").unlink()
