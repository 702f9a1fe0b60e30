"""Recordings: their file, their fitness, and which frames and places a video shows."""

import numpy as np
import pytest

from envcoder_bench.video.recording import Episode, Recording
from envcoder_bench.video.views import frame_steps, markers


def recording(steps=10, ended="", summed=False, full=10, **more):
    fitness = np.ones(steps, np.float32)
    if ended:
        fitness[-1] = 0.0
    qpos = np.zeros((steps + 1, 7), np.float32)
    qpos[:, 3] = 1.0
    episode = Episode("a", 3, qpos, fitness, 2 * fitness, {"part/1": fitness}, ended=ended, **more)
    return Recording("Anymal", 0.02, full, summed, episodes=[episode])


def test_recording_round_trips(tmp_path):
    made = recording(goals={"commands": np.ones((11, 3), np.float32)}, mocap_pos=np.ones((11, 1, 3), np.float32))
    made.save(tmp_path / "r.npz")
    read = Recording.load(tmp_path / "r.npz")
    assert (read.task, read.dt, read.full_episode, read.summed) == ("Anymal", 0.02, 10, False)
    own, other = read.episodes[0], made.episodes[0]
    assert (own.name, own.seed, own.ended) == ("a", 3, "") and own.mocap_quat is None
    for key in ("qpos", "fitness", "reward", "mocap_pos"):
        np.testing.assert_array_equal(getattr(own, key), getattr(other, key))
    assert list(own.components) == ["part/1"]
    np.testing.assert_array_equal(own.goals["commands"], other.goals["commands"])


@pytest.mark.parametrize(
    "summed, steps, ended, at, value",
    [
        (False, 10, "", 10, 1.0),
        (False, 10, "", 5, 1.0),
        (False, 4, "terminated", 4, 0.75),
        (False, 4, "terminated", 10, 0.3),  # the steps after the end count 0
        (True, 4, "terminated", 10, 3.0),
        (True, 10, "", 0, 0.0),
    ],
)
def test_fitness_at_a_step_is_cumulative(summed, steps, ended, at, value):
    made = recording(steps, ended, summed)
    assert made.fitness_at(made.episodes[0], at) == pytest.approx(value)
    if at == 10:
        assert made.episode_fitness(made.episodes[0]) == pytest.approx(value)


def test_arrows_show_commanded_and_actual_velocity():
    commands = np.tile(np.array([1.0, 0.0, 0.5], np.float32), (11, 1))
    made = recording(goals={"commands": commands})
    wanted, actual, turn = markers(made, made.episodes[0], 10)
    np.testing.assert_allclose(wanted.vector, [0.5, 0, 0], atol=1e-6)
    np.testing.assert_allclose(actual.vector, [0, 0, 0], atol=1e-6)
    assert turn.vector[1] > 0  # to the left
    assert markers(recording(), recording().episodes[0], 3) == []


def test_cube_shows_the_goal_orientation():
    quarter = np.tile(np.array([0, 0, 1, 1], np.float32) / np.sqrt(2), (11, 1))  # xyzw: a quarter turn about z
    made = recording(goals={"goal_rot": quarter})
    cube, *axes = markers(made, made.episodes[0], 3)
    np.testing.assert_allclose(cube.axes[:, 0], [0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(axes[0].vector / np.linalg.norm(axes[0].vector), [1, 0, 0], atol=1e-6)  # of the object
    np.testing.assert_allclose(axes[3].vector / np.linalg.norm(axes[3].vector), [0, 1, 0], atol=1e-6)


def test_cube_shows_the_goal_position():
    point = np.tile(np.array([1, 2, 3], np.float32), (11, 1))
    made = recording(goals={"goal_pos": point})
    (cube,) = markers(made, made.episodes[0], 3)
    np.testing.assert_allclose(cube.centre, [1, 2, 3])


def test_frames_are_in_real_time():
    for fps, seconds, last, count in ((50, None, 100, 101), (25, None, 100, 51), (10, 1.0, 50, 11)):
        steps = frame_steps(recording(100, full=100), fps, seconds)
        assert steps[0] == 0 and steps[-1] == last and len(steps) == count
