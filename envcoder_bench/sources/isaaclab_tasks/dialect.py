"""How Isaac Lab writes its configs, and what its managers keep."""

# Isaac Lab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from envcoder_bench.sources.isaaclab_tasks.draws import SharedDraws
from envcoder_bench.sources.term_tasks.dialect import Dialect


class Terms(dict[str, Any]):
    """The terms of a section by name, which are also attributes, as code reads them in Isaac Lab's configs."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"unknown term '{name}'; there are {', '.join(self)}")


class IsaacLabDialect(Dialect):
    """Isaac Lab's words: configs are classes, whose sections ``Source.env_cfg`` makes dicts.

    A group of observations has terms and attributes side by side.
    """

    name, package = "Isaac Lab", "isaaclab"
    of_one_environment, branches = ("terrain_levels_vel",), False
    terms_of_the_step = ("modify_reward_weight", "modify_env_param", "modify_term_cfg")

    # configs

    def with_terms(self, cfg: Any, section: str, terms: Mapping[str, Any]) -> Any:
        return self.with_values(cfg, {section: Terms(terms)})

    def group_terms(self, group: Any) -> Mapping[str, Any]:
        return {name: x for name, x in vars(group).items() if self.is_term("observations", x)}

    def with_group_terms(self, group: Any, terms: Mapping[str, Any]) -> Any:
        changed = self.with_values(group, {})
        for name in self.group_terms(group):
            delattr(changed, name)
        for name, term in terms.items():
            self.put(changed, name, term)
        return changed

    def is_term(self, section: str, value: Any) -> bool:
        return isinstance(value, _config_class(section))

    def new_term(self, section: str, values: Mapping[str, Any]) -> Any:
        return _config_class(section)(**values)

    def kind(self, section: str) -> str:
        return _config_class(section).__name__

    def resolve(self, value: Any, scene: Any) -> None:
        from isaaclab.managers import SceneEntityCfg

        if isinstance(value, SceneEntityCfg):
            value.resolve(scene)

    def reward_scale(self, cfg: Any, step_dt: float) -> float:
        return step_dt

    def root_velocities(self, env: Any, term: Any) -> tuple[Tensor, Tensor]:
        data = env.scene[term.cfg.asset_name].data
        return data.root_lin_vel_b, data.root_ang_vel_b

    # managers

    def event_manager(self, cfg: Any, env: Any) -> Any:
        from isaaclab.managers import EventManager

        with SharedDraws("events"):  # such as materials, of which each environment draws one
            return EventManager(cfg.events, env)

    def command_manager(self, cfg: Any, env: Any) -> Any:
        from isaaclab.managers import CommandManager

        return CommandManager(cfg.commands, env)

    def observation_manager(self, cfg: Any, env: Any) -> Any:
        from isaaclab.managers import ObservationManager

        return ObservationManager(cfg.observations, env)

    def curriculum_manager(self, cfg: Any, env: Any) -> Any:
        from isaaclab.managers import CurriculumManager

        return CurriculumManager(cfg.curriculum, env)

    def metrics_manager(self, cfg: Any, env: Any) -> Any:
        return SimpleNamespace(compute=lambda: None)

    # what managers keep

    def event_terms(self, manager: Any) -> Iterable[tuple[str, Any]]:
        names, cfgs = manager._mode_term_names, manager._mode_term_cfgs
        return [pair for mode in names for pair in zip(names[mode], cfgs[mode])]

    def command_terms(self, manager: Any) -> Iterable[tuple[str, Any]]:
        return manager._terms.items()

    def observation_terms(self, manager: Any) -> Mapping[str, Iterable[tuple[str, Any]]]:
        cfgs = manager._group_obs_term_cfgs
        return {group: list(zip(names, cfgs[group])) for group, names in manager.active_terms.items()}

    def observation_dims(self, manager: Any) -> Mapping[str, Any]:
        return manager.group_obs_dim

    def observation_widths(self, manager: Any) -> Mapping[str, Mapping[str, int]]:
        dims = manager.group_obs_term_dim
        return {
            group: {name: dim[-1] for name, dim in zip(names, dims[group])}
            for group, names in manager.active_terms.items()
        }

    def observe(self, manager: Any, group: str) -> Tensor:
        return manager.compute_group(group, update_history=True)

    def curriculum_terms(self, manager: Any) -> Iterable[tuple[str, Any]]:
        return zip(manager.active_terms, getattr(manager, "_term_cfgs", ()))

    def kept_terms(self, manager: Any) -> Iterable[Any]:
        return getattr(manager, "_class_term_cfgs", ())


def _config_class(section: str) -> Any:
    from isaaclab import managers

    return {
        "rewards": managers.RewardTermCfg,
        "observations": managers.ObservationTermCfg,
        "terminations": managers.TerminationTermCfg,
        "commands": managers.CommandTermCfg,
        "events": managers.EventTermCfg,
        "curriculum": managers.CurriculumTermCfg,
    }[section]
