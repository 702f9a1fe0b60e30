"""Higher limits for a search that is resumed, also for one that they have ended."""

from __future__ import annotations

from typing import Any, Mapping

from omegaconf import DictConfig, OmegaConf

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.search.folder import Round, SearchFolder
from envcoder_bench.search.settings import check_settings, with_defaults

LIMITS = ("max_tokens", "max_cost", "num_iters")  # settings that a resumed search may raise


def raise_limits(folder: SearchFolder, config: DictConfig, raised: Mapping[str, Any]) -> None:
    """Raise limits of a search in its config, and continue a search that they have ended.

    The final evaluation of a search that had ended is kept in another folder, ``final_1``, ``final_2`` ...

    Args:
        config: the search's config, which is changed.
        raised: new values of settings in LIMITS.

    Raises:
        UserError: a limit is not higher than before, or the search ended for another reason; nothing was changed.
    """
    old = with_defaults(config.search)
    for key, value in raised.items():
        if old[key] is not None and not value > old[key]:
            raise UserError(f"--{key} {value}: the search has {old[key]}, which can only be raised")
    settings = OmegaConf.merge(old, raised)
    assert isinstance(settings, DictConfig)
    check_settings(settings)
    config.search = settings
    rounds = [round for round in map(folder.read_round, range(1, old.num_iters + 1)) if round is not None]
    ended = next((round for round in rounds if round.stopped), None)
    if ended is not None and not any(f"--{key} " in ended.stopped for key in raised):
        raise UserError(f"the search ended because {ended.stopped}: raise that limit")
    write_atomic(folder.config, OmegaConf.to_yaml(config))
    if folder.final.is_dir() and (ended is not None or "num_iters" in raised):
        count = len(list(folder.path.glob(f"{folder.final.name}_*")))
        folder.final.rename(folder.path / f"{folder.final.name}_{count + 1}")
    if ended is not None:
        _continue(folder, ended)


def _continue(folder: SearchFolder, ended: Round) -> None:
    """Let the search go on after its last round; a round without any candidate is proposed again."""
    if ended.ready or ended.failed:
        ended.stopped = ""
        folder.write_round(ended)
    else:
        (folder.round(ended.number) / "round.json").unlink()
