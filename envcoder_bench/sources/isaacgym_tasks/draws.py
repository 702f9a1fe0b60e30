"""Random numbers of a task's own code, drawn per group instead of from a shared generator.

Methods of the task that draw are wrapped. A tensor drawn with one row per element of ``env_ids``, per environment, or
per environment that the method has found by ``nonzero``, has rows that are functions of (seed, lane, step, method,
call, column), independent of other environments in the call.
Draws of other shapes are reproducible, but depend on the other environments; ``Draws.shared`` names their methods.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import random
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.compat.torch_draws import DrawsFromRows
from envcoder_bench.core import noise, stream
from envcoder_bench.core.purposes import Purpose, signed

_DRAWS = re.compile(
    r"torch_rand\w*|rand|randn|randint|rand_like|randn_like|randint_like|random|random_\w+|normal|uniform|bernoulli"
    r"|multinomial|randperm|normal_|uniform_|bernoulli_|exponential_|sample|choice"
)
_EVERYTHING = re.compile(r"\bnp\.random\b|\bnumpy\.random\b|\brandom\.|\brandperm\b|\bsample\b|\bchoice\b")
_ROWS = re.compile(r".*env.*(ids|idx|indices|idxs|indexes)$|^(ids|idx|idxs)$")


class _Rows(stream.use):
    """A stream of draws for some environments, one row each.

    Draws with rows are counted apart from others, which code makes in loops over environments.
    """

    __slots__ = ("_lanes", "found", "key", "owner", "row_calls", "rows")

    def __init__(self, owner: Draws, rows: Tensor | None, key: int) -> None:
        super().__init__(key, owner.step, Purpose.ISAAC_GYM_DRAW)
        self.owner, self.rows, self.key, self.row_calls = owner, rows, key, 0
        self.found: Tensor | None = None  # the environments that the last nonzero has found
        self._lanes: tuple[Tensor | None, Tensor, Tensor] | None = None  # rows, offsets and lanes of the last draw

    def note_found(self, mask: Tensor, indices: Tensor) -> None:  # called by DrawsFromRows
        """Note the result ``(n, 1)`` of ``nonzero``, if the mask has one element per row or per environment."""
        if self.rows is not None and mask.shape == self.rows.shape:
            self.found = self.rows[indices.flatten()]
        elif mask.shape == self.owner.lanes.shape:
            self.found = indices.flatten()

    def next(self, rows: int, device: str | torch.device) -> tuple[noise.Counter, noise.Lanes]:
        # which environments the rows are of
        env_ids = None  # all environments
        if self.rows is not None and rows == len(self.rows):
            env_ids = self.rows
        elif self.found is not None and rows == len(self.found):
            env_ids = self.found
        elif rows != len(self.owner.lanes):
            self.owner.shared.add(self.owner.inside[-1])
            first = 0 if self.rows is None or not len(self.rows) else int(self.rows[0])
            return signed(int(self.next_seed()) + int(self.owner.seeds[first]) * noise.SPREAD), rows
        self.row_calls += 1
        seed = signed(self.key + self.row_calls * _ROW_CALL)
        if self._lanes is None or self._lanes[0] is not env_ids or self._lanes[2].device != torch.device(device):
            seeds, lanes = self.owner.seeds, self.owner.lanes
            if env_ids is not None:
                seeds, lanes = seeds[env_ids], lanes[env_ids]
            self._lanes = env_ids, (seeds.unsqueeze(1) * noise.SPREAD).to(device), lanes.to(device)
        _, offsets, lanes = self._lanes
        return offsets + seed, lanes


_ROW_CALL = 0x2545F4914F6CDD1D  # another one than a stream's own, so that no two calls have the same seed


@functools.lru_cache(maxsize=256)
def _generator_seed(key: int, step: int) -> int:
    """Return the seed of the generators in a call; the resets of all groups in a step have the same one."""
    return noise.stream_seed(key % (1 << 62), step, Purpose.ISAAC_GYM_DRAW)


class Draws:
    """The source of a task's random numbers.

    Attributes:
        seeds: ``(num_envs,)`` int64, the seed of each environment's group.
        lanes: ``(num_envs,)`` int64, the index of each environment in its group.
        step: the environment's counter of steps.
        everything: whether any method draws from numpy's or Python's generator.
        shared: methods that drew numbers in shapes that are not rows of environments.
        inside: names of the calls in progress.
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.seeds = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.lanes, self.group_size = torch.arange(num_envs, device=device), num_envs
        self.step, self.everything = 0, False
        self.shared: set[str] = set()
        self.inside: list[str] = []
        self._counts: list[dict[str, int]] = [{}]
        self._kept = False

    @contextlib.contextmanager
    def call(self, name: str, rows: Tensor | None, everything: bool) -> Iterator[None]:
        """Seed the draws of one call of a method; with ``everything``, numpy, ``random`` and ``randperm``, too."""
        # a key of its own for each call: the path of calls, and how often each was made in a step
        counts = self._counts[-1]
        counts[name] = counts.get(name, 0) + 1
        key = noise.text_key("/".join([*self.inside, f"{name}{counts[name]}"]))
        self.inside.append(f"{name}{counts[name]}")
        self._counts.append({})
        try:
            with contextlib.ExitStack() as stack:
                if everything:
                    stack.enter_context(self._seeded(_generator_seed(key, self.step)))
                    stack.enter_context(_numpy_from_stream())
                stack.enter_context(_Rows(self, rows, key))
                # the outermost call redirects torch for all calls within
                if len(self.inside) == 1:
                    stack.enter_context(DrawsFromRows())
                yield
        finally:
            self._counts.pop()
            self.inside.pop()

    @contextlib.contextmanager
    def generators_kept(self) -> Iterator[None]:
        """Save the states of the generators once for several calls inside the block, which then only seed them."""
        with stream.seeded(0, self.lanes.device):
            self._kept = True
            try:
                yield
            finally:
                self._kept = False

    def _seeded(self, seed: int) -> contextlib.AbstractContextManager[None]:
        if not self._kept or len(self.inside) > 1:  # the outer call goes on with its own numbers
            return stream.seeded(seed, self.lanes.device)
        stream.seed_all(seed, self.lanes.device)
        return contextlib.nullcontext()

    def begin_step(self, step: int) -> None:
        """Set the step, and restart the counts of calls."""
        self.step = step
        self._counts[-1].clear()

    def wrap(self, task: Any) -> list[str]:
        """Wrap the methods of a task that draw; return their names."""
        methods = drawing_methods(type(task))
        for name, (rows_at, everything) in methods.items():
            self.everything = self.everything or everything
            setattr(task, name, self._wrapped(name, getattr(task, name), rows_at, everything))
        return list(methods)

    def _wrapped(self, name: str, method: Any, rows_at: str | None, everything: bool) -> Any:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            rows = None
            if rows_at is not None:
                with contextlib.suppress(TypeError):
                    indices = signature.bind(*args, **kwargs).arguments.get(rows_at)
                    if isinstance(indices, Tensor) and indices.dim() == 1 and not indices.is_floating_point():
                        rows = indices.long()
            outer = stream.current()
            if rows is None and isinstance(outer, _Rows):
                rows = outer.rows  # Trifinger's reset names the environments otherwise in the methods that it calls
            with self.call(name, rows, everything):
                return method(*args, **kwargs)

        return wrapped


