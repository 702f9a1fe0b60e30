"""Heights of a ground under points, by lookup on the device: batched, without a wait for the device."""

import torch
from torch import Tensor

from envcoder_bench.sim.ground import Ground


class HeightLookup:
    """The height of a ground's upper surface at points of the plane.

    Height fields are read as the triangles on which robots stand. Each point is compared with every box. A point beyond
    all fields and boxes has the height of the nearest edge of a field.

    Args:
        ground: the ground.
        device: torch device of points and results.

    Attributes:
        friction: ``(fields + boxes,)`` coefficients, in the order of the indices that ``zones`` returns.
    """

    def __init__(self, ground: Ground, device: torch.device | str = "cpu") -> None:
        fields, boxes = ground.height_fields, ground.boxes

        def tensor(rows: list, columns: int) -> Tensor:
            return torch.tensor(rows, dtype=torch.float32, device=device).view(-1, columns)

        # heights of all fields in one tensor, and the first index of each field
        sizes = [field.heights.size for field in fields]
        flat = [torch.from_numpy(field.heights).reshape(-1) for field in fields]
        self._heights = torch.cat(flat).to(device) if flat else torch.zeros(0, device=device)
        first = [sum(sizes[:k]) for k in range(len(fields))]
        self._first = torch.tensor(first, dtype=torch.int64, device=device)
        self._ny = torch.tensor([field.heights.shape[1] for field in fields], dtype=torch.int64, device=device)
        self._corner = tensor([field.corner for field in fields], 2)
        self._spacing = tensor([[field.spacing] for field in fields], 1)[:, 0]
        self._cells = tensor([[n - 1 for n in field.heights.shape] for field in fields], 2)
        self._center = tensor([box.center for box in boxes], 3)
        self._half = 0.5 * tensor([box.size for box in boxes], 3)
        yaw = tensor([[box.yaw] for box in boxes], 1)[:, 0]
        self._cos, self._sin = torch.cos(yaw), torch.sin(yaw)
        self.friction = tensor([[part.friction] for part in (*fields, *boxes)], 1)[:, 0]

    def heights(self, points: Tensor) -> Tensor:
        """Return the height ``(...)``, m, under points ``(..., 2)``: x and y in the world frame, m."""
        return self._look_up(points)[0]

    def zones(self, points: Tensor) -> Tensor:
        """Return the index ``(...)`` int64 of the height field or box that is the upper surface at points ``(..., 2)``.

        Boxes are counted after the height fields.
        """
        return self._look_up(points)[1]

    def _look_up(self, points: Tensor) -> tuple[Tensor, Tensor]:
        if not len(self._first):
            return self._on_boxes(points)
        height, zone, beyond = self._on_fields(points)
        if len(self._half):
            top, box = self._on_boxes(points)
            higher = (top > height) | (beyond & (top > -torch.inf))
            zone = torch.where(higher, box + len(self._first), zone)
            height = torch.where(higher, top, height)
        return height, zone

    def _on_fields(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the height, the index of the nearest field, and whether the point lies beyond all fields."""
        if len(self._first) == 1:
            zone = torch.zeros_like(points[..., 0], dtype=torch.int64)
        else:
            offset = points.unsqueeze(-2) - self._corner  # (..., fields, 2)
            size = self._cells * self._spacing.unsqueeze(-1)
            outside = torch.maximum(-offset, offset - size).clamp(min=0.0)
            zone = (outside * outside).sum(-1).argmin(-1)  # the first field that contains the point
        cells = self._cells[zone]
        offset = (points - self._corner[zone]) / self._spacing[zone].unsqueeze(-1)
        beyond = ((offset < 0.0) | (offset > cells)).any(-1)
        offset = torch.minimum(offset.clamp(min=0.0), cells)
        cell = torch.minimum(offset.floor(), cells - 1.0)
        u, v = (offset - cell).unbind(-1)
        index = cell.to(torch.int64)
        ny = self._ny[zone]
        node = self._first[zone] + index[..., 0] * ny + index[..., 1]
        return on_triangles(self._heights, node, ny, u, v), zone, beyond

    def _on_boxes(self, points: Tensor) -> tuple[Tensor, Tensor]:
        offset = points.unsqueeze(-2) - self._center[:, :2]
        x = self._cos * offset[..., 0] + self._sin * offset[..., 1]
        y = self._cos * offset[..., 1] - self._sin * offset[..., 0]
        inside = (x.abs() <= self._half[:, 0]) & (y.abs() <= self._half[:, 1])
        tops = torch.where(inside, self._center[:, 2] + self._half[:, 2], -torch.inf)
        return tops.max(-1)


def on_triangles(heights: Tensor, node: Tensor, ny: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Return heights on the two triangles of cells, which the diagonal from the node with the lowest x and y divides.

    Args:
        heights: heights of all nodes; y varies fastest.
        node, ny: index of the cell's first node, and nodes along y.
        u, v: position in the cell along x and y, 0 to 1.
    """
    low, high = heights[node], heights[node + ny + 1]
    below = u >= v  # the third node lies along x below the diagonal, along y above it
    side = heights[torch.where(below, node + ny, node + 1)]
    first, last = torch.where(below, u, v), torch.where(below, v, u)
    return low + first * (side - low) + last * (high - side)


def scan_points(xs: list[float], ys: list[float], device: torch.device | str = "cpu") -> Tensor:
    """Return the grid ``(len(xs) * len(ys), 2)`` of points around a base, m; y varies fastest."""
    x = torch.tensor(xs, dtype=torch.float32, device=device)
    y = torch.tensor(ys, dtype=torch.float32, device=device)
    return torch.stack(torch.meshgrid(x, y, indexing="ij"), dim=-1).reshape(-1, 2)


def height_scan(lookup: HeightLookup, root_states: Tensor, points: Tensor) -> Tensor:
    """Return heights ``(n, points)``, m, of the ground under ``points`` ``(points, 2)`` around bases.

    The grid moves with the base and turns with its yaw, but does not tilt.

    Args:
        root_states: ``(n, 13)``, states of the bases as in ``Simulator``.
    """
    return lookup.heights(torch.stack(turned(root_states[:, 3:7], points), dim=-1) + root_states[:, None, :2])


def turned(quat: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Return x and y ``(n, points)`` of points ``(points, 2)`` that turn with the yaw of bases, quaternions xyzw."""
    x, y, z, w = quat.unbind(-1)
    # the base's x axis in the horizontal plane
    forward, left = w * w + x * x - y * y - z * z, 2.0 * (x * y + w * z)
    norm = torch.sqrt(forward * forward + left * left).clamp(min=1e-9)
    c, s = (forward / norm).unsqueeze(-1), (left / norm).unsqueeze(-1)
    px, py = points[:, 0], points[:, 1]
    return c * px - s * py, s * px + c * py
