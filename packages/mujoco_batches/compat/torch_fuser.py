"""TorchScript's fuser for CUDA, switched off, and what it accepted.

Replaces ``torch.jit.script`` inside a block; calls ``torch._C._jit_override_can_fuse_on_gpu`` and
``torch._C._jit_pass_custom_pattern_based_rewrite_graph``.

Why: IsaacGymEnvs chooses TorchScript's old executor, whose fuser for CUDA aborts the process at its end. Fused kernels
took an integer condition of ``torch.where`` for ``condition != 0``; torch itself refuses it, then and now.

Upstream: no issue was found, and none is to be expected: TorchScript is deprecated since torch 2.11.
"""

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from mujoco_batches.compat import replaced, warn_once

_WHERE = """graph(%c, %a, %b):
  %r = aten::where(%c, %a, %b)
  return (%r)"""
_WHERE_BOOL = """graph(%c, %a, %b):
  %bool : int = prim::Constant[value=11]()
  %no : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %d : Tensor = aten::to(%c, %bool, %no, %no, %none)
  %r = aten::where(%d, %a, %b)
  return (%r)"""


def disable_cuda_fuser() -> None:
    """Keep TorchScript from fusing operators on CUDA, in this process."""
    import torch  # not at the top: listing the tasks' names must not import torch

    try:
        torch._C._jit_override_can_fuse_on_gpu(False)
    except AttributeError as error:
        warn_once("TorchScript", str(error), "a process that used a CUDA device may abort at its end")


def integer_conditions() -> AbstractContextManager[None]:
    """Let the functions that are scripted inside the block take integer conditions of ``torch.where``.

    A boolean condition is passed on as it is.
    """
    import torch

    return replaced(torch.jit, {"script": _scripting(torch.jit.script, torch._C)})


def _scripting(script: Callable[..., Any], torch_c: Any) -> Callable[..., Any]:
    @functools.wraps(script)
    def script_with_conditions(obj: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1  # where a class finds the names that it uses
        scripted = script(obj, *args, **kwargs)
        if not inspect.isfunction(obj):
            return scripted
        try:
            torch_c._jit_pass_custom_pattern_based_rewrite_graph(_WHERE, _WHERE_BOOL, scripted.graph)
        except (AttributeError, RuntimeError) as error:
            warn_once("TorchScript", str(error), "integer conditions of torch.where are refused")
        return scripted

    return script_with_conditions
