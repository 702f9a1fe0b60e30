"""Commands, ends and every metric, compared with hand-computed episodes."""

import math

import pytest
import torch

from envcoder_bench.grid.protocol import ENDS, Episodes, result
from envcoder_bench.grid.settings import compose_settings

STARTS = [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]


def _episodes(n: int = 1, *words: str) -> Episodes:
    return Episodes(compose_settings(words), torch.full((n,), 50.0), torch.full((n,), 15.0), 5)


def _quat(roll: float = 0.0, pitch: float = 0.0, yaw: float = 0.0) -> list[float]:
    """Return xyzw of a rotation by yaw, then pitch, then roll."""
    (cr, cp, cy), (sr, sp, sy) = ([f(0.5 * a) for a in (roll, pitch, yaw)] for f in (math.cos, math.sin))
    return [
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
        cr * cp * cy + sr * sp * sy,
    ]


def _step(
    episodes: Episodes, x=1.0, y=15.0, height=0.5, quat=None, velocity=0.0, turning=0.0, power=0.0, unstable=False
):
    n = len(episodes.end)
    row = torch.full((n,), 0.0)
    x, y, height, velocity, turning, power = (row + value for value in (x, y, height, velocity, turning, power))
    quats = torch.tensor([quat or _quat()] * n)
    zone = (x / 10.0).floor().clamp(0, 4).to(torch.int64)
    episodes.update(x, y, height, quats, velocity, turning, power, zone, torch.full((n,), unstable))


def _result(episodes: Episodes, row: int = 0) -> dict:
    return result(episodes.settings, STARTS, {name: tensor[row].tolist() for name, tensor in episodes.state.items()})


def test_episode_metrics_match_hand_computed_values() -> None:
    """Three control steps: roll .1, -.3, .2; pitch -.2, 0, .1; height .5, .6, .1 (a fall in zone 2)."""
    episodes = _episodes()
    _step(episodes, x=9.0, height=0.5, quat=_quat(0.1, -0.2, 0.7), velocity=1.0, turning=0.4, power=100.0)
    _step(episodes, x=12.0, height=0.6, quat=_quat(-0.3, 0.0), velocity=0.5, turning=0.2, power=50.0)
    _step(episodes, x=11.0, y=14.0, height=0.1, quat=_quat(0.2, 0.1), velocity=-0.3, turning=0.6, power=30.0)
    _step(episodes, x=48.0, power=1e6)  # after the end: nothing counts
    found = _result(episodes)
    mean_height = (0.5 + 0.6 + 0.1) / 3
    variance = ((0.5 - mean_height) ** 2 + (0.6 - mean_height) ** 2 + (0.1 - mean_height) ** 2) / 3
    score = 0.2 + 0.1 + 10.0 * variance + 0.5 * 0.4
    wanted = {
        "completion": False, "progress": 12.0, "zone_reached": 2, "time_to_complete": None, "stability_score": score,
        "mean_roll": 0.2, "mean_pitch": 0.1, "height_variance": variance, "mean_ang_vel": 0.4, "fall_detected": True,
        "flip_detected": False, "fall_location": [11.0, 14.0], "fall_zone": 2, "mean_velocity": 0.4,
        "total_energy": 180.0 * 0.02, "episode_length": 3, "end": "fall",
    }  # fmt: skip
    for name, value in wanted.items():
        assert found[name] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value), name
    first, second = found["zone_stability"][:2]
    assert first == pytest.approx(0.1 + 0.2 + 0.5 * 0.4, rel=1e-6)
    assert second == pytest.approx(0.25 + 0.05 + 10.0 * 0.0625 + 0.5 * 0.4, rel=1e-6)
    assert found["zone_stability"][2:] == [None] * 3


def test_a_fall_is_in_the_zone_where_it_happened_not_in_the_farthest() -> None:
    episodes = _episodes()
    _step(episodes, x=21.0)
    _step(episodes, x=19.0, y=14.0, height=0.1)
    found = _result(episodes)
    assert (found["zone_reached"], found["fall_zone"], found["fall_location"]) == (3, 2, [19.0, 14.0])


