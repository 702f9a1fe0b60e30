"""Run a script that names CUDA devices on the CPU: ``--device cpu`` of the runner, or ``ISAACGYM_DEVICE=cpu``."""

import functools
import inspect
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from mujoco_batches.compat import replaced

VARIABLE = "ISAACGYM_DEVICE"
NO_CUDA = ("Torch not compiled with CUDA", "Found no NVIDIA driver", "No CUDA GPUs are available")
_log = logging.getLogger("mujoco_batches.isaacgym")
_logged: list[bool] = []


class NoCudaDevice(RuntimeError):
    """A simulation was asked for on a CUDA device that is not there."""


def on_cpu() -> bool:
    """Return whether CUDA devices and the GPU pipeline are to be mapped to the CPU; log it once."""
    if os.environ.get(VARIABLE, "") != "cpu":
        return False
    if not _logged:
        _logged.append(True)
        _log.warning("isaacgym: CUDA devices and the GPU pipeline of the script are mapped to the CPU")
    return True


_generator = torch.Generator


class _OfGenerator(type(torch.Generator)):
    """The class of ``_Generator``, whose instances are all of torch's generators."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _generator) if cls is _Generator else super().__instancecheck__(instance)


class _Generator(torch.Generator, metaclass=_OfGenerator):
    """``torch.Generator``, on the CPU where a CUDA device is named."""

    def __new__(cls, device: Any = "cpu") -> Any:
        real_class = _generator if cls is _Generator else cls
        return _generator.__new__(real_class, _mapped(device))  # type: ignore[call-arg]


def remedy(error: BaseException, how: str = f"set {VARIABLE}=cpu, which maps CUDA devices to the CPU") -> str:
    """Return the end of a message: ``how`` to run without CUDA, if the error says that CUDA is missing; else empty."""
    if not str(error).startswith(NO_CUDA):
        return ""
    return f"; {VARIABLE}=cpu maps torch's functions, but not this call" if on_cpu() else f"; {how}"


class OnCpu(TorchFunctionMode):
    """A mode in which torch's functions take the CPU where they are given a CUDA device.

    Arguments of functions of TorchScript are mapped, too; the mode does not reach into them. A choice of a device, and
    waiting for it, do nothing.
    """

    def __enter__(self) -> TorchFunctionMode:
        self._stack = ExitStack()
        new = {"script": _with_mapped_arguments(torch.jit.script)}
        nothing = {name: lambda device=None: None for name in ("set_device", "synchronize")}  # Dynamo wants two objects
        for owner, values in ((torch, {"Generator": _Generator}), (torch.jit, new), (torch.cuda, nothing)):
            self._stack.enter_context(replaced(owner, values))
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        self._stack.close()
        return super().__exit__(*error)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        args = [_mapped(x) for x in args]
        return func(*args, **{name: _mapped(x) for name, x in (kwargs or {}).items()})


def _with_mapped_arguments(script: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``torch.jit.script`` whose functions map their arguments."""

    @functools.wraps(script)
    def mapping_script(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if hasattr(obj, "scripted"):  # torch compiles a function that calls this one
            return obj.scripted
        scripted = script(obj, *args, **kwargs)
        if not inspect.isfunction(obj) or args or kwargs:  # torch itself compiles a function given with more arguments
            return scripted

        @functools.wraps(obj)
        def mapped(*args: Any, **kwargs: Any) -> Any:
            return scripted(*map(_mapped, args), **{name: _mapped(x) for name, x in kwargs.items()})

        mapped.scripted = scripted  # type: ignore[attr-defined]
        return mapped

    return mapping_script


def _mapped(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and value.startswith("cuda") else value
