"""An observation of only what the robot's own sensors measure: 45 numbers, no linear velocity.

A real robot has gyroscope, accelerometer and joint encoders; the velocity of its base must be estimated. How much does
a policy lose that has to do without?
"""
from envcoder_bench.torch_utils import quat_rotate_inverse


def compute_observation(state_dict):
    base_quat = state_dict["root_states"][:, 3:7]
    return torch.cat(
        (
            0.25 * quat_rotate_inverse(base_quat, state_dict["root_states"][:, 10:13]),  # gyroscope
            quat_rotate_inverse(base_quat, state_dict["gravity_vec"]),
            state_dict["commands"],
            state_dict["dof_pos"] - state_dict["default_dof_pos"],
            0.05 * state_dict["dof_vel"],
            state_dict["actions"],
        ),
        dim=-1,
    )
