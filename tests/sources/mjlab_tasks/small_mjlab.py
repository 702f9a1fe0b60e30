"""The few classes of mjlab that terms and patches need, where mjlab is not installed."""

import importlib.util
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


@dataclass
class TermCfg:
    func: Any
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class RewardTermCfg(TermCfg):
    weight: float


@dataclass
class TerminationTermCfg(TermCfg):
    time_out: bool = False


@dataclass
class ObservationTermCfg(TermCfg):
    history_length: int = 0


@dataclass(kw_only=True)
class EventTermCfg(TermCfg):
    mode: str


@dataclass(kw_only=True)
class CurriculumTermCfg(TermCfg):
    pass


@dataclass
class CommandTermCfg:
    resampling_time_range: tuple[float, float] = (1.0, 2.0)


@dataclass
class SceneEntityCfg:
    name: str
    joint_names: tuple[str, ...] | None = None

    def resolve(self, scene):
        scene[self.name]


class ManagerBasedRlEnv:
    pass


class TorchArray:
    pass


class WarpBridge:
    pass


class Actuator:
    pass


class DelayBuffer:
    pass


_MODULES = {
    "mjlab.actuator": [Actuator],
    "mjlab.envs": [ManagerBasedRlEnv],
    "mjlab.sim.sim_data": [TorchArray, WarpBridge],
    "mjlab.utils.buffers": [DelayBuffer],
    "mjlab.managers.scene_entity_config": [SceneEntityCfg],
    "mjlab.managers.reward_manager": [RewardTermCfg],
    "mjlab.managers.termination_manager": [TerminationTermCfg],
    "mjlab.managers.observation_manager": [ObservationTermCfg],
    "mjlab.managers.event_manager": [EventTermCfg],
    "mjlab.managers.curriculum_manager": [CurriculumTermCfg],
    "mjlab.managers.command_manager": [CommandTermCfg],
}


def install():
    """Make these classes importable as mjlab's, unless it is installed."""
    if importlib.util.find_spec("mjlab") is not None:
        return
    for name, members in _MODULES.items():
        parts = name.split(".")
        for k in range(1, len(parts) + 1):
            package = sys.modules.setdefault(".".join(parts[:k]), ModuleType(".".join(parts[:k])))
            package.__path__ = []
        vars(sys.modules[name]).update({member.__name__: member for member in members})
