"""MuJoCo's batch on the CPU, as both of its users need it: contacts, failed simulations, warnings, largest commands."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from mujoco_batches.compat import mujoco_height_fields
from mujoco_batches.compat.mujoco_timers import stop_timers
from mujoco_batches.process import usable_cpus

MAX_COMMAND = 1e10  # MuJoCo drops all commands of a simulation if one is larger
# the two counted warnings that contacts or constraint rows were dropped for lack of memory; they are adjacent
_FULL = slice(int(mujoco.mjtWarning.mjWARN_CONTACTFULL), int(mujoco.mjtWarning.mjWARN_CNSTRFULL) + 1)


def make_batch(model: mujoco.MjModel, num_envs: int, num_threads: int | None = None) -> Batch:
    """Return simulations of a model, on as many threads as there are usable cores unless another number is given.

    A model of one kinematic tree has at most one island of constraints, which MuJoCo need not look for.

    MuJoCo 4.0.0 factors the Newton solver's sparse Hessian wrongly (its issue 3767, fixed in 4.0.1), and uses the
    sparse one by default from 60 degrees of freedom on.
    """
    model = copy.copy(model)
    if model.ntree == 1:
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
    if mujoco.__version__ == "4.0.0" and mujoco.mj_isSparse(model):
        model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    if model.nhfield:
        mujoco_height_fields.install()
    stop_timers()
    batch = Batch(model, num_envs, num_threads or usable_cpus())
    batch.warning[:, :, 1] = 1  # MuJoCo prints a counted warning where its count was 0
    return batch


def step_batch(batch: Batch, nstep: int = 1) -> np.ndarray:
    """Advance all simulations by ``nstep`` physics steps; return the ids of those that failed."""
    try:
        batch.step(nstep=nstep)
    except SimulationError as error:  # the others ran to completion
        return np.asarray(error.ids, dtype=np.int64)
    return np.zeros(0, dtype=np.int64)


def take_overflows(batch: Batch) -> np.ndarray:
    """Return which simulations dropped contacts or constraint rows since the last call: ``(num_envs,)`` bool."""
    counts = batch.warning[:, _FULL, 1]
    if (counts == 1).all():
        return np.zeros(len(counts), dtype=bool)
    dropped = (counts > 1).any(axis=1)
    counts[...] = 1  # as in make_batch
    return dropped


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect the texts of MuJoCo's warnings in this block, from any thread.

    MuJoCo would print each of them and append it to MUJOCO_LOG.TXT in the working folder; one unstable environment
    gives about twenty per step. The handler belongs to the process; the previous one is restored afterwards.
    """
    texts: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(texts.append)  # a single C call: threads cannot lose an entry
    try:
        yield texts
    finally:
        mujoco.set_mju_user_warning(before)
