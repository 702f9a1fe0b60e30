"""Isaac Gym's ``gymapi``: ``acquire_gym()``, the parameter and property objects, and the constants."""

import sys
from typing import Any

from isaacgym_mujoco.api import params as _params
from isaacgym_mujoco.api.gym_assets import AssetMethods
from isaacgym_mujoco.api.gym_properties import PropertyMethods
from isaacgym_mujoco.api.gym_scene import SceneMethods
from isaacgym_mujoco.api.gym_states import BODY_STATE, DOF_STATE, StateMethods
from isaacgym_mujoco.api.gym_tensors import TensorMethods
from isaacgym_mujoco.api.gym_viewer import ViewerMethods
from isaacgym_mujoco.api.params import *  # noqa: F403
from isaacgym_mujoco.api.properties import (  # noqa: F401
    DOF_PROPERTIES,
    ActuatorProperties,
    Mat33,
    RigidBodyProperties,
    RigidShapeProperties,
    TendonProperties,
)
from isaacgym_mujoco.api.simulation import Env  # noqa: F401
from isaacgym_mujoco.api.simulation import Simulation as Sim  # noqa: F401
from isaacgym_mujoco.api.transforms import Quat, Transform, Vec3  # noqa: F401
from isaacgym_mujoco.assets.asset import Asset, AssetError  # noqa: F401

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
            raise NotImplementedError(f"gym.{name} is not supported by isaacgym_mujoco")

        return missing


_gym = Gym()


def acquire_gym(*args: Any) -> Gym:
    """Return the ``Gym``, of which there is one."""
    return _gym
