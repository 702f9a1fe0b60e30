"""Planted responses to commands of velocity are found by their columns; what a robot does not measure is named."""

from types import SimpleNamespace

import numpy as np
import pytest
from scripted import ANYMAL, CARTPOLE, STANDS
from scripted_policies import Script, groups_of

from envcoder_bench.core.errors import UserError
from envcoder_bench.stress.commands import LEVELS, STILL, probe_commands, responses
from envcoder_bench.stress.episodes import acting
from envcoder_bench.stress.sensors import unmeasured
from envcoder_bench.tasks.sim_task import SimTask

DT, STEPS = 0.02, 250
AXES = {"x": 2.0, "y": 1.0, "yaw": 1.0}


def responses_of(follow):
    """Return the rows of a robot whose velocity along each axis is ``follow(command, time)``."""
    time = DT * np.arange(STEPS)
    seen = np.zeros((STILL + 3 * len(LEVELS), STEPS, 3))
    for k, end in enumerate(AXES.values()):
        seen[:, :, k] = follow(0.0, time)
        for level, lane in zip(LEVELS, range(STILL + k * len(LEVELS), STILL + (k + 1) * len(LEVELS))):
            seen[lane, :, k] = follow(end * level, time)
    return {row.axis: row for row in responses("a", 0, seen, AXES, width=10)}


def lagging(command, time):
    return command * (1.0 - np.exp(-time / 0.1))


PLANTED = {
    "dead_zone": lambda command, time: lagging(command if abs(command) > 0.3 else 0.0, time),
    "drift": lambda command, time: lagging(command, time) + 0.2,
    "overshoot": lambda command, time: command * (1.0 - np.exp(-time / 0.6) * np.cos(4.0 * time)),
    "gain": lambda command, time: 0.5 * lagging(command, time),
}


@pytest.mark.parametrize("column", PLANTED)
def test_each_planted_response_is_found_by_its_column_alone(column):
    sound, planted = responses_of(lagging), responses_of(PLANTED[column])
    usual = {"gain": 1.0, "dead_zone": 0.0, "drift": 0.0, "overshoot": 0.0, "ended": 0.0}
    for axis, row in sound.items():
        assert {name: getattr(row, name) for name in usual} == pytest.approx(usual, abs=0.01), axis
        others = {name: value for name, value in usual.items() if name != column}
        # a constant drift also shifts the responses to small commands, and their overshoot
        others = {"gain": 1.0, "ended": 0.0} if column == "drift" else others
        assert {name: getattr(planted[axis], name) for name in others} == pytest.approx(others, abs=0.05), axis
        assert abs(getattr(planted[axis], column) - usual[column]) > 0.15, axis
    assert planted["x"].dead_zone == (0.2 if column == "dead_zone" else pytest.approx(planted["x"].dead_zone))


def test_a_policy_that_does_not_respond_has_a_dead_zone_over_the_whole_range():
    rows = responses_of(lambda command, time: 0.0 * time)
    assert {axis: row.dead_zone for axis, row in rows.items()} == AXES
    assert all(np.isnan(row.overshoot) for row in rows.values())


def test_episodes_that_end_are_counted_and_left_out():
    def falls(command, time):
        return np.where((abs(command) > 0.9) & (time > 1.0), np.nan, lagging(command, time))

    rows = responses_of(falls)
    assert rows["y"].ended == 0.25 and rows["y"].gain == pytest.approx(1.0, abs=0.01) and rows["x"].ended == 0.5


def test_a_robot_that_stands_does_not_follow_and_a_cart_has_no_commands():
    spec, groups = groups_of("Anymal", ANYMAL, ["stand"], ("task.env.learn.episodeLength_s=1",))
    rows, reason = probe_commands(spec, groups, lambda env: acting(env, [Script(STANDS["stand"])]))
    assert [row.axis for row in rows] == [*AXES] and not reason
    assert all(abs(row.gain) < 0.01 and row.drift < 0.1 and row.ended == 0.0 for row in rows)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(UserError, match="does not give access to its robot"):
        patch.setattr(SimTask, "robot", lambda self: None)
        probe_commands(spec, groups, lambda env: acting(env, []))
    spec, groups = groups_of("Cartpole", CARTPOLE, ["a"])
    rows, reason = probe_commands(spec, groups, lambda env: acting(env, []))
    assert not rows and reason == "the task does not have commands of velocity"


@pytest.mark.parametrize(
    "loads, wanted",
    [
        ([("dof_pos", 3), ("root_states", 4), ("root_states", 11)], []),
        ([("root_states", 7)], ["the base's linear velocity"]),
        ([("root_states", 1), ("measured_heights", 90)], ["the base's position", "heights of the ground"]),
        (None, ["not known: its observation is not compiled"]),
    ],
)
def test_what_a_robot_does_not_measure_is_named(loads, wanted):
    programs = {}
    if loads is not None:
        nodes = [SimpleNamespace(op="load", name=name, column=column) for name, column in loads]
        programs["observation"] = SimpleNamespace(nodes=[*nodes, SimpleNamespace(op="mul")])
    group = SimpleNamespace(evaluation=SimpleNamespace(programs=programs))
    assert unmeasured(group) == wanted  # pyright: ignore[reportArgumentType]
