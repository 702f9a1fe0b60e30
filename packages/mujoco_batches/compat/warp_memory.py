"""Memory of MuJoCo Warp's worlds: their arrays, and what a step allocates.

While a step's allocations are counted, it replaces Warp's functions that make arrays.

Why: steps allocate arrays, and no function reports them. Where many shapes collide as convex ones, as on height fields,
they can be ten times as large as what ``make_data`` allocates.
"""

from collections.abc import Callable
from typing import Any

import warp as wp


def capacity(*holders: Any) -> int:
    """Return the bytes of all arrays that are attributes of ``holders``."""
    return sum(x.capacity for holder in holders for x in vars(holder).values() if isinstance(x, wp.array))


def allocated_by(function: Callable[[], object]) -> int:
    """Call a function, and return the bytes of all arrays that it allocates by Warp's functions, freed or not."""
    makers = {name: getattr(wp, name) for name in ("empty", "zeros", "full", "empty_like", "zeros_like", "clone")}
    sizes: list[int] = []

    def with_count(make: Callable[..., wp.array]) -> Callable[..., wp.array]:
        def make_and_count(*args: Any, **kwargs: Any) -> wp.array:
            new = make(*args, **kwargs)
            sizes.append(new.capacity)
            return new

        return make_and_count

    # MuJoCo Warp calls these functions as attributes of the module, so that replaced ones count all arrays
    try:
        for name, make in makers.items():
            setattr(wp, name, with_count(make))
        function()
    finally:
        for name, make in makers.items():
            setattr(wp, name, make)
    return sum(sizes)
