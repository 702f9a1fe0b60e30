"""Isaac Lab on MuJoCo in this process, and environments that are closed after each test."""

import pytest
import torch
from lab_robots import write

from isaaclab_mujoco.assets import find


@pytest.fixture(scope="session", autouse=True)
def isaaclab(tmp_path_factory):
    """Install the hooks once, with the files of the tests' robots."""
    import isaaclab_mujoco

    torch.set_num_threads(1)
    find.given.update(write(tmp_path_factory.mktemp("robots")))
    isaaclab_mujoco.install()


@pytest.fixture
def make():
    """Return a function that makes an environment of a config; at the end it is closed."""
    from isaaclab.envs import ManagerBasedRLEnv
    from isaaclab.sim import SimulationContext

    made = []

    def of(cfg):
        try:
            made.append(ManagerBasedRLEnv(cfg=cfg))
        except Exception:
            SimulationContext.clear_instance()
            raise
        return made[-1]

    yield of
    for env in made:
        env.close()
    SimulationContext.clear_instance()
