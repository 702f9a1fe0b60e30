"""An observation of motion alone: 75 numbers, without torques and without the forces at the feet.

What the joints' motors did follows from the last action, and what the ground did shows in the motion that follows.
Thirty-three inputs fewer: does the policy miss them?
"""
from envcoder_bench.torch_utils import quat_rotate_inverse, unscale


def compute_observation(state_dict):
    root_states = state_dict["root_states"]
    quat = root_states[:, 3:7]
    return torch.cat(
        (
            root_states[:, 2:3],
            quat_rotate_inverse(quat, root_states[:, 7:10]),
            0.25 * quat_rotate_inverse(quat, root_states[:, 10:13]),
            quat_rotate_inverse(quat, state_dict["basis_vec1"]),  # which way is up, seen from the torso
            state_dict["heading_vec"][:, :2],
            unscale(state_dict["dof_pos"], state_dict["dof_limits_lower"], state_dict["dof_limits_upper"]),
            0.1 * state_dict["dof_vel"],
            state_dict["actions"],
        ),
        dim=1,
    )
