"""The start of a session: what a wave needs on a device is allocated."""

from collections.abc import Callable
from typing import Any

import torch

from envcoder_bench.core.errors import user_input
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.report.logs import RunLogs
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.prepare.run_task import build_task
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.run.train.profile import RunProfile
from envcoder_bench.run.train.session import Session
from envcoder_bench.run.train.wave import Wave
from envcoder_bench.shaping.contract import Shaping
from envcoder_bench.trainers.base import Trainer
from envcoder_bench.trainers.registry import trainer_class


def make_trainer(cfg: RunConfig, env: GroupedVecTask, layout: GroupLayout | None = None) -> Trainer:
    """Create the trainer that the config's ``train.params`` specify for the groups of an environment.

    Args:
        layout: the layout of the environments to train in; None for that of ``env``.

    Raises:
        UserError: the config is invalid.
    """
    params = cfg.params
    params["config"]["max_epochs"] = cfg.learning_iterations
    with user_input():
        make = trainer_class(params)
        shared = (env.obs_dims, env.action_dims, env.group_seeds)
        return make(layout or env.layout, *shared, params, torch.device(cfg.device))


def open_session(
    cfg: RunConfig,
    wave: Wave,
    logs: RunLogs,
    on_evaluation: Callable[[Session], None],
    save: Callable[[dict[str, Any]], None],
    profile: RunProfile | None = None,
    reporter: Reporter | None = None,
    stop: StopRequest | None = None,
) -> Session:
    """Allocate what a wave needs on the config's device; arguments as of ``Session``."""

    def env(num_envs: int, shapings: list[Shaping]) -> GroupedVecTask:
        layout = GroupLayout(len(wave.groups), num_envs)
        return GroupedVecTask(build_task(cfg, layout.num_envs), layout, shapings, [group.seed for group in wave.groups])

    training = env(cfg.num_envs_per_candidate, [group.shaping for group in wave.groups])
    evaluation = env(cfg.evaluation.num_envs, [group.evaluation for group in wave.groups])
    trainer = make_trainer(cfg, training)
    return Session(cfg, wave, training, evaluation, trainer, logs, on_evaluation, save, profile, reporter, stop)
