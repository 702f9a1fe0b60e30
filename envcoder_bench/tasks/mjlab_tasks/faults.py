"""What is wrong with a candidate's patch or term, and where in its dicts."""

from __future__ import annotations


class PatchError(ValueError):
    """A patch does not fit the config; ``section`` and ``key`` are where."""

    def __init__(self, section: str, key: str, message: str) -> None:
        super().__init__(message)
        self.section, self.key = section, key


def raised_in(section: str, key: str, error: Exception) -> PatchError:
    """Return the error for what a term of a candidate raised."""
    lines = str(error).splitlines() or [""]
    what = f"the term '{key}'" if key else f"one of its {section}"
    fault = PatchError(section.split(",")[0], key, f"{what} raised {type(error).__name__}: {lines[0]}")
    fault.__cause__ = error
    return fault
