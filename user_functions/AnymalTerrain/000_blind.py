"""An observation without the height scan: 48 numbers.

The robot feels the ground with its feet alone. What does a policy lose that cannot see the stairs?
"""
from envcoder_bench.torch_utils import quat_rotate_inverse


def compute_observation(state_dict):
    root_states, base_quat = state_dict["root_states"], state_dict["root_states"][:, 3:7]
    return torch.cat(
        (
            2.0 * quat_rotate_inverse(base_quat, root_states[:, 7:10]),
            0.25 * quat_rotate_inverse(base_quat, root_states[:, 10:13]),
            quat_rotate_inverse(base_quat, state_dict["gravity_vec"]),
            state_dict["commands"][:, :3],
            state_dict["dof_pos"] - state_dict["default_dof_pos"],
            0.05 * state_dict["dof_vel"],
            state_dict["actions"],
        ),
        dim=-1,
    )
