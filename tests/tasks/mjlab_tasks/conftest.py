import importlib.util
import sys

import pytest
import small_mjlab

INSTALLED = importlib.util.find_spec("mjlab") is not None
if INSTALLED:  # here, because its import starts a process
    from envcoder_bench.tasks.mjlab_tasks.source import list_tasks

    list_tasks()


@pytest.fixture(scope="session", autouse=True)
def mjlab_or_small():
    """mjlab where it is installed; otherwise the few classes that terms and patches need, for these tests alone."""
    small_mjlab.install()
    yield
    if not INSTALLED:
        ours = "envcoder_bench.tasks.mjlab_tasks."
        for name in [name for name in sys.modules if name.split(".")[0] == "mjlab" or name.startswith(ours)]:
            del sys.modules[name]
