"""A reward calculator in the style of legged_gym: one method per term, all summed up by name."""
import torch

from isaacgymenvs.utils.torch_jit_utils import quat_rotate_inverse


class RewardManager:
    """Computes all terms that have a non-zero scale."""

    SCALES = {
        "tracking_lin_vel": 1.0,
        "tracking_ang_vel": 0.5,
        "lin_vel_z": -2.0,
        "ang_vel_xy": -0.05,
        "torques": -0.00001,
        "collision": -1.0,
        "action_magnitude": -0.01,
        "base_height": 0.0,
    }
    TRACKING_SIGMA = 0.25

    def __init__(self, state):
        self.state = state
        root = state["root_states"]
        self.base_quat = root[:, 3:7]
        self.base_lin_vel = quat_rotate_inverse(self.base_quat, root[:, 7:10])
        self.base_ang_vel = quat_rotate_inverse(self.base_quat, root[:, 10:13])
        self.commands = state["commands"]
        self.num_envs = root.shape[0]
        self.device = root.device

    def _reward_tracking_lin_vel(self):
        error = torch.sum(torch.square(self.commands[:, :2] - self.base_lin_vel[:, :2]), dim=1)
        return torch.exp(-error / self.TRACKING_SIGMA)

    def _reward_tracking_ang_vel(self):
        error = torch.square(self.commands[:, 2] - self.base_ang_vel[:, 2])
        return torch.exp(-error / self.TRACKING_SIGMA)

    def _reward_lin_vel_z(self):
        return torch.square(self.base_lin_vel[:, 2])

    def _reward_ang_vel_xy(self):
        return torch.sum(torch.square(self.base_ang_vel[:, :2]), dim=1)

    def _reward_torques(self):
        return torch.sum(torch.square(self.state["torques"]), dim=1)

    def _reward_collision(self):
        forces = torch.norm(self.state["contact_forces"][:, self.state["knee_indices"], :], dim=-1)
        return torch.sum(1.0 * (forces > 0.1), dim=1)

    def _reward_action_magnitude(self):
        return torch.sum(torch.square(self.state["actions"]), dim=1)

    def compute(self):
        total = torch.zeros(self.num_envs, device=self.device)
        logs = {}
        for name, scale in self.SCALES.items():
            if scale == 0.0:
                continue
            term = getattr(self, "_reward_" + name)() * scale
            total += term
            logs["rew_" + name] = term
        return torch.clip(total, min=0.0), logs


def compute_reward(state_dict):
    return RewardManager(state_dict).compute()
