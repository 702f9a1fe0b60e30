"""Modules of Omniverse that do nothing, and know what was asked of them.

Isaac Lab imports hundreds of names of ``omni``, ``carb``, ``pxr`` and ``isaacsim``, mostly for pictures, windows and
USD. A name without effect on the physics is a ``Fake``. It can be called, subclassed, entered and iterated; it is false
and empty, and has any attribute. A fake is never a number, because a quantity of the physics must not come from one.
"""

from collections import Counter
from types import ModuleType
from typing import Any

from isaaclab_mujoco.errors import NotSupported

asked: Counter[str] = Counter()  # calls, by the dotted names of what was called


class FakeMeta(type):
    """The type of fake names; their attributes are fake names, too."""

    dotted: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = make(f"{cls.dotted}.{name}", Missing if issubclass(cls, Missing) else Fake)
        setattr(cls, name, value)
        return value

    def __int__(cls) -> int:
        return no_number(cls.dotted)

    def __float__(cls) -> float:
        return no_number(cls.dotted)

    def __iter__(cls) -> Any:
        return iter(())

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__


class Fake(metaclass=FakeMeta):
    """What a call of a fake name returns."""

    dotted = "Fake"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        asked[type(self).dotted] += 1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        asked[type(self).dotted] += 1
        return _instance(type(self).dotted)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _instance(f"{type(self).dotted}.{name}")

    def __iter__(self) -> Any:
        return iter(())

    def __getitem__(self, key: Any) -> Any:
        return _instance(f"{type(self).dotted}[]")

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return False

    def __int__(self) -> int:
        return no_number(type(self).dotted)

    def __float__(self) -> float:
        return no_number(type(self).dotted)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> bool:
        return False


class Missing(Fake):
    """A name of a package that is not installed: it can be imported and subclassed, not called."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        package = type(self).__module__.partition(".")[0]
        raise NotSupported(f"{type(self).dotted} was called, and {package} is not installed: install it")


class FakeModule(ModuleType):
    """A module whose names are made when they are asked for.

    Attributes:
        base: the class from which they are derived.
    """

    base: type = Fake

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = make(f"{self.__name__}.{name}", self.base)
        setattr(self, name, value)
        return value


def make(dotted: str, base: type = Fake) -> Any:
    """Return a fake name."""
    module, _, name = dotted.rpartition(".")
    return FakeMeta(name, (base,), {"dotted": dotted, "__module__": module, "__qualname__": name})


def refusing(what: str) -> Any:
    """Return a name that raises ``NotSupported`` when it is called or subclassed and made."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotSupported(f"{what}: isaaclab_mujoco does not have this")

    return refuse


def no_number(name: str) -> Any:
    raise NotSupported(f"{name} is asked for as a number, and isaaclab_mujoco has no such part of Omniverse")


_instances: dict[str, Any] = {}


def _instance(dotted: str) -> Any:
    if dotted not in _instances:
        _instances[dotted] = make(dotted)
    return object.__new__(_instances[dotted])
