"""What is wrong with a candidate's patch or term, and where in its dicts."""

from __future__ import annotations

import traceback

from torch import Tensor

FAULTS = (Exception, SystemExit)  # what a candidate's functions may raise


class PatchError(ValueError):
    """A patch does not fit the config; ``section`` and ``key`` are where, and ``line`` that of a term's function."""

    line: int | None = None

    def __init__(self, section: str, key: str, message: str) -> None:
        super().__init__(message)
        self.section, self.key = section, key


def raised_in(section: str, key: str, error: BaseException, how: str = "") -> PatchError:
    """Return the error for what a term of a candidate raised, and ``how``."""
    message = " ".join(str(error).split())[:300]
    if not message and error.__traceback__ is not None:  # an assertion
        last = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{last.line} ({last.filename}:{last.lineno})"
    what = f"the term '{key}'" if key else f"one of its {section}"
    fault = PatchError(section.split(",")[0], key, f"{what}{how} raised {type(error).__name__}: {message}")
    fault.__cause__ = error
    return fault


def misshapen(section: str, key: str, value: object, num_envs: int, shape: str) -> PatchError:
    """Return the error for what a term returned."""
    returned = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    return PatchError(
        section, key, f"the term '{key}' returns {returned}; for {num_envs} environments it must be {shape}"
    )
