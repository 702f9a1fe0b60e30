"""Arenas from YAML, checked."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from envcoder_bench.core.errors import near_matches
from envcoder_bench.terrain.arenas import BOULDERS, FLAT, STAIRS, TYPES, Arena, Zone

_ZONE_KEYS = ("type", "size", "difficulty", "friction", "drag", "count", "tread", "cell")
_OF_TYPE = {"count": (STAIRS, BOULDERS), "tread": (STAIRS,), "cell": (BOULDERS,), "difficulty": (STAIRS, BOULDERS)}


def read_arena(name: str, data: Any, width: float = 30.0, apron: float = 3.0) -> Arena:
    """Check an arena's YAML: ``zones``, a list of mappings, and ``width``.

    Raises:
        ValueError: a key is unknown or missing, or its value is not valid; the message names it.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{name}: an arena is a mapping with the key zones, not {type(data).__name__}")
    _only(name, data, ("zones", "width"))
    zones = data.get("zones")
    if not isinstance(zones, Sequence) or isinstance(zones, str) or not zones:
        raise ValueError(f"{name}: zones must be a list with at least one zone, got {zones!r}")
    width = _number(f"{name}: width", data.get("width", width), above=0.0)
    arena = Arena(name, tuple(_zone(f"{name}: zones[{k}]", zone) for k, zone in enumerate(zones)), width, apron)
    for k, zone in enumerate(arena.zones):
        for key, length in (("size", zone.size), ("width", width)):
            if zone.type == BOULDERS and abs(length / zone.cell - round(length / zone.cell)) > 1e-6:
                where = f"{name}: zones[{k}].size" if key == "size" else f"{name}: width"
                raise ValueError(f"{where} must be a multiple of the boulders' cell, {zone.cell} m, got {length}")
    return arena


def _zone(where: str, data: Any) -> Zone:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} must be a mapping with the key type, got {data!r}")
    _only(where, data, _ZONE_KEYS)
    kind = data.get("type")
    if kind not in TYPES:
        raise ValueError(f"{where}.type must be {', '.join(TYPES)}, got {kind!r}{near_matches(str(kind), TYPES)}")
    for key, types in _OF_TYPE.items():
        if key in data and kind not in types:
            raise ValueError(f"{where}.{key} is for {' and '.join(types)} zones, and this one is {kind}")
        if key == "difficulty" and kind in types and key not in data:
            meaning = "the riser, m" if kind == STAIRS else "the smallest and largest edge, m, [low, high]"
            raise ValueError(f"{where}.difficulty is missing: {meaning}")
    if kind == BOULDERS and "count" not in data:
        raise ValueError(f"{where}.count is missing: the number of boulders")
    range_m: Any = data.get("difficulty", [])
    difficulty = list(range_m) if isinstance(range_m, Sequence) and not isinstance(range_m, str) else [range_m]
    difficulty = [_number(f"{where}.difficulty", value, above=0.0) for value in difficulty]
    if len(difficulty) != {FLAT: 0, STAIRS: 1, BOULDERS: 2}[kind] or sorted(difficulty) != difficulty:
        raise ValueError(f"{where}.difficulty must be a riser for stairs or [low, high] for boulders, got {range_m!r}")
    count = data.get("count")
    if count is not None and (type(count) is not int or count < 0):
        raise ValueError(f"{where}.count must be a whole number of at least 0, got {count!r}")
    zone = Zone(
        kind,
        _number(f"{where}.size", data.get("size", 10.0), above=0.0),
        tuple(difficulty),
        _number(f"{where}.friction", data.get("friction", 0.8)),
        _number(f"{where}.drag", data.get("drag", 0.0)),
        count,
        _number(f"{where}.tread", data.get("tread", 0.3), above=0.0),
        _number(f"{where}.cell", data.get("cell", 0.05), above=0.0),
    )
    if kind == STAIRS and zone.risers < (count or 1):
        raise ValueError(f"{where}: {count or 1} risers with treads of {zone.tread} m do not fit in {zone.size} m")
    return zone


def _only(where: str, data: Mapping[Any, Any], keys: Sequence[str]) -> None:
    for key in data:
        if key not in keys:
            raise ValueError(f"{where}: unknown key '{key}'{near_matches(str(key), keys)}; there are {', '.join(keys)}")


def _number(where: str, value: Any, above: float | None = None) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{where} must be a number, got {value!r}")
    if value < 0 or (above is not None and value <= above):
        raise ValueError(f"{where} must be {'greater than' if above is not None else 'at least'} 0, got {value}")
    return float(value)
