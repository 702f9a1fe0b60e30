"""The environment of one candidate alone, outside of a run."""

from collections.abc import Sequence

from omegaconf import DictConfig

from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.torch_settings import ALONE, settings_kept
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.prepare.groups import Group, check_and_trace, make_context, make_group
from envcoder_bench.run.prepare.run_task import build_task
from envcoder_bench.run.prepare.slow import SlowFiles
from envcoder_bench.shaping.contract import CandidateError


def prepare_one(
    cfg: DictConfig,
    source: CandidateSource,
    seed: int,
    fitness: CandidateSource | None = None,
    baselines: Sequence[CandidateSource] = (),
) -> Group:
    """Load, check and trace one candidate or baseline.

    Args:
        cfg: a run's config; its seeds are not used.
        seed: the seed of the group.
        fitness: the file whose ``compute_fitness`` evaluations measure; None for the task's own fitness.
        baselines: a run's copies of the baselines; by default the task's own files.

    Raises:
        UserError: the candidate has a fault; the message has file, line and remedy.
    """
    cfg = cfg.copy()
    cfg.seed, cfg.seeds = seed, 1
    sources = [*(own for own in baselines if own.name != source.name), source]
    with ALONE, settings_kept(), user_input(), SlowFiles() as slow:
        context = make_context(cfg, sources, fitness, slow)
        try:
            shaping = check_and_trace(source, context, seed)
        except CandidateError as error:
            raise UserError(f"candidate {source.name} cannot be used: {error}") from error
        return make_group(source, shaping, context.unshaped, context.files, seed)


def build_env(cfg: DictConfig, groups: Sequence[Group], num_envs: int, evaluation: bool = False) -> GroupedVecTask:
    """Build the environment of groups, with ``num_envs`` environments each.

    Args:
        evaluation: use the functions of evaluations (initial states, goals and terminal of the unshaped task) instead
            of those of training.
    """
    layout = GroupLayout(len(groups), num_envs)
    shapings = [group.evaluation if evaluation else group.shaping for group in groups]
    with ALONE, user_input():
        return GroupedVecTask(build_task(cfg, layout.num_envs), layout, shapings, [group.seed for group in groups])
