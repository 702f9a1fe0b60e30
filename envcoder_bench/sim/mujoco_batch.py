"""Collection of MuJoCo's warnings that have no counter, instead of printing them."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator
from contextlib import contextmanager

import mujoco


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
