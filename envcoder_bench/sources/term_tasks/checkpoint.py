"""The state of a world and its blocks: all tensors that their objects hold, by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.sources.term_tasks.views import View

_SKIPPED = (
    "_env", "env", "cfg", "_data", "_model", "_mj_model", "data", "model", "spec", "_spec", "indexing",
    "_obs_buffer", "_cached_data", "_cache_valid", "_tensor_cache",  # computed anew before they are read
)  # fmt: skip
_SEPARATOR = "/"


def _roots(world: Any, blocks: Sequence[Any]) -> dict[str, Any]:
    """Return the objects whose tensors are state, by name."""
    roots = world.held()
    for k, block in enumerate(blocks):
        roots[f"block {k}"] = {
            "events": block.event_manager,
            "commands": block.command_manager,
            "observations": [manager for manager, _ in block.observation_managers],
            "rewards": [term.func for term in block.rewards.terms],
            "reward sums": {"sums": block.reward_manager.sums},
            "ends": [term.func for term in block.ends.terms],
            "metrics": block.metrics_manager,
            "terminations": block.termination_manager,
        }
    return {**roots, **_curricula(blocks)}


def _curricula(blocks: Sequence[Any]) -> dict[str, Any]:
    """Return the objects that are terms of curricula, by name."""
    objects = {}
    for k, block in enumerate(blocks):
        envs = [] if block.group_curricula is None else block.group_curricula.envs
        managers = [block.curriculum_manager, *(env.curriculum_manager for env in envs)]
        terms = [term for manager in managers for _, term in block.dialect.curriculum_terms(manager)]
        funcs = [block.dialect.get(term, "func") for term in terms]
        objects.update((f"curriculum {k} {i}", x) for i, x in enumerate(funcs) if not isinstance(x, type(_walk)))
    return objects


def _numbers(value: Any) -> dict[str, Any]:
    """Return the numbers that an object has as attributes, and those that are None."""
    attributes = getattr(value, "__dict__", {}).items()
    return {name: x for name, x in attributes if isinstance(x, (int, float, type(None)))}


def _walk(value: Any, path: str, seen: set[int], numbers: bool = False) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, tensor, and its owner, of everything that a value holds, and numbers if asked for."""
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
    elif isinstance(value, (list, tuple)):
        items = iter(enumerate(value))
    elif type(value).__module__.split(".")[0] in ("torch", "numpy", "warp", "mujoco", "mujoco_warp", "builtins"):
        return
    else:
        items = iter(getattr(value, "__dict__", {}).items())
    for name, x in list(items):
        inner = f"{path}{_SEPARATOR}{name}"
        number = numbers and isinstance(x, (int, float, str, type(None))) and name not in _SKIPPED
        if number or isinstance(x, Tensor):
            yield inner, x, (value, name)
        elif name not in _SKIPPED:
            yield from _walk(x, inner, seen, numbers)


def held(world: Any, blocks: Sequence[Any], numbers: bool = False) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, value and owner of the tensors that objects keep between steps, and of numbers if asked for."""
    seen: set[int] = {id(world), id(world.scene), id(world.sim), *map(id, blocks)}
    for name, root in _roots(world, blocks).items():
        yield from _walk(root, name, seen, numbers)


def held_by(value: Any, seen: set[int] | None = None) -> Iterator[tuple[str, Any, Any]]:
    """Yield what one object keeps, as ``held`` with numbers; objects with an id in ``seen`` are left out."""
    return _walk(value, "", set() if seen is None else seen, numbers=True)


def as_tensor(x: Any) -> Tensor:
    """Return a tensor, a number or a tuple of numbers as a tensor that has all digits."""
    if isinstance(x, Tensor):
        return x
    result = torch.tensor(x)
    return torch.tensor(x, dtype=torch.float64) if result.is_floating_point() else result


def number_of(saved: Tensor, present: Any) -> Any:
    """Return a number, or a tuple or list as ``present``, of which ``as_tensor`` has made a tensor."""
    values = saved.tolist()
    return type(present)(values) if isinstance(values, list) else values


def saved(world: Any, blocks: Sequence[Any], live: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of everything on the CPU."""
    state = {f"live/{key}": x for key, x in live.items()}
    state["world/steps"] = torch.tensor(world.steps)
    for path, x, _ in held(world, blocks):
        state[f"held/{path}"] = x if isinstance(x, Tensor) else torch.tensor(x)
    for path, value in _curricula(blocks).items():
        for name, x in _numbers(value).items():
            state[f"number/{path}/{name}"] = torch.empty(0) if x is None else as_tensor(x)
    state.update(world.get_simulation())
    for k, block in enumerate(blocks):
        state.update({f"numbers {k}/{path}": x for path, x in block.get_numbers().items()})
    return {key: x.detach().to("cpu", copy=True).clone() for key, x in state.items()}


def restore(world: Any, blocks: Sequence[Any], live: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Restore what ``saved`` returned, and compute what derives from it."""
    for key, x in live.items():
        x.copy_(state[f"live/{key}"])
    world.set_simulation(state)
    world.count(int(state["world/steps"]))
    for k, block in enumerate(blocks):
        prefix = f"numbers {k}/"
        block.set_numbers({key[len(prefix) :]: x for key, x in state.items() if key.startswith(prefix)})
    for path, value in _curricula(blocks).items():
        prefix = f"number/{path}/"
        for name in _numbers(value):
            object.__delattr__(value, name)
        for key, x in state.items():
            if key.startswith(prefix):
                object.__setattr__(value, key.removeprefix(prefix), x.item() if x.numel() else None)
    # buffers that appear with the first value exist in the saved state, or in the live one, alone
    owners = {path: (x, owner) for path, x, owner in held(world, blocks)}
    for path, (x, owner) in owners.items():
        saved_x = state.get(f"held/{path}")
        if saved_x is None:
            _forget(owner)
        elif isinstance(x, Tensor) and x.shape == saved_x.shape:
            x.copy_(saved_x)
        else:
            assign(owner, saved_x.to(world.device) if isinstance(x, Tensor) else saved_x.item())
    roots = _roots(world, blocks)
    for key, saved_x in state.items():
        path = key.removeprefix("held/")
        if key.startswith("held/") and path not in owners:
            assign(_owner(roots, path), saved_x.to(world.device).clone())
    world.sense()
    world.sensed()


def _owner(roots: Mapping[str, Any], path: str) -> tuple[Any, Any]:
    """Return the object at a path without its last part, and this part."""
    name, *parts = path.split(_SEPARATOR)
    value = roots[name]
    for part in parts[:-1]:
        value = _part(value, part)
    return value, parts[-1]


def _part(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value[name] if name in value else value[int(name)]
    return value[int(name)] if isinstance(value, (list, tuple)) else vars(value)[name]


def _forget(owner: tuple[Any, Any]) -> None:
    """Remove a buffer that did not exist yet."""
    value, name = owner
    if isinstance(value, dict):
        del value[name]
    else:
        object.__setattr__(value, name, None)


def assign(owner: tuple[Any, Any], x: Any) -> None:
    """Put a value where ``held`` has read one."""
    value, name = owner
    if isinstance(value, dict):
        value[name] = x
    elif isinstance(value, list):
        value[int(name)] = x
    else:
        object.__setattr__(value, name, x)
