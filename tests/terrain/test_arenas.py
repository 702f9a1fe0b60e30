"""Arenas: boulders and stairs have the sizes asked for, lookups agree with rays, and bad YAML is named."""

import mujoco
import numpy as np
import pytest
import torch

from envcoder_bench.sim.mujoco_model import put_ground
from envcoder_bench.terrain.arenas import Arena, ArenaLookup, Arenas, Zone, boulder_heights, place_boulders, read_arena

MIXED = Arena(
    "mixed",
    (
        Zone("flat", 2.0, friction=0.5, drag=3.0),
        Zone("stairs", 3.0, (0.13,), friction=0.4, count=9),
        Zone("boulders", 4.0, (0.25, 0.35), friction=0.3, count=12, cell=0.05),
        Zone("flat", 1.0),
    ),
    width=6.0,
    apron=1.0,
)


class Rays:
    """Rays straight down onto arenas, in MuJoCo."""

    def __init__(self, arenas: Arenas) -> None:
        spec = mujoco.MjSpec()
        put_ground(spec, arenas.ground)
        self.model = spec.compile()
        self.data = mujoco.MjData(self.model)
        mujoco.mj_kinematics(self.model, self.data)
        self.above = 40.0

    def height(self, x: float, y: float) -> float:
        """Return the height of the ground."""
        return self.above - self._cast([x, y, self.above], [0.0, 0.0, -1.0])

    def wall(self, x: float, y: float, z: float) -> float:
        """Return where a ray along x from a point hits the ground."""
        return x + self._cast([x, y, z], [1.0, 0.0, 0.0])

    def _cast(self, start: list[float], along: list[float]) -> float:
        found = np.zeros(1, dtype=np.int32)
        args = (np.array(start), np.array(along), None, 1, -1, found)
        return mujoco.mj_ray(self.model, self.data, *args)


@pytest.fixture(scope="module")
def two():
    return Arenas([MIXED, Arena("plain", (Zone("flat", 3.0),), 6.0, 1.0)], seed=4, gap=2.0)


@pytest.mark.parametrize("riser", [0.03, 0.08, 0.13, 0.18, 0.23])
def test_stairs_have_the_requested_risers_and_treads(riser) -> None:
    arena = Arena("stairs", (Zone("stairs", 10.0, (riser,), count=33),), 4.0)
    rays = Rays(Arenas([arena]))
    for step in range(34):
        end = 0.3 * (step + 1) if step < 33 else 10.0
        assert rays.height(0.5 * (0.3 * step + end), 2.0) == pytest.approx(step * riser, abs=1e-6)
        if step < 33:  # the next riser is vertical
            assert rays.wall(0.3 * step + 0.01, 2.0, (step + 0.5) * riser) == pytest.approx(end, abs=1e-6)
    assert arena.bases[-1] == pytest.approx(33 * riser)


@pytest.mark.parametrize("low, high, cell", [(0.03, 0.05, 0.05), (0.10, 0.15, 0.05), (0.8, 1.2, 0.1)])
def test_boulder_height_and_width_equal_its_edge(low, high, cell) -> None:
    zone = Zone("boulders", 10.0, (low, high), count=1, cell=cell)
    arenas = Arenas([Arena("one", (zone,), 30.0)], seed=5)
    x, y, edge, yaw = place_boulders(zone, 30.0, 5)[0]
    assert low <= edge <= high
    rays, step = Rays(arenas), cell / 10
    assert rays.height(x, y) == pytest.approx(edge, abs=1e-4)
    along = np.array([np.cos(yaw), np.sin(yaw)])
    places = np.arange(-edge, edge, step)
    heights = np.array([rays.height(*(np.array([x, y]) + s * along)) for s in places])
    width = step * np.count_nonzero(heights > 0.5 * edge)
    assert width == pytest.approx(edge, abs=1.1 * cell)  # up to the height field's cells
    assert heights.max() <= edge + 1e-4


def test_boulders_have_the_requested_count_and_sizes() -> None:
    zone = Zone("boulders", 10.0, (0.10, 0.15), count=2400, cell=0.05)
    boulders = place_boulders(zone, 30.0, 0)
    assert boulders.shape == (2400, 4)
    assert boulders[:, 2].min() >= 0.10 and boulders[:, 2].max() <= 0.15
    assert boulders[:, 2].mean() == pytest.approx(0.125, abs=0.002)
    assert np.array_equal(boulders, place_boulders(zone, 30.0, 0))
    assert not np.array_equal(boulders, place_boulders(zone, 30.0, 1))
    heights = boulder_heights(boulders, 10.0, 30.0, 0.05)
    covered = np.mean(heights > 0)
    assert covered == pytest.approx(1.0 - np.exp(-np.sum(boulders[:, 2] ** 2) / 300.0), abs=0.01)  # placed at random


