"""MuJoCo Warp's search for the contacts of convex shapes: other contacts for the pairs that a caller takes over.

Replaces ``collision_driver.convex_narrowphase``; uses ``contact_params`` and ``write_contact`` of ``collision_core``,
``math.make_frame`` and ``types``, with which a kernel reads a pair's parameters and adds a contact.

Why: MuJoCo Warp finds contacts with height fields by GJK and EPA on a prism under each triangle. On relief 0.5 to 3.5 %
of a foot's contacts are wrong by up to the height of the relief, and throw robots into the air. MuJoCo Warp has no
public hook between the broad phase and the contacts.

Upstream: google-deepmind/mujoco_warp pull request 928 improved these contacts, and 4.0.0 has it; no open issue about
what is still wrong was found. ``sim/contacts`` is unnecessary when its tests pass without it.
"""

# MuJoCo's bindings and Warp's functions carry no types
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import functools
from collections.abc import Callable
from typing import Any

import mujoco_warp as mjw

from mujoco_batches.compat import difference, warn_once

try:
    from mujoco_warp._src import collision_core, collision_driver
    from mujoco_warp._src import math as warp_math
    from mujoco_warp._src.types import GeomType, vec5
except ImportError:
    missing: Any = None
    collision_core = collision_driver = warp_math = GeomType = vec5 = missing

contact_params: Any = getattr(collision_core, "contact_params", None)
write_contact: Any = getattr(collision_core, "write_contact", None)
make_frame: Any = getattr(warp_math, "make_frame", None)

# launches contacts of its own, and returns the pairs of shapes that are left for MuJoCo Warp
Search = Callable[[mjw.Model, mjw.Data, Any, list], list]
_ARGUMENTS = ("m", "d", "ctx", "collision_table")
_PARAMS = (
    *("geom_condim", "geom_priority", "geom_solmix", "geom_solref", "geom_solimp", "geom_friction", "geom_margin"),
    *("geom_gap", "geom_adhesion", "pair_dim", "pair_solref", "pair_solreffriction", "pair_solimp", "pair_margin"),
    *("pair_gap", "pair_adhesion", "pair_friction", "collision_pair_in", "collision_pairid_in", "cid", "worldid"),
)
_WRITE = (
    *("naconmax_in", "id_", "dist_in", "pos_in", "frame_in", "margin_in", "gap_in", "condim_in", "friction_in"),
    *("solref_in", "solreffriction_in", "solimp_in", "adhesion_in", "geoms_in", "pairid_in", "worldid_in"),
)


@functools.cache
def is_as_expected() -> bool:
    """Return whether this MuJoCo Warp can be given other contacts; warn if it cannot."""
    reason = (
        difference(collision_driver, {"convex_narrowphase": _ARGUMENTS})
        or difference(collision_core, {"contact_params": _PARAMS, "write_contact": _WRITE})
        or difference(warp_math, {"make_frame": ("a",)})
    )
    if reason:
        consequence = "contacts with height fields are MuJoCo Warp's own, of which some are wrong; use mujoco-warp 4.0"
        warn_once("MuJoCo Warp's search for contacts", reason, consequence)
    return not reason


@functools.cache
def search_first(search: Search) -> None:
    """Let MuJoCo Warp call ``search`` before its own search from now on, which gets the pairs that it returns."""
    usual = collision_driver.convex_narrowphase

    def convex_narrowphase(m: mjw.Model, d: mjw.Data, ctx: Any, collision_table: list) -> None:
        usual(m, d, ctx, search(m, d, ctx, collision_table))

    collision_driver.convex_narrowphase = convex_narrowphase
