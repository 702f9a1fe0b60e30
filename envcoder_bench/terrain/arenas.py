"""Arenas: strips of zones along x, side by side on one ground, with a drag for each zone; their YAML, and lookups.

A zone is flat ground, stairs, or boulders. Flat zones and stairs are boxes, whose contacts MuJoCo computes directly;
thousands of boulders are one height field, because every robot is compared with every geom of the ground.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core.errors import near_matches
from envcoder_bench.sim.ground import Box, Ground, HeightField
from envcoder_bench.terrain.scan import on_triangles

FLAT, STAIRS, BOULDERS = "flat", "stairs", "boulders"
TYPES = (FLAT, STAIRS, BOULDERS)
_DEPTH = 1.0  # m, depth of the ground's boxes below the lowest surface
_CELL = 0.05  # m, cells of the lookup of flat zones and stairs


@dataclass(frozen=True)
class Zone:
    """A strip of an arena.

    Attributes:
        type: one of TYPES.
        size: length along x, m.
        difficulty: the riser of stairs, m; the smallest and the largest edge of boulders, m; empty for flat ground.
        friction: coefficient of its ground.
        drag: vx *= 1 / (1 + 0.1 drag) in each control step.
        count: number of boulders or risers; None for as many risers as fit.
        tread: depth of a stair, m.
        cell: spacing of the height field of boulders, m.
    """

    type: str
    size: float = 10.0
    difficulty: tuple[float, ...] = ()
    friction: float = 0.8
    drag: float = 0.0
    count: int | None = None
    tread: float = 0.3
    cell: float = 0.05

    @property
    def rise(self) -> float:
        """Height of the zone's end above its beginning, m."""
        return self.difficulty[0] * self.risers if self.type == STAIRS else 0.0

    @property
    def risers(self) -> int:
        """Number of risers of stairs."""
        fitting = int(self.size / self.tread + 1e-6)
        return fitting if self.count is None else min(self.count, fitting)


@dataclass(frozen=True)
class Arena:
    """Zones one after the other along x, from x = 0; y is 0 to ``width``.

    Attributes:
        apron: length of flat ground before the first zone and after the last, m.
    """

    name: str
    zones: tuple[Zone, ...]
    width: float = 30.0
    apron: float = 3.0

    @property
    def starts(self) -> list[float]:
        """x of each zone's beginning, and of the arena's end, m."""
        return [0.0, *np.cumsum([zone.size for zone in self.zones]).tolist()]

    @property
    def length(self) -> float:
        """Length along x, m."""
        return self.starts[-1]

    @property
    def bases(self) -> list[float]:
        """Height of each zone's beginning, and of the arena's end, m."""
        return [0.0, *np.cumsum([zone.rise for zone in self.zones]).tolist()]