def test_episode_completes_at_49_m_and_ends_at_49_5_m() -> None:
    episodes = _episodes()
    for x in (48.9, 49.1, 49.4, 49.5):
        assert ENDS[int(episodes.end[0])] == "running"
        _step(episodes, x=x)
    found = _result(episodes)
    assert (found["completion"], found["end"], found["episode_length"]) == (True, "finish", 4)
    assert found["time_to_complete"] == pytest.approx(2 * 0.02)
    assert found["zone_reached"] == 5


@pytest.mark.parametrize("axis", ["roll", "pitch"])
def test_tilt_over_2_618_is_a_flip(axis) -> None:
    episodes = _episodes()
    _step(episodes, quat=_quat(**{axis: 2.61}))
    assert ENDS[int(episodes.end[0])] == "running"
    _step(episodes, quat=_quat(**{axis: 2.63}), height=0.2)
    found = _result(episodes)
    assert found["flip_detected"] and not found["fall_detected"] and found["end"] == "flip"
    assert found["fall_location"] == [1.0, 15.0]


def test_of_several_ends_at_one_step_the_strongest_is_counted() -> None:
    causes = {
        "finish": {"x": 49.9},
        "fall": {"height": 0.1},
        "flip": {"quat": _quat(roll=3.0)},
        "unstable": {"unstable": True},
    }
    step = {}
    for name, cause in causes.items():  # each in addition to those before it, and to the time limit
        step |= cause
        episodes = _episodes(1, "seconds=0.02")
        _step(episodes, **step)
        assert ENDS[int(episodes.end[0])] == name


def test_episode_ends_at_the_time_limit() -> None:
    episodes = _episodes(1, "seconds=0.1")
    for _ in range(5):
        assert ENDS[int(episodes.end[0])] == "running"
        _step(episodes)
    assert _result(episodes)["end"] == "limit"
    assert _result(episodes)["episode_length"] == 5


def test_unstable_step_ends_the_episode_and_is_not_counted() -> None:
    episodes = _episodes()
    _step(episodes, x=3.0, power=10.0)
    _step(episodes, x=30.0, power=1e9, unstable=True)
    found = _result(episodes)
    assert (found["end"], found["progress"], found["fall_detected"]) == ("unstable", 3.0, False)
    assert found["total_energy"] == pytest.approx(0.2)


def test_default_protocol_has_the_published_values() -> None:
    settings = compose_settings()
    commands, ends = settings.commands, settings.ends
    assert (settings.steps, settings.dt) == (30_000, 0.02)
    assert (commands.vx, commands.vy, commands.yaw_gain, commands.max_wz) == (1.0, 0.0, 2.0, 2.0)
    assert (ends.fall_height, ends.flip_angle) == (0.15, 2.618)


def _commands(episodes: Episodes, x: float, y: float, yaw: float) -> list[float]:
    column = torch.zeros(len(episodes.end))
    return episodes.commands(column + x, column + y, column + yaw)[0].tolist()


@pytest.mark.parametrize(
    "x, y, yaw, wz",
    [
        (0.0, 15.0, 0.0, 0.0),
        (0.0, 15.0, 0.2, -0.4),
        (0.0, 5.0, 0.0, 2.0 * math.pi / 4),  # 45 degrees to the left
        (0.0, 15.0, 3.0, -2.0),  # clipped
        (9.0, 14.0, math.pi / 4 - 2.0 * math.pi, 0.0),  # wrapped
        (12.0, 15.0, 0.0, 0.0),
    ],
)
def test_commands_turn_towards_the_next_waypoint(x, y, yaw, wz) -> None:
    assert _commands(_episodes(), x, y, yaw) == pytest.approx([1.0, 0.0, wz], abs=1e-5)


def test_waypoint_advances_half_a_metre_before_the_current_one() -> None:
    episodes = _episodes()
    for x, waypoint in ((9.49, 1), (9.5, 2), (9.0, 2), (19.6, 3), (49.6, 4), (49.6, 5), (49.6, 5)):
        _commands(episodes, x, 15.0, 0.0)
        assert int(episodes.state["waypoint"][0]) == waypoint
