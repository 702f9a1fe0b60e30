"""The classes of Warp's structs, which launches do not compare with those of a kernel's parameters.

Reads ``StructInstance._cls``.

Why: a kernel reads a struct of another class as its own, and computes with numbers of other fields.

Upstream: no issue was found.
"""

from collections.abc import Sequence
from typing import Any


def check_structs(kernel: Any, arguments: Sequence[Any]) -> None:
    """Raise TypeError if an argument of a launch is a struct of another class than the kernel's parameter."""
    for parameter, value in zip(kernel.adj.args, arguments):
        struct = getattr(type(value), "_cls", None)
        if struct is not None and struct is not parameter.type:
            expected = getattr(parameter.type, "key", parameter.type)
            raise TypeError(f"{kernel.key}: {parameter.label} is a {expected}, not a {struct.key}")
