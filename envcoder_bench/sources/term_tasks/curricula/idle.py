"""When the function of a curriculum may do something, so that it need not be called for each group in each step.

Most curricula act in few steps, such as each thousandth. A call is idle if it changes nothing, reads no tensor on the
host, and uses the counter of steps in comparisons alone. Another call does nothing either, until one of these
comparisons has another result, or something else has changed what the function reads.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from envcoder_bench.sources.term_tasks.checkpoint import held_by

Comparison = tuple[int | None, Callable[[int, Any], bool], Any, bool]  # modulus, operator, other, and the result

_READS = {
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__format__",
    "__contains__",
    "item",
    "tolist",
    "numpy",
    "cpu",
}
_READS |= {"equal", "allclose", "is_nonzero", "to", "unique"}
_IN_PLACE = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__iand__", "__ior__"}


class Watch(TorchFunctionMode):
    """Notes inside the ``with`` block what keeps a call from being idle.

    Attributes:
        steps: the counter of steps, which the function reads.
        comparisons: those of the counter.
        acts: whether the call is not idle.
    """

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.comparisons: list[Comparison] = []
        self.acts = False
        self.steps = Counter(steps, self)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        writes = name in _IN_PLACE or "out" in kwargs or (name.endswith("_") and not name.endswith("__"))
        if writes or name in _READS or _has_counter((args, tuple(kwargs.values()))):
            self.acts = True
        return func(*args, **kwargs)


class Counter(int):
    """The counter of steps, or its remainder, of which a watch notes the use."""

    def __new__(cls, plain: int, watch: Watch, modulus: int | None = None) -> Counter:
        counter = super().__new__(cls, plain)
        counter.plain, counter.watch, counter.modulus = plain, watch, modulus
        return counter

    plain: int
    watch: Watch
    modulus: int | None

    def __mod__(self, other: Any) -> Any:
        if self.modulus is None and type(other) is int and other > 0:
            return Counter(self.plain % other, self.watch, other)
        self.watch.acts = True
        return self.plain % other

    def __bool__(self) -> bool:
        return self != 0


def _comparing(compare: Callable[[Any, Any], Any]) -> Callable[[Counter, Any], Any]:
    def method(self: Counter, other: Any) -> Any:
        result = compare(self.plain, other)
        if isinstance(result, bool) and not isinstance(other, Counter):
            self.watch.comparisons.append((self.modulus, compare, other, result))
        else:
            self.watch.acts = True
        return result

    return method


def _noting(name: str) -> Callable[..., Any]:
    def method(self: Counter, *args: Any) -> Any:
        self.watch.acts = True
        return getattr(int, name)(self.plain, *args)

    return method


_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "pow", "divmod", "and", "or", "xor", "lshift", "rshift")
_OTHER = ("rmod", "neg", "pos", "abs", "int", "float", "index", "round", "trunc", "floor", "ceil", "hash")
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Counter, f"__{_name}__", _comparing(getattr(operator, _name)))
for _name in (*_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC), *_OTHER, "str", "repr", "format"):
    setattr(Counter, f"__{_name}__", _noting(f"__{_name}__"))


def _has_counter(values: Any) -> bool:
    return any(isinstance(x, Counter) or (isinstance(x, (list, tuple)) and _has_counter(x)) for x in values)


def hold(comparisons: list[Comparison], steps: int) -> bool:
    """Return whether comparisons of the counter have the same results at ``steps``."""
    return all(
        compare(steps if modulus is None else steps % modulus, other) == result
        for modulus, compare, other, result in comparisons
    )


def host_state(func: Any, env: Any) -> tuple[Any, ...]:
    """Return the objects that a curriculum's function, and the environments that it gets, keep on the host."""
    kept = {path: id(x) if isinstance(x, Tensor) else x for path, x, _ in held_by(func)}
    names = {name: id(x) for name, x in getattr(func, "__globals__", {}).items()}
    cells = [id(cell.cell_contents) for cell in getattr(func, "__closure__", None) or ()]
    return kept, names, cells, {name: id(x) for name, x in vars(env).items()}
