"""MuJoCo Warp's models, flags and graphs, as both of its users need them."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields as declared
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco.batch import MODEL_FIELDS

from mujoco_batches.compat import mujoco_warp_contacts
from mujoco_batches.physics.batch import make_batch
from mujoco_batches.process import collection_paused

wp.config.log_level = wp.LOG_WARNING  # no banner, and no message for each module it loads

# Flags of a step that dropped contacts or constraint rows, or could not search for them. Other flags mean that an
# iteration reached its limit, which is normal, or belong to sensors, which are off.
_OVERFLOW = mjw.OverflowType
DROPPING = int(
    _OVERFLOW.NEFC
    | _OVERFLOW.NJMAX_NNZ
    | _OVERFLOW.BROADPHASE
    | _OVERFLOW.NARROWPHASE
    | _OVERFLOW.CCD
    | _OVERFLOW.HFIELD
    | _OVERFLOW.NVMAX
)


def put_model(host: mujoco.MjModel) -> mjw.Model:
    """Copy a model to Warp's device, without sensors: ``ContactForces`` sums up contacts instead."""
    host = copy.copy(host)
    # mujoco_warp has no automatic reset, and rejects a model that disables it
    host.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
    host.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
    model = mjw.put_model(host)
    model.opt.warn_overflow = 0  # overflows are counted; each would print a line
    # The solver always starts from the last step's acceleration, not from the one without constraints where that is
    # better: it takes as many iterations, and saves a factorization, 1 to 9 % of a step.
    model.opt.run_qacc_smooth = False
    if model.nhfield and mujoco_warp_contacts.is_as_expected():
        from mujoco_batches.physics.contacts.narrowphase import use_surface_contacts

        use_surface_contacts(model)
    return model


def vary_model(model: mjw.Model, host: mujoco.MjModel, fields: Mapping[str, np.ndarray]) -> None:
    """Give each world its own values of fields of a model, ``(nworld, ...)``, and of what MuJoCo derives from them.

    The fields become other arrays, which a graph that was captured before does not read.

    Args:
        host: the model from which ``put_model`` made ``model``.
    """
    # MuJoCo derives constants on the CPU, once for each distinct row
    rows = np.concatenate([x.reshape(len(x), -1) for x in fields.values()], axis=1)
    _, first, world = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    batch = make_batch(host, len(first))
    for name, x in fields.items():
        batch.expand(name)[...] = x[first]
    batch.set_const()
    by_world = {field.name for field in declared(model) if getattr(field.type, "shape", ())[:1] == ("*",)}
    for name in by_world.intersection(MODEL_FIELDS):
        values, old = batch.expanded(name), getattr(model, name)
        if values is not None and old.size:
            new = values[world.reshape(-1)].astype(np.float32)
            setattr(model, name, wp.array(new, dtype=old.dtype, device=old.device))


def captured(device: Any, launch: Callable[[], object]) -> Any | None:
    """Capture what a function launches on a device as a CUDA graph, without running it.

    Returns:
        The graph; None on the CPU, or without Warp's memory pool, because Warp then cannot allocate in a capture.
    """
    if not device.is_cuda or not wp.is_mempool_enabled(device):
        return None
    with collection_paused(), wp.ScopedCapture(device) as capture:
        launch()
    return capture.graph
