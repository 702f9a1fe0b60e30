"""An observation without the force sensors: 36 numbers instead of 60.

The 24 numbers of the feet are noisy and jump at every touch. A policy may do without: which foot bears weight also
shows in how the joints move.
"""
from envcoder_bench.torch_utils import quat_rotate_inverse, unscale


def compute_observation(state_dict):
    root_states = state_dict["root_states"]
    quat = root_states[:, 3:7]
    to_target = torch.nn.functional.normalize(state_dict["targets"] - root_states[:, 0:3], dim=1)
    return torch.cat(
        (
            root_states[:, 2:3],
            quat_rotate_inverse(quat, root_states[:, 7:10]),
            quat_rotate_inverse(quat, root_states[:, 10:13]),
            quat_rotate_inverse(quat, to_target)[:, :2],  # where the target is, seen from the torso
            state_dict["up_vec"],
            unscale(state_dict["dof_pos"], state_dict["dof_limits_lower"], state_dict["dof_limits_upper"]),
            0.2 * state_dict["dof_vel"],
            state_dict["actions"],
        ),
        dim=1,
    )