def test_lookup_matches_ray_casts(two) -> None:
    rays, lookup = Rays(two), ArenaLookup(two, "cpu")
    generator = np.random.Generator(np.random.PCG64(0))
    points = generator.random((400, 2)) * [11.0, 6.0] + [-0.5, 0.0]
    x, y = torch.from_numpy(points).float().T
    arena = torch.zeros(400, dtype=torch.int64)
    found = lookup.heights(arena, x, y)
    cast = torch.tensor([rays.height(*point) for point in points])
    close = (found - cast).abs() < 2e-3
    assert close.float().mean() > 0.98  # at vertical risers a point may lie on either side of a float's rounding
    other = lookup.heights(arena + 1, x.clamp(max=2.9), y)
    assert torch.equal(other, torch.zeros(400))


def test_zones_and_drags_are_looked_up_by_x(two) -> None:
    lookup = ArenaLookup(two, "cpu")
    x = torch.tensor([-0.5, 0.0, 1.99, 2.0, 4.99, 5.0, 9.5, 10.5])
    arena = torch.zeros(8, dtype=torch.int64)
    assert lookup.zone(arena, x).tolist() == [0, 0, 0, 1, 1, 2, 3, 4]
    assert lookup.drag(arena, x).tolist() == [3.0, 3.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert lookup.zone(arena + 1, torch.tensor([0.0] * 4 + [2.9] * 2 + [3.1] * 2)).tolist() == [0] * 6 + [1] * 2


def test_zones_have_separate_frictions(two) -> None:
    frictions = {box.friction for box in two.ground.boxes} | {field.friction for field in two.ground.height_fields}
    assert frictions == {0.5, 0.4, 0.3, 0.8}


def test_arenas_are_side_by_side(two) -> None:
    rays = Rays(two)
    assert two.offsets == [0.0, 8.0]
    assert rays.height(1.0, 8.5) == 0.0
    assert rays.height(1.0, 7.0) > rays.above  # -1: nothing is hit in the gap


GOOD = {"zones": [{"type": "flat", "size": 5}, {"type": "stairs", "difficulty": 0.1}]}


def test_yaml_arena_is_loaded() -> None:
    arena = read_arena("mine.yaml", {**GOOD, "width": 8})
    assert [zone.type for zone in arena.zones] == ["flat", "stairs"]
    assert arena.length == 15.0 and arena.width == 8.0
    assert arena.zones[1].risers == 33


def _with(**zone):
    return {"zones": [{"type": "flat"}, zone]}


@pytest.mark.parametrize(
    "data, message",
    [
        ([], "an arena is a mapping with the key zones"),
        ({"zone": []}, "unknown key 'zone' (did you mean zones?)"),
        ({"zones": []}, "zones must be a list with at least one zone"),
        (_with(type="flt"), "zones[1].type must be flat, stairs, boulders, got 'flt' (did you mean flat?)"),
        (_with(type="flat", frictn=1), "zones[1]: unknown key 'frictn' (did you mean friction?)"),
        (_with(type="flat", friction="low"), "zones[1].friction must be a number, got 'low'"),
        (_with(type="flat", drag=-1), "zones[1].drag must be at least 0, got -1"),
        (_with(type="flat", size=0), "zones[1].size must be greater than 0, got 0"),
        (_with(type="flat", count=3), "zones[1].count is for stairs and boulders zones, and this one is flat"),
        (_with(type="stairs"), "zones[1].difficulty is missing: the riser, m"),
        (_with(type="boulders", difficulty=[0.1, 0.2]), "zones[1].count is missing"),
        (_with(type="boulders", difficulty=[0.2, 0.1], count=3), "zones[1].difficulty must be a riser"),
        (_with(type="stairs", difficulty=0.1, size=1.0, count=9), "9 risers with treads of 0.3 m do not fit in 1.0 m"),
        (_with(type="boulders", difficulty=[0.1, 0.2], count=3, size=1.02), "zones[1].size must be a multiple"),
    ],
)
def test_invalid_yaml_is_reported_with_its_key(data, message) -> None:
    with pytest.raises(ValueError) as error:
        read_arena("mine.yaml", data)
    assert message in str(error.value)
    assert str(error.value).startswith("mine.yaml: ")
