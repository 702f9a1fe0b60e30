"""Support for task code of 2021 to 2023: ``gym``, names removed from numpy, TorchScript, placeholders for modules."""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property, partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pickle import UnpicklingError
from types import ModuleType
from typing import Any

import numpy as np
import torch

from isaacgym_mujoco.import_hook import Redirect
from isaacgym_mujoco.on_cpu import OnCpu, on_cpu
from mujoco_batches.compat import replaced
from mujoco_batches.compat.torch_fuser import integer_conditions

NUMPY_NAMES = {
    "Inf": np.inf,
    "NaN": np.nan,
    "PINF": np.inf,
    "NINF": -np.inf,
    "float": float,
    "int": int,
    "bool": bool,
    "object": object,
    "str": str,
    "float_": np.float64,
    "unicode_": np.str_,
}
_log = logging.getLogger("mujoco_batches.isaacgym")
_new_array = np.array


def _array(*args: Any, copy: Any = True, **kwargs: Any) -> Any:
    """Call ``np.array``; ``copy=False`` copies if it must, as in NumPy 1."""
    return _new_array(*args, copy=None if copy is False else copy, **kwargs)


_restore = torch.serialization.default_restore_location


def _restore_without_cuda(storage: Any, location: str) -> Any:
    """Leave a storage from a CUDA device on the CPU, if CUDA is missing or the script is mapped to the CPU."""
    stays = location.startswith("cuda") and (on_cpu() or not torch.cuda.is_available())
    return storage if stays else _restore(storage, location)


_load = torch.load


def _load_in_full(f: Any, *args: Any, **kwargs: Any) -> Any:
    """Load a file as ``torch.load`` did before torch 2.6, unless the code asks for weights only.

    Old checkpoints of learners have more, such as numbers of NumPy and configs.
    """
    start = f.tell() if hasattr(f, "tell") else None
    try:
        return _load(f, *args, **kwargs)
    except (UnpicklingError, RuntimeError) as error:
        if kwargs.get("weights_only") is not None or "weights_only" not in str(error).lower().replace(" ", "_"):
            raise
        if start is not None:
            f.seek(start)
    name = getattr(f, "name", f)
    _log.warning("isaacgym: %s has more than weights, and is unpickled, which can run code in it", name)
    return _load(f, *args, **{**kwargs, "weights_only": False})


# modules that few tasks import, at the top of their files
OPTIONAL = (
    "pysdf", "urdfpy", "trimesh", "termcolor", "imageio", "wandb", "scipy", "matplotlib", "pyvirtualdisplay", "tkinter",
    "torchvision", "cv2", "pydelatin", "pyfqmr", "ipdb", "sklearn", "flask", "pytorch3d", "open3d", "pointnet2_ops",
)  # fmt: skip


def _unavailable(module: str, name: str) -> Any:
    """Return a placeholder of an attribute: a class, so that old code can name it as a base or a type."""
    if name.startswith("__"):
        raise AttributeError(name)
    package = module.partition(".")[0]
    installed = not isinstance(sys.modules.get(package, Missing(package)), Missing)
    reason = f"the installed {package} does not have it" if installed else f"{package} is not installed"
    message = f"{module}.{name} is used, and {reason}"

    class Parts(type):
        def __getattr__(cls, part: str) -> Any:
            if part.startswith("__"):
                raise AttributeError(part)
            raise ImportError(message)

    class Unavailable(metaclass=Parts):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            raise ImportError(message)

    return Unavailable


class Missing(ModuleType):
    """A placeholder of a module that is not installed; using its attributes raises ImportError."""

    def __getattr__(self, name: str) -> Any:
        return _unavailable(self.__name__, name)


