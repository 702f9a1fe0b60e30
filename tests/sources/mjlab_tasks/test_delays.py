"""Delays of actuators, with mjlab's buffer as the oracle."""

import pytest
import torch
from driven import CARTPOLE, Driven, actions

pytest.importorskip("mjlab")

SETTINGS = [
    {"min_lag": 2, "max_lag": 2},
    {"min_lag": 0, "max_lag": 4, "hold_prob": 0.5},
    {"min_lag": 1, "max_lag": 3, "update_period": 3},
]


def _buffers(n, **settings):
    """mjlab's buffer and this package's, with the same draws."""
    from mjlab.utils.buffers import CircularBuffer, DelayBuffer

    from envcoder_bench.sources.mjlab_tasks.histories import ActuatorDelay, ShiftedBuffer

    generators = [torch.Generator().manual_seed(4) for _ in range(2)]
    expected, own = (DelayBuffer(batch_size=n, generator=generator, **settings) for generator in generators)
    own.__class__ = ActuatorDelay
    assert type(own._buffer) is CircularBuffer
    own._buffer.__class__ = ShiftedBuffer
    return expected, own


def _take(buffer, command):
    buffer.append(command)
    return buffer.compute().clone()


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_delay_is_mjlabs(settings):
    expected, own = _buffers(5, **settings)
    for k, command in enumerate(torch.rand(20, 5, 3)):
        if k == 9:
            for buffer in (expected, own):
                buffer.reset(torch.tensor([1, 4]))
        assert torch.equal(_take(own, command), _take(expected, command)), k


@pytest.mark.parametrize("settings", SETTINGS)
def test_where_no_episode_begins_a_delay_stays_as_it_is(settings):
    from envcoder_bench.sources.mjlab_tasks.histories import beginning

    expected, own = _buffers(4, **settings)
    commands, begins = torch.rand(12, 4, 3), torch.tensor([False, True, False, False])
    for command in commands[:8]:
        _take(own, command)
        before = _take(expected, command)
    frames, lags, steps = own._buffer._buffer.clone(), own.current_lags.clone(), own._step_count.clone()
    own.reset(begins.nonzero().flatten())
    with beginning([own], begins):
        first = _take(own, commands[8])
    assert torch.equal(first[~begins], before[~begins]) and torch.equal(first[begins], commands[8][begins])
    assert torch.equal(own._buffer._buffer[:, ~begins], frames[:, ~begins])
    assert torch.equal(own.current_lags[~begins], lags[~begins]) and own._step_count[begins].tolist() == [1]
    assert torch.equal(own._step_count[~begins], steps[~begins])
    assert (own._buffer._buffer[:, begins] == commands[8][begins]).all() and own.begins is None


@pytest.fixture(scope="module")
def delayed():
    """Registers Cartpole with an actuator that is late by 1 to 7 physics steps; the name."""
    from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, register_mjlab_task

    cfg, name = load_env_cfg(CARTPOLE), "Delayed-Cartpole"
    (robot,) = cfg.scene.entities.values()
    (actuator,) = robot.articulation.actuators
    actuator.delay_min_lag, actuator.delay_max_lag, actuator.delay_hold_prob = 1, 7, 0.5
    register_mjlab_task(name, cfg, cfg, load_rl_cfg(CARTPOLE))
    return name


LATE_ENDS = {"terminations": {"mine": lambda env: env.episode_length_buf == 3}}


@pytest.mark.slow
def test_delays_do_not_depend_on_the_resets_of_other_candidates(delayed):
    size = 3
    alone, among = Driven(delayed, size, limit=9), Driven(delayed, size, 3, patches=[{}, LATE_ENDS, {}], limit=9)
    lags = set()
    for k, action in enumerate(actions(size, 1, 24)):
        expected, results = alone.step(action), among.step(action)
        for group in (0, 2):
            for key, x in among.of_group(results, group).items():
                assert torch.equal(x, expected[key]), (k, group, key)
        lags.update(alone.task.world.delays[0].current_lags.tolist())
    assert len(lags) > 4 and max(lags) <= 7


@pytest.mark.slow
def test_delays_are_part_of_the_saved_state(delayed):
    rest = actions(3, 1, 12)
    first, other = Driven(delayed, 3, limit=9), Driven(delayed, 3, limit=9)
    for action in rest[:5]:
        first.step(action)
    other.task.set_state(first.task.get_state())
    other.steps = first.steps
    for k, action in enumerate(rest[5:]):
        expected, results = first.step(action), other.step(action)
        assert all(torch.equal(results[key], x) for key, x in expected.items()), k


@pytest.mark.slow
def test_a_delay_makes_a_difference(delayed):
    late, prompt = Driven(delayed, 3), Driven(CARTPOLE, 3)
    for action in actions(3, 1, 2):
        expected, results = prompt.step(action), late.step(action)
    assert not torch.equal(results["obs_buf"], expected["obs_buf"])
