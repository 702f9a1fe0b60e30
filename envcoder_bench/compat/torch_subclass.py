"""Subclasses of ``Tensor`` whose results are plain tensors.

Sets ``__torch_function__`` to ``torch._C._disabled_torch_function_impl``, as torch's documentation of subclasses does.

Why: by default each result of a subclass is one of that class, ``as_subclass(Tensor)`` included.

Upstream: the function is documented and has no public name.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T", bound="Marked")


class Marked(Tensor):
    """A tensor with additional data; results of operations with it are plain tensors."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]


def marked(cls: type[T], x: Tensor) -> T:
    """Return a tensor of the subclass ``cls`` with the elements of ``x``, in the same memory."""
    return x.as_subclass(cls)