class Placeholders(MetaPathFinder, Loader):
    """An import hook that provides placeholders of the packages ``names`` and of their modules."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] in self.names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Missing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class Completion(Placeholders):
    """An import hook that provides placeholders of a package's missing modules and attributes.

    Other code may have been written for another version of the package. A package that is not installed, or is a
    folder without ``__init__.py``, lacks everything.
    """

    def __init__(self, name: str) -> None:
        super().__init__([name])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        placeholder = super().find_spec(fullname, path, target)
        if placeholder is None:
            return None
        others = [finder for finder in sys.meta_path if not isinstance(finder, Placeholders)]  # blocks may be nested
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None or spec.loader is None or spec.origin is None:
            return placeholder
        return _after(spec, self._complete)

    @staticmethod
    def _complete(module: ModuleType) -> None:
        vars(module).setdefault("__getattr__", partial(_unavailable, module.__name__))


def _after(spec: ModuleSpec, change: Callable[[ModuleType], None]) -> ModuleSpec:
    """Return the spec of a module that ``change`` changes once it is executed."""
    assert spec.loader is not None
    execute = spec.loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        change(module)

    spec.loader.exec_module = exec_module  # pyright: ignore[reportAttributeAccessIssue]
    return spec


class _OldRlGames(MetaPathFinder):
    """An import hook that gives agents of rl_games the attribute ``seq_len``, which is now called ``seq_length``.

    IsaacGymEnvs' learner of HumanoidAMP reads it.
    """

    _MODULE = "rl_games.common.a2c_common"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == self._MODULE else None
        return None if spec is None or spec.loader is None else _after(spec, self._name)

    @staticmethod
    def _name(module: ModuleType) -> None:
        base = module.A2CBase
        if not hasattr(base, "seq_len"):
            base.seq_len = cached_property(lambda agent: agent.seq_length)  # a copy of an old rl_games sets it
            base.seq_len.__set_name__(base, "seq_len")


def _wrapping(new_init: Callable[..., None], any_env: type) -> Callable[..., None]:
    """Return ``Wrapper.__init__`` for environments of any class, such as IsaacGymEnvs' VecTask, as in gym 0.x."""

    def init(wrapper: Any, env: Any, *args: Any, **kwargs: Any) -> None:
        new_init(wrapper, any_env(), *args, **kwargs)
        wrapper.env = env

    return init


def _forwarded(wrapper: Any, name: str) -> Any:
    """Return an attribute of the wrapped environment; added to ``Wrapper``, because gym 0.x had it."""
    if name == "env" or name.startswith("_"):
        raise AttributeError(name)
    return getattr(wrapper.env, name)


def _reset(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
    """Reset the wrapped environment with the same arguments; gym 0.x did not add ``seed`` and ``options``."""
    return wrapper.env.reset(*args, **kwargs)


def _reset_observation(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
    """Reset an environment that returns only an observation, as ``ObservationWrapper`` of gym 0.x does."""
    result = wrapper.env.reset(*args, **kwargs)
    return (wrapper.observation(result[0]), *result[1:]) if isinstance(result, tuple) else wrapper.observation(result)


def _step_observation(wrapper: Any, action: Any) -> Any:
    """Step an environment that returns four or five values."""
    observation, *rest = wrapper.env.step(action)
    return (wrapper.observation(observation), *rest)


@contextmanager
def old_calls() -> Iterator[None]:
    """Provide NumPy 1's names for calls of old code in the block, and the CPU for CUDA devices on request."""
    names = {name: value for name, value in NUMPY_NAMES.items() if name not in np.__dict__}
    with replaced(np, {**names, "array": _array}), OnCpu() if on_cpu() else nullcontext():
        yield


@contextmanager
def old_code() -> Iterator[None]:
    """Provide the modules and names that old task code needs in the block, if they are not installed.

    Use it around the import and the construction of a task, and ``old_calls`` around its later calls.
    """
    stubs = [name for name in OPTIONAL if find_spec("_tkinter" if name == "tkinter" else name) is None]
    finders: list[MetaPathFinder] = [_OldRlGames(), Placeholders(stubs)]
    gone = set(stubs)  # packages that are not importable after the block
    with ExitStack() as stack:
        stack.enter_context(replaced(torch.serialization, {"default_restore_location": _restore_without_cuda}))
        stack.enter_context(replaced(torch, {"load": _load_in_full}))
        stack.enter_context(integer_conditions())
        stack.enter_context(old_calls())
        if find_spec("gym") is None and find_spec("gymnasium") is not None:
            finders.append(Redirect("gym", "gymnasium"))
            gone.add("gym")
            gymnasium = import_module("gymnasium")
            wrapper, observer = gymnasium.Wrapper, gymnasium.ObservationWrapper
            if "__getattr__" not in vars(wrapper):  # else in a block inside another
                init = _wrapping(wrapper.__init__, gymnasium.Env)
                old = {"__getattr__": _forwarded, "__init__": init, "reset": _reset}
                stack.enter_context(replaced(wrapper, old))
                stack.enter_context(replaced(observer, {"reset": _reset_observation, "step": _step_observation}))
        sys.meta_path[:0] = finders  # first: Python may have tkinter without its library
        try:
            yield
        finally:
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in finders]
            for name in [n for n in sys.modules if n.startswith(tuple(gone)) and n.partition(".")[0] in gone]:
                del sys.modules[name]
