"""A scripted policy that stacks in the human baseline's action space, to show that the task can be solved."""

import math

import torch
from torch import Tensor

from envcoder_bench.torch_utils import quat_conjugate, quat_mul

OPEN, CLOSED = 1.0, -1.0
# phases: how near the grip site must come to its target, m, how many steps each lasts at least, and the gripper
ABOVE, DOWN, GRASP, LIFT, CARRY, LOWER, RELEASE, RETREAT = range(8)
NEAR = (0.02, 0.006, 9.0, 0.03, 0.008, 0.006, 9.0, 9.0)
STEPS = (3, 3, 15, 3, 3, 5, 10, 10**6)


class StackingScript:
    """Plays one episode in every environment.

    Attributes:
        phase: ``(num_envs,)`` which of the phases above each environment is in.
    """

    def __init__(self, num_envs: int) -> None:
        self.phase = torch.zeros(num_envs, dtype=torch.int64)
        self.steps = torch.zeros(num_envs, dtype=torch.int64)

    def __call__(self, state) -> Tensor:
        """The human baseline's action ``(num_envs, 7)``, and on to the next phase where this one is done."""
        cube, eef = state["cubeA_pos"], state["eef_pos"]
        in_hand, high = eef - cube, torch.full_like(eef[:, :1], state["table_height"].item() + 0.21)
        over_b = state["cubeB_pos"][:, :2] + in_hand[:, :2]
        on_b = state["cubeB_pos"][:, 2:] + 0.06 + 0.002 + in_hand[:, 2:]
        up = torch.tensor([0.0, 0.0, 0.12])
        targets = [cube + up, cube, cube, torch.cat((cube[:, :2], high), 1), torch.cat((over_b, high), 1)]
        targets += [torch.cat((over_b, on_b), 1), eef, eef + up]
        offset = torch.stack(targets, 1)[torch.arange(len(eef)), self.phase] - eef

        turn = rotation_to(pointing_down(yaw_of(state["cubeA_quat"])), state["eef_quat"])
        turned = turn.norm(dim=1) < 0.08
        turn = torch.where((self.phase >= LIFT).unsqueeze(1), torch.zeros_like(turn), turn)
        grip = torch.where((self.phase >= GRASP) & (self.phase < RELEASE), CLOSED, OPEN)

        self.steps += 1
        done = (offset.norm(dim=1) < torch.tensor(NEAR)[self.phase]) & (turned | (self.phase > DOWN))
        done &= self.steps >= torch.tensor(STEPS)[self.phase]
        self.phase += done.long()
        self.steps *= ~done
        moves = torch.cat((offset / 0.1, turn / 0.5), 1).clamp(-1.0, 1.0)
        return torch.cat((moves, grip.unsqueeze(1)), 1)


def yaw_of(quat: Tensor) -> Tensor:
    """A cube's angle about z, the nearest to 0 of the four that look the same."""
    yaw = 2.0 * torch.atan2(quat[:, 2], quat[:, 3])
    return torch.remainder(yaw + math.pi / 4, math.pi / 2) - math.pi / 4


def pointing_down(yaw: Tensor) -> Tensor:
    """Quaternions xyzw of a hand whose fingers point down and close across a cube that is turned by ``yaw``."""
    nothing = torch.zeros_like(yaw)
    about_z = torch.stack((nothing, nothing, torch.sin(yaw / 2), torch.cos(yaw / 2)), 1)
    return quat_mul(about_z, torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(len(yaw), 4))


def rotation_to(target: Tensor, quat: Tensor) -> Tensor:
    """Small rotation vectors that bring ``quat`` to ``target``."""
    error = quat_mul(target, quat_conjugate(quat))
    return 2.0 * error[:, :3] * torch.where(error[:, 3:] < 0, -1.0, 1.0)
