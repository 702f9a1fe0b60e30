"""What a run has not trained yet: its groups, and the waves in which they train."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from omegaconf import DictConfig

from envcoder_bench.core.errors import UserError
from envcoder_bench.run.folder import results
from envcoder_bench.run.folder.checkpoint import Checkpoint
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.prepare.plan import Plan
from envcoder_bench.run.seeds import Load, run_seeds, settle_seeds
from envcoder_bench.run.workers.head import Head
from envcoder_bench.run.workers.start import check
from envcoder_bench.shaping.contract import none_asked
from envcoder_bench.tasks.base import BASELINES
from envcoder_bench.trainers.base import Widths

log = logging.getLogger(__name__)


def plan_remaining(
    cfg: DictConfig,
    sources: list[CandidateSource],
    saved: Checkpoint,
    head: Head,
    shared_total: bool = False,
) -> Plan:
    """Load the candidates that are not done, and plan their waves: interrupted ones unchanged, the others anew.

    Candidates that cannot be evaluated are added to the saved results. ``seeds=auto`` of ``cfg`` is replaced by a
    number; ``shared_total`` is as of ``settle_seeds``.
    """
    done, planner = saved.done, head.planner
    devices = len(head.workers)
    seeds_line = ""

    def settle(widths: Mapping[str, Widths]) -> None:
        nonlocal seeds_line

        def load(count: int) -> Load:
            return planner.load(widths, count, devices)

        seeds_line = settle_seeds(cfg, load, devices, planner.multiprocessors, shared_total)
        planner.expect_seeds(cfg.seeds)

    left = [s for s in sources if s.name in BASELINES or any((s.name, seed) not in done for seed in run_seeds(cfg))]
    groups, failed = check(head, cfg, left, settle)
    skipped = [name for name, error in failed.items() if none_asked(error)]
    names = {source.name for source in sources if source.name not in BASELINES}
    if skipped and names <= set(skipped):
        raise UserError(f"there is nothing to evaluate: {failed[skipped[0]]}" + _and_others(len(skipped)))
    if skipped:
        asked = ", ".join(cfg.shaper_types)
        log.warning("skipped, because they define none of %s: %s", asked, ", ".join(skipped))
    for name, error in failed.items():
        if name not in skipped:
            log.warning("candidate %s cannot be evaluated: %s", name, error)
    saved.results += [row for row in results.not_trained(cfg, failed) if (row.candidate, row.seed) not in done]
    if set(failed) - set(BASELINES) - set(skipped) and all(group.name in BASELINES for group in groups):
        groups = []  # there is nothing to rank
    by_key = {(group.name, group.seed): group for group in groups}
    waves_begun = [[key for key in wave if key not in done] for wave in saved.waves_begun]
    interrupted = [[by_key[key] for key in wave if key in by_key] for wave in waves_begun]
    if sum(map(len, interrupted)) < sum(map(len, waves_begun)):
        lost = sorted({name for wave in waves_begun for name, _ in wave} & set(failed))
        raise UserError(f"the run cannot be resumed: {', '.join(lost)} can no longer be loaded, see above")
    begun = done.union(*saved.waves_begun)
    plan = planner.plan([group for key, group in by_key.items() if key not in begun], interrupted, devices)
    return replace(plan, seeds=seeds_line)


def _and_others(count: int) -> str:
    return "" if count == 1 else f"; and {count - 1} more candidate{'s' if count > 2 else ''} of the same kind"
