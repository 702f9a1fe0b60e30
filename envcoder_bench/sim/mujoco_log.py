"""MuJoCo's warnings without a counter of their own, collected instead of printed."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mujoco


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect the texts of the warnings that MuJoCo gives in this block, from any thread.

    MuJoCo would print each of them, and append it to MUJOCO_LOG.TXT in the working folder: a blow-up of one
    environment gives about twenty in a step. The handler is one for the process; the one before is back afterwards.
    """
    texts: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(texts.append)  # a single C call: threads cannot lose an entry
    try:
        yield texts
    finally:
        mujoco.set_mju_user_warning(before)
