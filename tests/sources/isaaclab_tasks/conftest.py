import importlib.util
import sys
from pathlib import Path

import pytest

INSTALLED = importlib.util.find_spec("isaaclab") is not None
collect_ignore_glob = [] if INSTALLED else ["test_lab_*.py"]
HELPERS = Path(__file__).parents[3] / "packages/isaaclab_mujoco/tests/helpers"


@pytest.fixture(scope="session", autouse=True)
def robots(tmp_path_factory):
    """Make the tests' package of tasks importable, with the files of its robots."""
    sys.path.append(str(HELPERS))
    from lab_robots import write

    from isaaclab_mujoco.assets import find

    find.given.update(write(tmp_path_factory.mktemp("robots")))
