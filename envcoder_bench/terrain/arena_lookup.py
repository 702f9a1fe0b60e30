"""Heights, zones and drags of arenas, read on the device."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.terrain.arenas import Arenas
from envcoder_bench.terrain.scan import on_triangles


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
                    own_first, total = total, total + tables[k].size
                    first.append(own_first)
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
        """Return the zone ``(n, ...)``, from 0, at x ``(n, ...)`` of arenas ``(n,)``; behind the last, one more."""
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
        # cells of a height field lie between nodes, those of other tables are their entries
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
