"""How mjlab writes its configs, and what its managers keep."""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from envcoder_bench.sources.term_tasks.dialect import Dialect


class MjlabDialect(Dialect):
    """mjlab's words: configs are dataclasses, and each section is a dict of them."""

    name = package = "mjlab"
    of_one_environment, commands_of_the_step = ("terrain_levels_vel",), ("commands_vel",)
    terms_of_the_step = ("reward_curriculum", "termination_curriculum", "reward_weight")

    @property
    def keeps_timers(self) -> bool:  # type: ignore[override]
        from mjlab.managers.command_manager import CommandTerm

        # before mjlab 1.6 the timers of all environments go on
        return "env_ids" in inspect.signature(CommandTerm.compute).parameters

    # configs

    def is_term(self, section: str, value: Any) -> bool:
        return isinstance(value, _config_class(section))

    def new_term(self, section: str, values: Mapping[str, Any]) -> Any:
        return _config_class(section)(**values)

    def kind(self, section: str) -> str:
        return _config_class(section).__name__

    def resolve(self, value: Any, scene: Any) -> None:
        from mjlab.managers.scene_entity_config import SceneEntityCfg

        if isinstance(value, SceneEntityCfg):
            value.resolve(scene)

    def step_dt(self, cfg: Any) -> float:
        return cfg.decimation * cfg.sim.mujoco.timestep

    def reward_scale(self, cfg: Any, step_dt: float) -> float:
        return step_dt if cfg.scale_rewards_by_dt else 1.0

    def root_velocities(self, env: Any, term: Any) -> tuple[Tensor, Tensor]:
        data = env.scene[term.cfg.entity_name].data
        return data.root_link_lin_vel_b, data.root_link_ang_vel_b

    # managers

    def event_manager(self, cfg: Any, env: Any) -> Any:
        from mjlab.managers.event_manager import EventManager

        return EventManager(cfg.events, env)

    def command_manager(self, cfg: Any, env: Any) -> Any:
        from mjlab.managers.command_manager import CommandManager, NullCommandManager

        return CommandManager(cfg.commands, env) if cfg.commands else NullCommandManager()

    def observation_manager(self, cfg: Any, env: Any) -> Any:
        from mjlab.managers.observation_manager import ObservationManager

        return ObservationManager(cfg.observations, env)

    def curriculum_manager(self, cfg: Any, env: Any) -> Any:
        from mjlab.managers.curriculum_manager import CurriculumManager, NullCurriculumManager

        return CurriculumManager(cfg.curriculum, env) if cfg.curriculum else NullCurriculumManager()

    def metrics_manager(self, cfg: Any, env: Any) -> Any:
        from mjlab.managers.metrics_manager import MetricsManager, NullMetricsManager

        return MetricsManager(cfg.metrics, env) if cfg.metrics else NullMetricsManager()

    # what managers keep

    def event_terms(self, manager: Any) -> Iterable[tuple[str, Any]]:
        live = {id(term) for terms in manager._mode_term_cfgs.values() for term in terms}
        return [(name, term) for name, term in manager.cfg.items() if id(term) in live]

    def command_terms(self, manager: Any) -> Iterable[tuple[str, Any]]:
        return getattr(manager, "_terms", {}).items()

    def observation_terms(self, manager: Any) -> Mapping[str, Iterable[tuple[str, Any]]]:
        cfgs = manager._group_obs_term_cfgs
        return {group: list(zip(names, cfgs[group])) for group, names in manager._group_obs_term_names.items()}

    def observation_dims(self, manager: Any) -> Mapping[str, Any]:
        return manager.group_obs_dim

    def observation_widths(self, manager: Any) -> Mapping[str, Mapping[str, int]]:
        widths = {}
        for group, names in manager.active_terms.items():
            dims = [dim[0] if isinstance(dim, tuple) else dim for dim in manager.group_obs_term_dim[group]]
            widths[group] = dict(zip(names, dims))
        return widths

    def observe(self, manager: Any, group: str) -> Tensor:
        return manager.compute_group(group, True)

    def curriculum_terms(self, manager: Any) -> Iterable[tuple[str, Any]]:
        return zip(manager.active_terms, getattr(manager, "_term_cfgs", ()))

    def kept_terms(self, manager: Any) -> Iterable[Any]:
        return getattr(manager, "_class_term_cfgs", ())


def _config_class(section: str) -> Any:
    from mjlab.managers.command_manager import CommandTermCfg
    from mjlab.managers.curriculum_manager import CurriculumTermCfg
    from mjlab.managers.event_manager import EventTermCfg
    from mjlab.managers.observation_manager import ObservationTermCfg
    from mjlab.managers.reward_manager import RewardTermCfg
    from mjlab.managers.termination_manager import TerminationTermCfg

    return {
        "rewards": RewardTermCfg,
        "observations": ObservationTermCfg,
        "terminations": TerminationTermCfg,
        "commands": CommandTermCfg,
        "events": EventTermCfg,
        "curriculum": CurriculumTermCfg,
    }[section]
