"""An observation class with cached properties, made anew at every call."""
from functools import cached_property

import torch

from isaacgymenvs.utils.torch_jit_utils import quat_rotate_inverse, get_euler_xyz, normalize_angle


class Features:
    def __init__(self, state):
        self._s = state

    @cached_property
    def quat(self):
        return self._s["root_states"][:, 3:7]

    @cached_property
    def local_velocity(self):
        return quat_rotate_inverse(self.quat, self._s["root_states"][:, 7:10])

    @cached_property
    def local_spin(self):
        return quat_rotate_inverse(self.quat, self._s["root_states"][:, 10:13])

    @property
    def euler(self):
        return torch.stack([normalize_angle(a) for a in get_euler_xyz(self.quat)], dim=-1)

    def as_tensor(self):
        s = self._s
        return torch.cat(
            [s["root_states"][:, 2:3], self.local_velocity, 0.25 * self.local_spin, self.euler, s["up_vec"],
             s["dof_pos"], 0.1 * s["dof_vel"], 0.01 * s["vec_sensor_tensor"], s["actions"]], dim=-1)


def compute_observation(state_dict):
    return Features(state_dict).as_tensor()
