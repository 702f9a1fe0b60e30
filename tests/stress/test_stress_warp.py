"""Stress in MuJoCo Warp: the same disturbances as in MuJoCo, on a device without waits."""

import pytest
import torch
from scripted import ANYMAL, STANDS
from scripted_policies import groups_of, stress_of

from envcoder_bench.results.stress import MOTION, Settings

NAMES = ["stand"]
CUDA = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda:0", marks=CUDA, id="cuda")]
)
def test_warp_plays_the_grid_as_mujoco_does(device):
    """A robot that stands shows all disturbances before its contacts do: float32 has not grown yet."""
    settings = Settings(1, draws=8, episodes=1, milliseconds=200)
    plain, warp = (
        stress_of(*groups_of("Anymal", ANYMAL, NAMES, (f"sim={sim}", f"device={on}")), STANDS, settings)
        for sim, on in (("mujoco_cpu", "cpu"), ("mujoco_warp", device))
    )
    assert len(plain.rows) == len(warp.rows) == 9
    for one, two in zip(plain.rows, warp.rows):
        assert two.survival == one.survival and two.fitness == pytest.approx(one.fitness, rel=1e-2)
        assert two.motion == pytest.approx(one.motion, rel=5e-2, abs=1e-3, nan_ok=True), one.draw
        assert set(two.motion) <= set(MOTION)
    assert len({row.fitness for row in warp.rows}) > 6  # draws differ
