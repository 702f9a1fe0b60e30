"""Isaac Gym's ``gymapi``: ``acquire_gym()``, the parameter and property objects, and the constants."""

import sys
from typing import Any

from envcoder_bench.isaacgym.api import params as _params
from envcoder_bench.isaacgym.api.gym_assets import AssetMethods
from envcoder_bench.isaacgym.api.gym_properties import PropertyMethods
from envcoder_bench.isaacgym.api.gym_scene import SceneMethods
from envcoder_bench.isaacgym.api.gym_states import BODY_STATE, DOF_STATE, StateMethods
from envcoder_bench.isaacgym.api.gym_tensors import TensorMethods
from envcoder_bench.isaacgym.api.gym_viewer import ViewerMethods
from envcoder_bench.isaacgym.api.params import *  # noqa: F403
from envcoder_bench.isaacgym.api.properties import (  # noqa: F401
    DOF_PROPERTIES,
    ActuatorProperties,
    Mat33,
    RigidBodyProperties,
    RigidShapeProperties,
    TendonProperties,
)
from envcoder_bench.isaacgym.api.simulation import Env  # noqa: F401
from envcoder_bench.isaacgym.api.simulation import Simulation as Sim  # noqa: F401
from envcoder_bench.isaacgym.api.transforms import Quat, Transform, Vec3  # noqa: F401
from envcoder_bench.isaacgym.assets.asset import Asset, AssetError  # noqa: F401

DofProperties = DOF_PROPERTIES
DofState = DOF_STATE
RigidBodyState = BODY_STATE
KEY_NAMES = [f"KEY_{key}" for key in _params.KEYS]
for _number, _key in enumerate(KEY_NAMES):
    setattr(sys.modules[__name__], _key, _number)


class Gym(AssetMethods, SceneMethods, PropertyMethods, TensorMethods, StateMethods, ViewerMethods):
    """All methods; a method that is not supported raises ``NotImplementedError`` with its name when it is called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def missing(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"gym.{name} is not supported by envcoder_bench.isaacgym")

        return missing


_gym = Gym()


def acquire_gym(*args: Any) -> Gym:
    """Return the ``Gym``, of which there is one."""
    return _gym
