"""Tensors of an Isaac Gym task as tensors of the state."""

from types import SimpleNamespace

import torch

from envcoder_bench.tasks.isaacgym_tasks import tensors
from envcoder_bench.tasks.isaacgym_tasks.tensors import Mirror


def test_tensor_on_another_device_is_copied_only_after_a_change():
    task = SimpleNamespace(friction=torch.ones(4, 1))
    rows = tensors.rows_of(task, 4)
    # the device meta stands for CUDA: it takes copies, and counts them as changes
    mirror = Mirror(task, {"friction": ("friction", "")}, rows, 4, torch.device("meta"))
    state = mirror.state["friction"]
    assert state.device.type == "meta"

    def copies(syncs):
        before = state._version
        for _ in range(syncs):
            mirror.sync()
        return state._version - before

    assert copies(3) == 1
    task.friction[2] = 0.5
    assert copies(2) == 1
    task.friction = torch.zeros(4, 1)
    assert copies(2) == 1
