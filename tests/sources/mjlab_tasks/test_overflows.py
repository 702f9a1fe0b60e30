"""No model of MuJoCo Warp prints a line for each overflow; overflows are counted instead."""

import re
from importlib.util import find_spec
from pathlib import Path

import mujoco
import mujoco_warp
import numpy as np
import pytest

from mujoco_batches.physics import warp_device

REPO = Path(__file__).parents[3]
needs_mjlab = pytest.mark.skipif(find_spec("mjlab") is None, reason="mjlab is not installed")
# a box on a plane, for which one iteration is not enough
XML = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 1" euler="10 20 0"><freejoint/>
<geom type="box" size="0.1 0.1 0.1"/></body></worldbody></mujoco>"""


@pytest.fixture
def models(monkeypatch):
    """The models of MuJoCo Warp that are made in a test."""
    made, put_model = [], mujoco_warp.put_model

    def noting(*args, **kwargs):
        made.append(put_model(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(mujoco_warp, "put_model", noting)
    return made


def _simulation(**settings):
    """mjlab's simulation as its tasks take it, of the box."""
    from mjlab.sim.sim import MujocoCfg, SimulationCfg

    from envcoder_bench.sources.mjlab_tasks.task import simulation_of

    cfg = SimulationCfg(mujoco=MujocoCfg(iterations=1, ls_iterations=1), **settings)
    make = simulation_of({"sim": {"backend": "warp"}}, "cpu")
    return make(num_envs=2, cfg=cfg, model=mujoco.MjModel.from_xml_string(XML), device="cpu")


def test_models_of_native_and_isaac_gym_tasks_print_no_overflow(models):
    warp_device.put_model(mujoco.MjModel.from_xml_string(XML))
    assert [int(model.opt.warn_overflow) for model in models] == [0]


@needs_mjlab
def test_models_of_mjlab_print_no_overflow(models):
    _simulation()
    assert [int(model.opt.warn_overflow) for model in models] == [0]


def test_the_product_makes_models_in_one_place_of_its_own():
    files = [path for folder in ("envcoder_bench", "packages") for path in (REPO / folder).rglob("*.py")]
    places = {
        path.name
        for path in files
        if "tests" not in path.parts and re.search(r"\b(mjw|mjwarp|mujoco_warp)\.put_model\(", path.read_text())
    }
    assert places == {"warp_device.py"}


@needs_mjlab
@pytest.mark.slow
def test_a_simulation_of_mjlab_counts_overflows_and_prints_nothing(capfd):
    simulation = _simulation(njmax=4, nconmax=8)
    simulation.data.qpos[:, 2] = 0.09
    simulation.step()  # compiles kernels
    assert simulation.take_overflows().tolist() == [True, True]
    assert simulation.take_overflows().tolist() == [False, False]
    capfd.readouterr()
    for _ in range(5):
        simulation.step()
    out, err = capfd.readouterr()
    assert out + err == ""


@needs_mjlab
@pytest.mark.slow
def test_a_simulation_on_the_cpu_counts_overflows_and_warnings_and_prints_nothing(capfd, tmp_path, monkeypatch):
    from mjlab.sim.sim import SimulationCfg

    from envcoder_bench.sim.mjlab.batch_simulation import BatchSimulation

    monkeypatch.chdir(tmp_path)
    mixed = XML.replace("0 0 1", "0 0 0.09").replace('size="0.1 0.1 0.1"', 'size="0.1 0.1 0.1" solref="-200 0.5"')
    simulation = BatchSimulation(2, SimulationCfg(), mujoco.MjModel.from_xml_string(mixed))
    simulation.expand_model_fields(("body_mass",))
    for _ in range(5):
        simulation.step()
    simulation.forward()
    simulation.recompute_constants(None)
    simulation.reset(np.array([0]))
    out, err = capfd.readouterr()
    assert out + err == "" and not list(tmp_path.iterdir())
    assert any("mixed solref" in text and count > 5 for text, count in simulation.warnings.items())
    assert simulation.take_overflows().tolist() == [False, False]
