"""Parts of a step as graphs, with a stand-in for CUDA graphs, against the same parts as they are."""

import pytest
import torch
from recorded_ops import capture
from term_driven import TermDriven, actions

from envcoder_bench.sources.isaaclab_tasks.spec import facts_of
from envcoder_bench.sources.term_tasks import task as module
from envcoder_bench.sources.term_tasks.graphs.env_ids import FixedShapes

WALK = "isaaclab:small_lab:Small-Walk-v0"
PARTS = {"control 0", "update", "judge", "begin", "command", "observe"}


class Steps:
    """Steps of a task, with masks and graphs as on a device, or as on a CPU."""

    def __init__(self, graphs, monkeypatch):
        self.asks, self._monkeypatch = not graphs, monkeypatch
        facts_of(WALK)
        from envcoder_bench.sources.isaaclab_tasks.task import IsaacLabTask

        attach = IsaacLabTask.attach

        def with_clocks(task, groups):
            task._clock, task.world._clock = (torch.zeros((), dtype=torch.int64) for _ in range(2))
            attach(task, groups)

        with monkeypatch.context() as patch:
            if graphs:
                patch.setattr(module, "capture_on", lambda device: capture)
                patch.setattr(IsaacLabTask, "attach", with_clocks)
            patch.setattr(FixedShapes, "asks", self.asks)
            self.driven = TermDriven(WALK, 3, 2, limit=5, patches=[{"events": {"gains": None}}] * 2)
        self.driven.task.world.episode_length_buf.copy_(torch.arange(3).repeat(2))

    def step(self, action):
        self._monkeypatch.setattr(FixedShapes, "asks", self.asks)
        return self.driven.step(action)


@pytest.mark.slow
def test_graphs_have_the_numbers_of_isaac_labs_code(monkeypatch):
    """Up to rounding: graphs read from the simulation what Isaac Lab's data still hold as it was written.

    Events that change gains are left out, because they wait for a device; some of the environments begin anew.
    """
    monkeypatch.setenv("ISAACLAB_MUJOCO_ENGINE", "warp")
    plain, graphs = Steps(False, monkeypatch), Steps(True, monkeypatch)
    ended = 0
    for k, action in enumerate(actions(3, plain.driven.task.num_dofs, 9)):
        expected, results = plain.step(action), graphs.step(action)
        ended += int(expected["ended"].sum())
        for key, x in expected.items():
            torch.testing.assert_close(results[key].float(), x.float(), rtol=0.0, atol=1e-4, msg=f"{k} {key}")
    parts = graphs.driven.task.world.parts
    assert ended >= 6 and parts._graphs.keys() >= PARTS and not parts._reasons