@functools.lru_cache(maxsize=16)
def drawing_methods(task_class: type) -> dict[str, tuple[str | None, bool]]:
    """Find methods whose source draws random numbers.

    Returns:
        By name: the parameter with indices of environments or None, and whether it draws from numpy or ``random``.
    """
    methods: dict[str, tuple[str | None, bool]] = {}
    # a subclass's method replaces its base's
    for cls in reversed(task_class.__mro__):
        for name, function in vars(cls).items():
            if not inspect.isfunction(function) or name.startswith("__"):
                continue
            methods.pop(name, None)
            try:
                tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            except (OSError, TypeError, SyntaxError):
                continue
            called = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
            drawn = [call for call in called if _DRAWS.fullmatch(call.rpartition(".")[2])]
            if drawn:
                rows_at = next((p for p in inspect.signature(function).parameters if _ROWS.match(p)), None)
                methods[name] = (rows_at, any(_EVERYTHING.search(call) for call in drawn))
    # these run once, before there are groups
    for name in ("create_sim", "_create_envs", "apply_randomizations"):
        methods.pop(name, None)
    return methods


@contextlib.contextmanager
def _numpy_from_stream() -> Iterator[None]:
    """Redirect numpy's usual functions to the stream in use, as torch's are."""

    def shape(size: Any) -> tuple[int, ...]:
        return () if size is None else tuple(int(n) for n in np.atleast_1d(size))

    def made(drawn: Tensor, size: Any) -> Any:
        return float(drawn) if size is None else drawn.double().cpu().numpy()

    def uniform(low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        if size is None and (np.ndim(low) or np.ndim(high)):
            size = np.broadcast_shapes(np.shape(low), np.shape(high))
        if np.ndim(low) or np.ndim(high):
            low, high = np.asarray(low), np.asarray(high)
        return low + (high - low) * made(stream.uniform(shape(size)), size)

    def normal(loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        if size is None and (np.ndim(loc) or np.ndim(scale)):
            size = np.broadcast_shapes(np.shape(loc), np.shape(scale))
        if np.ndim(loc) or np.ndim(scale):
            loc, scale = np.asarray(loc), np.asarray(scale)
        return loc + scale * made(stream.normal(shape(size)), size)

    def randint(low: int, high: int | None = None, size: Any = None, dtype: Any = int) -> Any:
        first, last = (0, low) if high is None else (low, high)
        drawn = stream.integers(int(first), int(last), shape(size))
        return int(drawn) if size is None else drawn.cpu().numpy().astype(dtype)

    def by_shape(draw: Any) -> Any:
        return lambda *size: draw(size=size or None)

    functions = {
        "uniform": uniform, "normal": normal, "randint": randint, "rand": by_shape(uniform), "randn": by_shape(normal),
        "random": lambda size=None: uniform(size=size), "random_sample": lambda size=None: uniform(size=size),
        "standard_normal": lambda size=None: normal(size=size),
    }  # fmt: skip
    before: Sequence[tuple[Any, str, Any]] = [
        *((np.random, name, getattr(np.random, name)) for name in functions),
        (random, "uniform", random.uniform),
        (random, "random", random.random),
    ]
    try:
        for name, function in functions.items():
            setattr(np.random, name, function)
        random.uniform = lambda a, b: float(uniform(a, b))  # type: ignore[assignment]
        random.random = lambda: float(uniform())  # type: ignore[assignment]
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)
