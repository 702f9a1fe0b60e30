import importlib.util
import sys

import pytest
import small_mjlab

INSTALLED = importlib.util.find_spec("mjlab") is not None
if INSTALLED:  # here, because its import starts a process
    from envcoder_bench.sources.mjlab_tasks.source import list_tasks

    list_tasks()


@pytest.fixture(scope="session", autouse=True)
def mjlab_or_small():
    """mjlab where it is installed; otherwise the few classes that terms and patches need, for these tests alone."""
    small_mjlab.install()
    yield
    if not INSTALLED:
        ours = "envcoder_bench.sources.mjlab_tasks."
        for name in [name for name in sys.modules if name.split(".")[0] == "mjlab" or name.startswith(ours)]:
            del sys.modules[name]


@pytest.fixture
def short_episodes(monkeypatch):
    """Episodes of 0.6 s, pushes and new commands every 0.1 to 0.3 s, so that there are resets and events."""
    from envcoder_bench.sources.mjlab_tasks.source import Source

    registered = Source.env_cfg

    def env_cfg(self):
        cfg = registered(self)
        cfg.episode_length_s = 0.6
        for event in cfg.events.values():
            if event.mode == "interval":
                event.interval_range_s = (0.1, 0.3)
        for command in cfg.commands.values():
            command.resampling_time_range = (0.1, 0.3)
        return cfg

    monkeypatch.setattr(Source, "env_cfg", env_cfg)
