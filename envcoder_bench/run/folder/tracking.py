"""The trackers of a run: TensorBoard always, Weights & Biases on request."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import message_line
from envcoder_bench.core.files import digest
from envcoder_bench.core.settings import select
from envcoder_bench.report.wandb_log import WandbLog, WandbSettings, check_wandb, log_ranking
from envcoder_bench.results.rows import read_results
from envcoder_bench.run.folder.ranked import rank_run
from envcoder_bench.run.folder.run_folder import CandidateSource, RunFolder
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.shaping.text import defined_kinds
from envcoder_bench.shaping.variants import TRAIN, label
from envcoder_bench.tasks.base import BASELINES

# keys of the train YAML's params.config that are hyperparameters of trackers
_PPO = ("learning_rate", "gamma", "tau", "e_clip", "entropy_coef", "horizon_length", "mini_epochs", "num_minibatches")
log = logging.getLogger(__name__)


def check_tracking(cfg: RunConfig) -> None:
    """Raise UserError if W&B is enabled and cannot be used."""
    if cfg.wandb.enabled:
        check_wandb(cfg.wandb.mode)


def hyperparameters(cfg: RunConfig, sources: Sequence[CandidateSource]) -> dict[str, dict[str, Any]]:
    """Return by candidate what distinguishes its training, as numbers and words."""
    params = select(cfg.train, "params", {})
    config, units = params.get("config", {}), select(params, "network.mlp.units")
    shared = {
        "task": str(cfg.task.name),
        "baseline": str(cfg.baseline),
        "num_envs": int(cfg.num_envs_per_candidate),
        "iterations": int(cfg.learning_iterations),
        "trainer": str(params.get("algo", {}).get("name", "")),
        **{key: config[key] for key in _PPO if isinstance(config.get(key), (int, float))},
        "units": "" if units is None else ",".join(map(str, units)),
        # numbers that a sweep changes
        **{label(key): select(cfg.train, key.removeprefix(TRAIN)) or 0.0 for x in sources for key in x.overrides},
    }
    # what differs between candidates is what they define
    rows = {}
    for source in sources:
        kinds = defined_kinds(source.source)
        if cfg.shaper_types is not None and source.name not in BASELINES:
            kinds = kinds.intersection(cfg.shaper_types)
        types = " ".join(sorted(kinds))
        values = {label(key): value for key, value in source.overrides.items()}
        rows[source.name] = {"candidate": source.name, "shaper_types": types, **shared, **values}
    return rows


def wandb_settings(folder: RunFolder, cfg: RunConfig) -> WandbSettings | None:
    """Return where a run's scalars go in W&B; None if it is not enabled."""
    wandb = cfg.wandb
    if not wandb.enabled:
        return None
    key = digest(f"{folder.path.name} {folder.begun}")[:12]
    return WandbSettings(
        wandb.project, wandb.group or folder.path.name, folder.path, key, wandb.entity, wandb.mode, tuple(wandb.tags)
    )


def wandb_log(folder: RunFolder, cfg: RunConfig, sources: Sequence[CandidateSource]) -> WandbLog | None:
    """Return the W&B log of a run; None if it is not enabled."""
    settings = wandb_settings(folder, cfg)
    if settings is None:
        return None
    by_candidate = hyperparameters(cfg, sources)

    def about(candidate: str, seed: int) -> dict[str, Any]:
        return {**by_candidate[candidate], "seed": seed, "is_baseline": candidate in BASELINES}

    return WandbLog(settings, about)


def log_report(run: Path, page: Path, videos: Mapping[str, Path]) -> None:
    """Log ranking, page and videos of a complete run to W&B if that is enabled; failures are warnings."""
    folder = RunFolder(run)
    cfg, _ = folder.read()
    settings = wandb_settings(folder, cfg)
    if settings is None:
        return
    try:
        ranked = rank_run(folder, cfg, read_results(folder.results))
        config = {"task": str(cfg.task.name), "seeds": int(cfg.seeds), "iterations": int(cfg.learning_iterations)}
        log_ranking(settings, ranked, config, page, videos)
    except Exception as error:  # results must not depend on it
        log.warning("W&B: the report could not be logged: %s", message_line(error))
