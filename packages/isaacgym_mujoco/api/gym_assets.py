"""Methods of ``gym`` for assets."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from isaacgym_mujoco.api.simulation import Simulation, copied
from mujoco_batches.assets import asset as assets
from mujoco_batches.assets.asset import Asset
from mujoco_batches.scene.params import (
    AssetOptions,
    DofType,
    ForceSensorPlace,
    ForceSensorProperties,
    tell_ignored,
)
from mujoco_batches.scene.properties import RigidShapeProperties, TendonProperties
from mujoco_batches.scene.transforms import Transform


def find(names: list[str], name: str) -> int:
    """Return the index of a name, or -1."""
    return names.index(name) if name in names else -1


def tell_unused_shape_properties(properties: list[RigidShapeProperties]) -> None:
    """Log properties of shapes that a task changed and that have no effect, once per process."""
    default = vars(RigidShapeProperties())
    names = ("rolling_friction", "torsion_friction", "restitution", "compliance", "thickness")
    tell_ignored("RigidShapeProperties", [n for n in names if any(vars(p)[n] != default[n] for p in properties)])


def tell_unused_tendon_properties(new: list[TendonProperties], old: list[TendonProperties]) -> None:
    """Log properties of tendons that a task changed and that have no effect, once per process."""
    names = ("limit_stiffness", "fixed_spring_rest_length", "lower_limit", "upper_limit")
    changed = [n for n in names if any(vars(a)[n] != vars(b)[n] for a, b in zip(new, old))]
    tell_ignored("TendonProperties", changed)


class AssetMethods:
    """Methods that load assets and return their parts."""

    def load_asset(self, sim: Simulation, rootpath: str, filename: str, options: AssetOptions | None = None) -> Asset:
        """Load a URDF or MJCF file; raises ``AssetError`` if it is missing or invalid."""
        return assets.load(rootpath, filename, options)

    def create_box(
        self, sim: Simulation, width: float, height: float, depth: float, options: AssetOptions | None = None
    ) -> Asset:
        """Return a box with sides along x, y, z; a side of 0 becomes 0.1 mm, because MuJoCo has no flat boxes."""
        return assets.primitive("box", [0.5 * max(side, 1e-4) for side in (width, height, depth)], options)

    def create_sphere(self, sim: Simulation, radius: float, options: AssetOptions | None = None) -> Asset:
        """Return a ball."""
        return assets.primitive("sphere", [radius, 0.0, 0.0], options)

    def get_asset_dof_type(self, asset: Asset, index: int) -> DofType:
        return DofType.DOF_TRANSLATION if asset.slides[index] else DofType.DOF_ROTATION

    def get_dof_type_string(self, kind: DofType) -> str:
        return {DofType.DOF_ROTATION: "Rotation", DofType.DOF_TRANSLATION: "Translation"}.get(kind, "Invalid")

    def get_asset_dof_properties(self, asset: Asset) -> np.ndarray:
        return asset.dof_properties.copy()

    def set_asset_rigid_shape_properties(self, asset: Asset, properties: list[RigidShapeProperties]) -> bool:
        """Set friction and filter of the asset's shapes, for actors created later; other properties have no effect."""
        tell_unused_shape_properties(properties)
        asset.shapes = copied(properties)
        return True

    def get_asset_actuator_joint_name(self, asset: Asset, index: int) -> str:
        return asset.actuator_joints[index]

    def set_asset_tendon_properties(self, asset: Asset, properties: list[TendonProperties]) -> bool:
        """Set the tendons' damping and stiffness; the stiffness of their limits stays MuJoCo's."""
        tell_unused_tendon_properties(properties, asset.tendons)
        asset.tendons = copied(properties)
        return True

    def create_asset_force_sensor(
        self, asset: Asset, body: int, pose: Transform, properties: ForceSensorProperties | None = None
    ) -> int:
        """Add a sensor of the force and torque on a body, for actors created later."""
        if not 0 <= body < len(asset.body_names):
            raise IndexError(f"create_asset_force_sensor: {asset.name} has {len(asset.body_names)} bodies, no {body}")
        asset.sensors.append(ForceSensorPlace(*copy.deepcopy((body, pose, properties or ForceSensorProperties()))))
        return len(asset.sensors) - 1


_COUNTED = {
    **{"dof": "dof_names", "joint": "joint_names", "rigid_body": "body_names", "rigid_shape": "shapes"},
    **{"actuator": "actuators", "tendon": "tendons"},
}
_NAMED = {"dof": "dof_names", "joint": "joint_names", "rigid_body": "body_names", "tendon": "tendon_names"}
_WITH_PROPERTIES = {"rigid_shape": "shapes", "actuator": "actuators", "tendon": "tendons"}


def add_getters(methods: type, owner: str, parts: Callable[..., list]) -> None:
    """Add the methods that return the parts of an asset or actor, such as ``get_asset_dof_count``.

    These are ``get_<owner>_<part>_`` with ``count``, ``names``, ``name``, ``dict``, ``properties`` and ``indices``,
    unless the class has a method of that name.

    Args:
        owner: ``asset`` or ``actor``.
        parts: returns a list by its attribute and a method's first arguments.
    """

    def count(attribute: str, *args: Any) -> int:
        return len(parts(attribute, *args))

    def names(attribute: str, *args: Any) -> list[str]:
        return list(parts(attribute, *args))

    def name(attribute: str, *args: Any) -> str:
        return parts(attribute, *args[:-1])[args[-1]]

    def numbers(attribute: str, *args: Any) -> dict[str, int]:
        return {name: k for k, name in enumerate(parts(attribute, *args))}

    def properties(attribute: str, *args: Any) -> list[Any]:
        return copied(parts(attribute, *args))

    kinds = {"count": (count, _COUNTED), "properties": (properties, _WITH_PROPERTIES)}
    kinds.update({"names": (names, _NAMED), "name": (name, _NAMED), "dict": (numbers, _NAMED)})
    kinds["indices"] = (properties, {"rigid_body_shape": "shape_ranges"})
    for kind, (function, attributes) in kinds.items():
        for part, attribute in attributes.items():
            add_method(methods, f"get_{owner}_{part}_{kind}", function, attribute)


def add_method(methods: type, name: str, function: Callable[..., Any], attribute: str) -> None:
    """Add a method that calls ``function`` with an attribute's name, unless the class has a method of that name."""

    def method(self: Any, *args: Any) -> Any:
        return function(attribute, *args)

    method.__name__ = name
    if name not in vars(methods):
        setattr(methods, name, method)


def _find(attribute: str, asset: Asset, name: str) -> int:
    return find(getattr(asset, attribute), name)


add_getters(AssetMethods, "asset", lambda attribute, asset: getattr(asset, attribute))
for _part in ("dof", "joint", "rigid_body"):
    add_method(AssetMethods, f"find_asset_{_part}_index", _find, _NAMED[_part])
