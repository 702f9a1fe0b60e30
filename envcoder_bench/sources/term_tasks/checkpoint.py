"""The state of a world and its blocks: what their objects hold, by path, and what curricula keep and set."""

from __future__ import annotations

import copy
import io
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError
from envcoder_bench.sources.term_tasks.views import View

_SKIPPED = (
    "_env", "env", "cfg", "_data", "_model", "_mj_model", "data", "model", "spec", "_spec", "indexing",
    "_obs_buffer", "_cached_data", "_cache_valid", "_tensor_cache",  # computed anew before they are read
    "device", "_device",  # of the run that goes on
)  # fmt: skip
_SEPARATOR, _NUMBER = " > ", "#"  # between the parts of a path, and before a key of a dict that is a number
_PLAIN = (type(None), bool, int, float, str)
_LIBRARIES = ("torch", "numpy", "warp", "mujoco", "mujoco_warp", "builtins")
_SIMULATIONS = ("isaaclab_mujoco", "mujoco_batches")  # packages whose objects set their own plain values
_CONTAINERS = (dict, list, tuple, set)
_SEQUENCES = (list, tuple, deque)
_DTYPES = {type(np.dtype(code)) for code in np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?"}
_OF_NUMPY = [np.ndarray, np.dtype, *_DTYPES, *(x.__reduce__()[0] for x in (np.empty(0), np.float32()))]  # in files


def _roots(world: Any, blocks: Sequence[Any]) -> dict[str, Any]:
    """Return the objects that are state, by name."""
    roots = world.held()
    for k, block in enumerate(blocks):
        roots[f"block {k}"] = {
            "events": block.event_manager,
            "commands": block.command_manager,
            "observations": {str(rows.start): manager for manager, rows in block.observations.managers},
            "rewards": [term.func for term in block.rewards.terms],
            "reward sums": {"sums": block.reward_manager.sums},
            "ends": [term.func for term in block.ends.terms],
            "metrics": block.metrics_manager,
            "terminations": block.termination_manager,
        }
    return roots


def _is_plain(x: Any) -> bool:
    """Return whether a value is None, a number or a text, or containers of these."""
    if type(x) in _CONTAINERS:
        return all(map(_is_plain, (*x, *x.values()) if type(x) is dict else x))
    return type(x) in _PLAIN


def _walk(value: Any, path: str, seen: set[int], plain: bool) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, tensor, and its owner, of everything that a value holds, and copies of plain values if asked for."""
    if isinstance(value, (str, bytes, int, float, bool, type(None), torch.device, type)) or (
        callable(value) and not (hasattr(value, "__dict__") and not isinstance(value, type(_walk)))
    ):
        return
    if id(value) in seen or isinstance(value, (View, Tensor)):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        # other keys are of caches, such as constants by device
        items: Iterator[tuple[Any, Any]] = ((name, x) for name, x in value.items() if isinstance(name, (str, int)))
    elif isinstance(value, _SEQUENCES if plain else (list, tuple)):  # a graph cannot append
        items = iter(enumerate(value))
    elif (package := type(value).__module__.split(".")[0]) in _LIBRARIES:
        return
    else:
        items, plain = iter(getattr(value, "__dict__", {}).items()), plain and package not in _SIMULATIONS
    for name, x in list(items):
        is_number = isinstance(value, Mapping) and isinstance(name, int)
        inner = f"{path}{_SEPARATOR}{_NUMBER if is_number else ''}{name}"
        if isinstance(x, Tensor):
            yield inner, x, (value, name)
        elif name in _SKIPPED:
            continue
        elif plain and (type(x.dtype) in _DTYPES if isinstance(x, (np.ndarray, np.generic)) else _is_plain(x)):
            # an array of a subclass, such as one in a file, becomes a plain one
            yield inner, np.array(x) if isinstance(x, np.ndarray) else copy.deepcopy(x), (value, name)
        elif plain and isinstance(x, deque) and not x:
            yield inner, [], (value, name)
        else:
            yield from _walk(x, inner, seen, plain)


def _walk_all(world: Any, blocks: Sequence[Any], roots: Mapping[str, Any], plain: bool) -> Iterator[Any]:
    seen: set[int] = {id(world), id(world.scene), id(world.sim), *map(id, blocks)}
    for name, root in roots.items():
        yield from _walk(root, name, seen, plain)


def held(world: Any, blocks: Sequence[Any], plain: bool = False) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, value and owner of the tensors that objects keep between steps, and of plain values if asked for."""
    return _walk_all(world, blocks, _roots(world, blocks), plain)


def held_by(value: Any, seen: set[int] | None = None) -> Iterator[tuple[str, Any, Any]]:
    """Yield what one object keeps, as ``held`` with plain values; objects with an id in ``seen`` are left out."""
    return _walk(value, "", set() if seen is None else seen, plain=True)


def _kept(blocks: Sequence[Any], notes: Sequence[Any]) -> dict[str, Any]:
    return {f"curriculum {k}": block.kept_by_curricula(*note) for k, (block, note) in enumerate(zip(blocks, notes))}


def saved(world: Any, blocks: Sequence[Any], live: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of everything on the CPU."""
    state = {f"live/{key}": x for key, x in live.items()}
    state["world/steps"] = torch.tensor(world.steps)
    notes, plain = [block.set_by_curricula() for block in blocks], {}
    for path, x, _ in _walk_all(world, blocks, {**_roots(world, blocks), **_kept(blocks, notes)}, True):
        if isinstance(x, Tensor):
            state[f"held/{path}"] = x
        else:
            plain[path] = x
    state["plain"] = _packed((notes, plain))
    state.update(world.get_simulation())
    return {key: x.detach().to("cpu", copy=True).clone() for key, x in state.items()}


def restore(world: Any, blocks: Sequence[Any], live: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Restore what ``saved`` returned, and compute what derives from it. Raises UserError if an earlier version did."""
    if "plain" not in state:
        raise UserError("the checkpoint is of an earlier version, which this one cannot resume: begin a new run")
    for key, x in live.items():
        x.copy_(state[f"live/{key}"])
    world.set_simulation(state)
    world.count(int(state["world/steps"]))
    notes, values = _unpacked(state["plain"])
    values.update({key.removeprefix("held/"): x for key, x in state.items() if key.startswith("held/")})
    for block, note in zip(blocks, notes):
        block.reset_settings(*note)
    kept = _kept(blocks, notes)
    roots = {**_roots(world, blocks), **kept}
    _replace(roots, list(_walk_all(world, blocks, roots, True)), values, world.device)
    for block, each in zip(blocks, kept.values()):
        block.restored(each)
    world.sense()
    world.sensed()


def _packed(value: Any) -> Tensor:
    """Return plain data as a tensor of bytes."""
    content = io.BytesIO()
    torch.save(value, content)
    return torch.frombuffer(bytearray(content.getvalue()), dtype=torch.uint8)


def _unpacked(content: Tensor) -> Any:
    with torch.serialization.safe_globals(_OF_NUMPY):
        return torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)


def _replace(
    roots: Mapping[str, Any],
    rows: Sequence[tuple[str, Any, Any]],
    values: Mapping[str, Any],
    device: torch.device,
) -> None:
    """Give what ``rows`` of ``roots`` are about the values at the same paths; what has come since then is removed."""
    parts = [path.split(_SEPARATOR) for path in values]
    holders = {_SEPARATOR.join(names[:k]) for names in parts for k in range(1, len(names))}
    live = {path for path, _, _ in rows}
    for path, _, owner in reversed(rows):
        if path in values:
            put(owner, values[path], device)
        elif path not in holders and path.rpartition(_SEPARATOR)[0] in holders:
            _forget(owner)
    for path, x in values.items():
        if path not in live:
            try:
                put(_owner(roots, path), x, device)
            except (AttributeError, LookupError, TypeError, ValueError):
                message = f"{path} of a checkpoint is not restored: the task has not constructed what holds it"
                warnings.warn(message, RuntimeWarning, stacklevel=3)


def _owner(roots: Mapping[str, Any], path: str) -> tuple[Any, Any]:
    """Return the object at a path without its last part, and the key of this part."""
    name, *parts = path.split(_SEPARATOR)
    value = roots[name]
    for part in parts[:-1]:
        key = _key(value, part)
        value = value[key] if isinstance(value, (Mapping, *_SEQUENCES)) else vars(value)[key]
    return value, _key(value, parts[-1])


def _key(value: Any, part: str) -> Any:
    """Return the key, index or name of a part of a path."""
    is_number = isinstance(value, _SEQUENCES) or (isinstance(value, Mapping) and part.startswith(_NUMBER))
    return int(part.removeprefix(_NUMBER)) if is_number else part


def _forget(owner: tuple[Any, Any]) -> None:
    """Remove what did not exist yet."""
    value, name = owner
    if isinstance(value, (dict, list, deque)):
        del value[name]
    else:
        object.__delattr__(value, name)


def put(owner: tuple[Any, Any], value: Any, device: torch.device) -> None:
    """Put a copy of a value where ``held`` has read one; tensors, arrays, dicts and lists stay the same objects."""
    holder, name = owner
    if isinstance(holder, _SEQUENCES):
        old = holder[name] if name < len(holder) else None
    else:
        old = holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)
    if isinstance(value, (Tensor, np.ndarray)):
        is_like = (getattr(old, "shape", None), getattr(old, "dtype", None)) == (value.shape, value.dtype)
        is_like &= not isinstance(holder, deque)  # which may have one object several times
        if is_like and isinstance(old, Tensor):
            old.copy_(torch.as_tensor(value))
        elif is_like and isinstance(old, np.ndarray) and old.flags.writeable:
            np.copyto(old, np.asarray(value))
        elif not isinstance(holder, tuple):
            assign(owner, value.to(device, copy=True) if isinstance(value, Tensor) else value.copy())
        return
    value = copy.deepcopy(value)
    if isinstance(value, dict) and isinstance(old, dict):
        old.clear()
        old.update(value)
    elif isinstance(value, list) and isinstance(old, (list, deque)):
        old.clear()
        old.extend(value)
    elif (type(old) is not type(value) or old != value) and not isinstance(holder, tuple):
        assign(owner, value)


def assign(owner: tuple[Any, Any], x: Any) -> None:
    """Put a value where ``held`` has read one."""
    value, name = owner
    if isinstance(value, (list, deque)) and name >= len(value):
        value.append(x)
    elif isinstance(value, (dict, list, deque)):
        value[name] = x
    else:
        object.__setattr__(value, name, x)
