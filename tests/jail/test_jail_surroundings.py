"""Clocks that files in the jail see."""

import time

import pytest

from envcoder_bench.jail import surroundings


@pytest.fixture
def clocks(monkeypatch):
    for name in dir(time):
        monkeypatch.setattr(time, name, getattr(time, name))  # restores it
    surroundings.replace_clocks()


def test_clocks_tick_begin_anew_and_can_be_set_ahead(clocks):
    surroundings.start_clocks()
    first, second = time.time(), time.monotonic()
    assert 0 < second - first < 1
    with surroundings.clocks_ahead():
        assert time.perf_counter() - first > 1e6 and time.time_ns() - first * 1e9 > 1e15
    assert 0 < time.time() - second < 1
    surroundings.start_clocks()
    assert time.time() == first
