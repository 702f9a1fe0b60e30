"""Robots of mjlab."""

# mjlab is optional
# pyright: reportMissingImports=false

from pathlib import Path
from typing import Any

from mjlab.asset_zoo.robots import get_g1_robot_cfg
from mjlab.asset_zoo.robots.unitree_g1.g1_constants import G1_XML
from mjlab.entity import Entity


def unitree_g1() -> tuple[Any, Path]:
    """Return the specification of Unitree's G1 with mjlab's actuators and contacts, and the file of its bodies."""
    return Entity(get_g1_robot_cfg()).spec, G1_XML
