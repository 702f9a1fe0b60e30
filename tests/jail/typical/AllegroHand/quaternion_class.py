"""A small quaternion class with operators."""
from __future__ import annotations

import torch


class Quaternion:
    """xyzw quaternions of a batch."""

    def __init__(self, data: torch.Tensor):
        assert data.shape[-1] == 4, f"expected (..., 4), got {tuple(data.shape)}"
        self.data = data

    @staticmethod
    def identity(n: int, device) -> Quaternion:
        data = torch.zeros(n, 4, device=device)
        data[:, 3] = 1.0
        return Quaternion(data)

    @property
    def vec(self):
        return self.data[..., :3]

    @property
    def w(self):
        return self.data[..., 3]

    def conj(self) -> Quaternion:
        return Quaternion(torch.cat([-self.vec, self.w.unsqueeze(-1)], dim=-1))

    def __mul__(self, other: Quaternion) -> Quaternion:
        v = (self.w.unsqueeze(-1) * other.vec + other.w.unsqueeze(-1) * self.vec
             + torch.cross(self.vec, other.vec, dim=-1))
        w = self.w * other.w - (self.vec * other.vec).sum(-1)
        return Quaternion(torch.cat([v, w.unsqueeze(-1)], dim=-1))

    def __neg__(self):
        return Quaternion(-self.data)

    def __len__(self):
        return self.data.shape[0]

    def angle(self) -> torch.Tensor:
        return 2.0 * torch.atan2(self.vec.norm(dim=-1), self.w.abs())


def compute_reward(state_dict):
    cube, goal = Quaternion(state_dict["object_rot"]), Quaternion(state_dict["goal_rot"])
    error = (cube * goal.conj() * Quaternion.identity(len(cube), cube.data.device)).angle()
    aligned = torch.exp(-2.0 * error)
    spin = 0.01 * state_dict["object_angvel"].norm(dim=-1)
    drop = (state_dict["object_pos"] - state_dict["goal_pos"]).norm(dim=-1)
    return aligned + spin - 5.0 * drop, {"aligned": aligned, "spin": spin, "drop": -5.0 * drop}


def compute_observation(state_dict):
    relative = Quaternion(state_dict["object_rot"]) * Quaternion(state_dict["goal_rot"]).conj()
    return torch.cat((state_dict["dof_pos"], 0.2 * state_dict["dof_vel"], state_dict["object_pose"],
                      relative.data, state_dict["goal_rot"], state_dict["actions"]), dim=-1)