def place_boulders(zone: Zone, width: float, seed: int) -> np.ndarray:
    """Draw the boulders of a zone, ``(count, 4)``: x and y from the zone's corner, edge, m, and yaw, rad.

    Boulders smaller than two cells of the height field lie on its nodes, because others could fall between these.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = generator.random((zone.count or 0, 4))
    low, high = zone.difficulty
    boulders = drawn * [zone.size, width, high - low, 0.5 * math.pi] + [0.0, 0.0, low, 0.0]
    if high < 2.0 * zone.cell:
        boulders[:, :2] = np.round(boulders[:, :2] / zone.cell) * zone.cell
    return boulders


def boulder_heights(boulders: np.ndarray, size: float, width: float, cell: float) -> np.ndarray:
    """Return heights ``(nx, ny)`` of cubes on the ground, m; where cubes overlap, the highest counts."""
    nx, ny = round(size / cell) + 1, round(width / cell) + 1
    heights = np.zeros((nx, ny), dtype=np.float32)
    for x, y, edge, yaw in boulders:
        reach = edge * math.sqrt(0.5)
        i0, i1 = max(0, math.ceil((x - reach) / cell)), min(nx - 1, math.floor((x + reach) / cell))
        j0, j1 = max(0, math.ceil((y - reach) / cell)), min(ny - 1, math.floor((y + reach) / cell))
        dx = (np.arange(i0, i1 + 1) * cell - x)[:, None]
        dy = (np.arange(j0, j1 + 1) * cell - y)[None, :]
        c, s = math.cos(yaw), math.sin(yaw)
        inside = (np.abs(c * dx + s * dy) <= 0.5 * edge) & (np.abs(c * dy - s * dx) <= 0.5 * edge)
        patch = heights[i0 : i1 + 1, j0 : j1 + 1]
        patch[inside] = np.maximum(patch[inside], np.float32(edge))
    return heights


class Arenas:
    """Arenas side by side in one world: arena k begins at y = k (width + gap) of the widest.

    Args:
        arenas: the arenas.
        seed: seed of the boulders.
        gap: distance between arenas, m.

    Attributes:
        ground: the ground of all arenas, for a simulator.
        offsets: y of each arena's corner, m.
    """

    def __init__(self, arenas: Sequence[Arena], seed: int = 0, gap: float = 10.0) -> None:
        self.arenas = tuple(arenas)
        pitch = max(arena.width for arena in arenas) + gap
        self.offsets = [k * pitch for k in range(len(arenas))]
        boxes: list[Box] = []
        fields: list[HeightField] = []
        self.tables: list[list[np.ndarray]] = []  # heights (nx, ny) of each zone, aprons included
        self.spacings: list[list[float]] = []
        for k, (arena, y) in enumerate(zip(arenas, self.offsets)):
            builder = _Builder(arena, y, boxes, fields)
            for number in range(len(arena.zones)):
                builder.add(number, seed + 1000 * k + number)
            self.tables.append(builder.tables)
            self.spacings.append(builder.spacings)
        self.ground = Ground(tuple(fields), tuple(boxes))

    def middle(self, arena: int) -> float:
        """Return y of an arena's middle line in the world, m."""
        return self.offsets[arena] + 0.5 * self.arenas[arena].width


class _Builder:
    """Adds the zones of one arena to lists of boxes and height fields, and makes tables for lookups."""

    def __init__(self, arena: Arena, y: float, boxes: list[Box], fields: list[HeightField]) -> None:
        self._arena, self._y, self._boxes, self._fields = arena, y, boxes, fields
        self.tables: list[np.ndarray] = []
        self.spacings: list[float] = []

    def add(self, number: int, seed: int) -> None:
        arena, zone = self._arena, self._arena.zones[number]
        x, base = arena.starts[number], arena.bases[number]
        first, last = number == 0, number == len(arena.zones) - 1
        if first:
            self._box(-arena.apron, 0.0, base, zone.friction)
        # ground, and a table of its heights, which metrics read
        if zone.type == BOULDERS:
            relief = boulder_heights(place_boulders(zone, arena.width, seed), zone.size, arena.width, zone.cell)
            field = HeightField(relief + np.float32(base), zone.cell, (x, self._y), zone.friction)
            self._fields.append(field)
            self._table(field.heights, zone.cell)
        elif zone.type == STAIRS:
            riser, tread = zone.difficulty[0], zone.tread
            self._box(x, x + tread, base, zone.friction)  # the zone begins with a tread
            for step in range(1, zone.risers + 1):
                end = x + (step + 1) * tread if step < zone.risers else x + zone.size
                self._box(x + step * tread, max(end, x + step * tread + 1e-3), base + step * riser, zone.friction)
            cells = np.arange(round(zone.size / _CELL))
            climbed = np.minimum(np.floor((cells + 0.5) * _CELL / tread), zone.risers)
            self._table((base + riser * climbed).astype(np.float32)[:, None], _CELL)
        else:
            self._box(x, x + zone.size, base, zone.friction)
            self._table(np.full((1, 1), base, dtype=np.float32), _CELL)
        # flat ground behind the last zone
        if last:
            end = arena.bases[-1]
            self._box(arena.length, arena.length + arena.apron, end, zone.friction)
            self.tables.append(np.full((1, 1), end, dtype=np.float32))
            self.spacings.append(_CELL)

    def _table(self, heights: np.ndarray, spacing: float) -> None:
        self.tables.append(heights)
        self.spacings.append(spacing)

    def _box(self, x0: float, x1: float, top: float, friction: float) -> None:
        width, height = self._arena.width, top + _DEPTH
        center = (0.5 * (x0 + x1), self._y + 0.5 * width, top - 0.5 * height)
        self._boxes.append(Box(center, (x1 - x0, width, height), 0.0, friction))


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
    # boulders lie on a grid that must end where their zone ends
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
    # keys that the zone's type has and needs
    for key, types in _OF_TYPE.items():
        if key in data and kind not in types:
            raise ValueError(f"{where}.{key} is for {' and '.join(types)} zones, and this one is {kind}")
        if key == "difficulty" and kind in types and key not in data:
            meaning = "the riser, m" if kind == STAIRS else "the smallest and largest edge, m, [low, high]"
            raise ValueError(f"{where}.difficulty is missing: {meaning}")
    if kind == BOULDERS and "count" not in data:
        raise ValueError(f"{where}.count is missing: the number of boulders")
    # difficulty: a riser, or the edges of the boulders
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


