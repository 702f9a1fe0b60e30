"""Kernels made with functools.partial and combined with functools.reduce."""
import functools
import operator
from functools import partial, reduce

import torch


def gaussian(x, scale, center=0.0):
    return torch.exp(-torch.square(x - center) / (2.0 * scale ** 2))


def identity(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapper


near_zero = partial(gaussian, scale=0.5)
near_stance = partial(gaussian, scale=0.1, center=0.55)


@identity
def compute_reward(root_states, commands, dof_vel):
    errors = [commands[:, 0] - root_states[:, 7], commands[:, 1] - root_states[:, 8], commands[:, 2] - root_states[:, 12]]
    product = reduce(operator.mul, map(near_zero, errors))
    height = near_stance(root_states[:, 2])
    calm = reduce(torch.Tensor.add, [-1e-4 * dof_vel[:, i] ** 2 for i in range(dof_vel.shape[1])])
    return product + 0.2 * height + calm
