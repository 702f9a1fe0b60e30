"""A generator yields the terms; str.format names them."""
import torch


def terms(state):
    velocity = state["root_states"][:, 7:10]
    for axis, (letter, weight) in enumerate(zip("xyz", (1.0, -0.2, -0.5))):
        value = velocity[:, axis] if axis == 0 else velocity[:, axis].abs()
        yield "{axis}_velocity_{0}".format("reward" if weight > 0 else "cost", axis=letter), weight * value
    yield from {
        "actions": -0.005 * state["actions"].square().sum(-1),
        "joints": -0.1 * (state["dof_vel"].abs() > 15.0).sum(-1).float(),
    }.items()


def compute_reward(state_dict):
    components = dict(terms(state_dict))
    reward, *rest = components.values()
    for value in rest:
        reward = reward + value
    return reward, components