class ArenaLookup:
    """Heights, zones and drags of arenas by lookup on the device: batched, without a wait for the device.

    Positions are local: x and y from the arena's corner. Stairs are exact up to their cells of 5 cm; boulders are read
    as the triangles of their height field. Beyond the arena its edge counts.
    """

    def __init__(self, arenas: Arenas, device: torch.device | str) -> None:
        self.most = max(len(arena.zones) for arena in arenas.arenas)
        flat: list[np.ndarray] = []
        first, nx, ny, spacing, drag, begin = [], [], [], [], [], []
        total = 0
        for arena, tables, spacings in zip(arenas.arenas, arenas.tables, arenas.spacings):
            for number in range(self.most + 1):
                k = min(number, len(tables) - 1)  # the last table is the apron behind the arena
                if number < len(tables):
                    flat.append(tables[k].reshape(-1))
                    first.append(total)
                    total += tables[k].size
                else:
                    first.append(first[-1])
                nx.append(tables[k].shape[0])
                ny.append(tables[k].shape[1])
                spacing.append(spacings[k])
                drag.append(arena.zones[k].drag if k < len(arena.zones) else 0.0)
                begin.append(arena.starts[number] if number < len(arena.starts) else math.inf)
        flat.append(np.zeros(max(ny) + 2, dtype=np.float32))  # a table's last cell reads beyond its end

        def tensor(values: Any, kind: torch.dtype = torch.float32) -> Tensor:
            return torch.tensor(values, dtype=kind, device=device)

        self._heights = torch.from_numpy(np.concatenate(flat)).to(device)
        self._first, self._ny = tensor(first, torch.int64), tensor(ny, torch.int64)
        self._nx, self._spacing, self._drag = tensor(nx, torch.int64), tensor(spacing), tensor(drag)
        self._begin = tensor(begin).view(len(arenas.arenas), self.most + 1)
        self._smooth = (self._ny > 1).to(torch.float32)

    def zone(self, arena: Tensor, x: Tensor) -> Tensor:
        """Return the zone ``(n, ...)``, from 0, at x ``(n, ...)`` of arenas ``(n,)``.

        Behind the end of an arena, this is the number of its zones.
        """
        begin = self._begin[arena]
        begin = begin.view(len(arena), *[1] * (x.dim() - 1), self.most + 1)
        return ((x.unsqueeze(-1) >= begin).sum(-1) - 1).clamp(min=0)

    def heights(self, arena: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the height ``(n, ...)`` of the ground, m, at local x and y ``(n, ...)`` in arenas ``(n,)``."""
        number = self.zone(arena, x)
        start = arena.view(-1, *[1] * (x.dim() - 1))
        table = start * (self.most + 1) + number
        spacing, ny = self._spacing[table], self._ny[table]
        smooth = self._smooth[table]
        # a height field has cells between its nodes; in other tables each entry is a cell
        columns = self._nx[table] - smooth.to(torch.int64)
        u = (x - self._begin.view(-1)[table]) / spacing
        v = y / spacing
        i = torch.minimum(u.floor().clamp(min=0.0), (columns - 1).to(u.dtype))
        j = torch.minimum(v.floor().clamp(min=0.0), (ny - 2).clamp(min=0).to(v.dtype))
        u, v = (u - i).clamp(0.0, 1.0) * smooth, (v - j).clamp(0.0, 1.0) * smooth
        node = self._first[table] + i.to(torch.int64) * ny + j.to(torch.int64)
        return on_triangles(self._heights, node, ny, u, v)

    def drag(self, arena: Tensor, x: Tensor) -> Tensor:
        """Return the drag ``(n,)`` at local x ``(n,)``."""
        return self._drag[arena * (self.most + 1) + self.zone(arena, x)]
