"""TorchScript's fuser for CUDA, switched off.

Replaces nothing; calls ``torch._C._jit_override_can_fuse_on_gpu``.

Why: IsaacGymEnvs chooses TorchScript's old executor, whose fuser for CUDA aborts the process at its end.

Upstream: no issue was found, and none is to be expected: TorchScript is deprecated since torch 2.11.
"""

from isaacgym_mujoco.compat import warn_once


def disable_cuda_fuser() -> None:
    """Keep TorchScript from fusing operators on CUDA, in this process."""
    import torch  # not at the top: listing the tasks' names must not import torch

    try:
        torch._C._jit_override_can_fuse_on_gpu(False)
    except AttributeError as error:
        warn_once("TorchScript", str(error), "a process that used a CUDA device may abort at its end")
