"""Hide what a framework prints while it is imported or built."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from io import StringIO


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide output, warnings, and messages of MuJoCo and Warp inside the block."""
    from mujoco_batches.physics.batch import collected

    out, err = contextlib.redirect_stdout(StringIO()), contextlib.redirect_stderr(StringIO())
    with out, err, warnings.catch_warnings(), collected():
        warnings.simplefilter("ignore")
        yield
