"""What to change in a candidate's function that raised, or returned what its contract does not allow."""

import contextlib
import inspect
import linecache
import re
from collections.abc import Callable, Collection, Mapping
from inspect import Parameter
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from envcoder_bench import torch_utils
from envcoder_bench.shaping.contract import CandidateFunction

Shape = tuple[int, ...]

_DEVICE = re.compile(
    "no NVIDIA driver|not compiled with CUDA|No CUDA GPUs|be on the same device|invalid device ordinal"
)
_COLUMN = re.compile(r"(\w+(?:\[['\"]\w+['\"]\])?)\[:, *(-?\d*) *: *(-?\d+)\]")  # dof_vel[:, 1:2]
_WIDENED = re.compile(r"\.unsqueeze\((?:-1|1)\)|\[:, *None\]|\[\.\.\., *None\]|keepdim=True|\.view\(-1, *1\)")
MOST_SHOWN = 3  # keys of the state, and numbers of a key, that explain a number that is not finite


def name_remedy(name: str, function: CandidateFunction | None, keys: Collection[str], is_misspelt: bool) -> str:
    """Return what to do about a name that is not defined; empty if it is like a known name."""
    if name in ("self", "cls"):
        return "candidates are functions, not methods: take what self would have from the state, by parameters"
    if name in ("state_dict", "state", "action", "actions", *keys):
        return f"make it a parameter: {'def f' if function is None else function.type}(..., {name})"
    if name == "F":
        return "add import torch.nn.functional as F"
    if hasattr(torch_utils, name):
        return f"add from isaacgym.torch_utils import {name}"
    return "" if is_misspelt else "define it in this file, which must be whole"


def device_remedy(message: str) -> str:
    """Return what to do about a tensor on a device that is not the run's."""
    return "make new tensors on the state's device: device=x.device" if _DEVICE.search(message) else ""


def branch_remedy(message: str) -> str:
    """Return what to do about a tensor whose value decides in Python."""
    if not re.search(r"Boolean value of Tensor|bool value of Tensor", message):
        return ""
    return (
        "each environment has a value of its own: write torch.where(condition, a, b) in place of if, and &, | and ~ in"
        " place of and, or and not"
    )


def numpy_remedy(error: BaseException, message: str, in_numpy: bool) -> str:
    """Return what to do about a function of NumPy that was called with a tensor."""
    is_about = isinstance(error, TypeError) and "numpy" in message
    return "use torch's functions for tensors, as torch.sum(x, dim=1)" if in_numpy or is_about else ""


def argument_remedy(error: BaseException, function: CandidateFunction) -> str:
    """Return what to change if a function without named parameters did not find its arguments."""
    kinds = {parameter.kind for parameter in function.parameters}
    unnamed = kinds and kinds <= {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
    if not unnamed or not isinstance(error, (TypeError, IndexError)):
        return ""
    return (
        "*args is empty and **kwargs has every key of the state: name the parameters, and decorate a function that"
        " wraps another with functools.wraps"
    )


def column_remedy(got: Shape, want: Shape, function: CandidateFunction) -> str:
    """Return what to change in a function whose result ``(n,)`` has a second axis, by the text of the function."""
    if len(want) != 1 or len(got) != 2 or got[0] != want[0] or got[1] not in (1, got[0]):
        return ""
    text = source_of(function)
    slices = [(x, a, int(a or 0), int(b)) for x, a, b in _COLUMN.findall(text)]
    columns = {f"{x}[:, {a}:{b}]": f"{x}[:, {first}]" for x, a, first, b in slices if b == first + 1}
    widened = list(dict.fromkeys(_WIDENED.findall(text)))
    fixes = [f"write {', '.join(columns.values())} in place of {', '.join(columns)}"] if columns else []
    fixes += [f"leave out {', '.join(widened)}"] if widened else []
    if got[1] == 1:
        return " and ".join(fixes) or "take the column out of each part that is (n, 1), as x[:, 0]"
    if fixes:
        return f"an (n,) and an (n, 1) were broadcast to (n, n): {' and '.join(fixes)}"
    # as many columns as environments, by a broadcast or by chance
    return "reduce the last axis, e.g. with .sum(dim=-1), unless an (n,) and an (n, 1) were broadcast: make both (n,)"


def source_of(function: CandidateFunction) -> str:
    """Return the text of a function, as it was loaded; empty if there is none."""
    code = getattr(inspect.unwrap(function.call), "__code__", None)
    lines = linecache.getlines(function.file)
    if code is None or not lines:
        return ""
    last = max((line for _, _, line in code.co_lines() if line is not None), default=function.line)
    return "".join(lines[function.line - 1 : last])


# where a number that is not finite comes from


class _FirstNotFinite(TorchFunctionMode):
    """Notes the first operation that makes NaN or infinity of finite numbers.

    Attributes:
        found: in words, the operation, one of its arguments, and its line; empty if there is none.
        row: the first environment for which it is.
    """

    def __init__(self, file: str, num_envs: int) -> None:
        super().__init__()
        self._file, self._num_envs = file, num_envs
        self.found, self.row = "", 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.found or not isinstance(result, Tensor) or not result.is_floating_point():
            return result
        bad = ~torch.isfinite(result)
        inputs = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, Tensor) and x.is_floating_point()]
        if bad.any() and all(bool(torch.isfinite(x).all()) for x in inputs):
            self._note(func, result, bad, inputs)
        return result

    def _note(self, func: Any, result: Tensor, bad: Tensor, inputs: list[Tensor]) -> None:
        index = tuple(bad.nonzero()[0].tolist())
        self.row = index[0] if index and result.shape[0] == self._num_envs else 0
        same = [x for x in inputs if x.shape == result.shape]
        of = f" of {', '.join(f'{float(x[index]):.3g}' for x in same)}" if same else ""
        name = getattr(func, "__name__", "an operation").strip("_")
        name = "division" if name.endswith("div") else name
        self.found = f"{name}{of}{_at_line(self._file)} is {float(result[index]):.3g}"


def _at_line(file: str) -> str:
    """Return the line of a file that is being executed, in words."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return "" if frame is None else f" in line {frame.f_lineno}"


def not_finite_remedy(call: Callable[[], object], function: CandidateFunction, state: Mapping[str, Tensor]) -> str:
    """Return which operation of a function first gives a number that is not finite, and for which state.

    Args:
        call: calls the function on ``state``.
    """
    num_envs = max((x.shape[0] for x in state.values() if x.dim()), default=0)
    mode = _FirstNotFinite(function.file, num_envs)
    with mode, contextlib.suppress(Exception):  # it may raise at its second call
        call()
    if not mode.found:
        return ""
    words = set(re.findall(r"\w+", source_of(function)))
    read = {
        key: x[mode.row].flatten().tolist()
        for key, x in state.items()
        if key in words and x.dim() and len(x) == num_envs
    }
    short = [(key, row) for key, row in read.items() if 0 < len(row) <= MOST_SHOWN][:MOST_SHOWN]
    values = ", ".join(f"{key} is {' '.join(f'{x:.3g}' for x in row)}" for key, row in short)
    return f"{mode.found}{f' where {values}' if values else ''}: guard it, as with torch.clamp"
