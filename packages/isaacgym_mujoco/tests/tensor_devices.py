"""Run a script as the runner does, and print at its end where the tensors of its simulations are.

    python packages/isaacgym_mujoco/tests/tensor_devices.py legged_gym/scripts/train.py --task=a1 --headless

Set PYTHONPATH to packages/ of the checkout, and to what else the script needs.
"""

import sys

import torch

from isaacgym_mujoco.__main__ import main
from isaacgym_mujoco.api.gymapi import Gym

_devices: dict[str, set[str]] = {}


def _watched(name: str):
    acquire = getattr(Gym, name)

    def acquired(*args, **kwargs):
        tensor = acquire(*args, **kwargs)
        if isinstance(tensor, torch.Tensor):
            _devices.setdefault(name, set()).add(f"{tensor.device} {tuple(tensor.shape)}")
        return tensor

    return acquired


for _name in [name for name in dir(Gym) if name.startswith("acquire_") and name.endswith("_tensor")]:
    setattr(Gym, _name, _watched(_name))
try:
    code = main()
finally:
    for _name, _places in sorted(_devices.items()):
        print(f"{_name}: {', '.join(sorted(_places))}")
sys.exit(code)
