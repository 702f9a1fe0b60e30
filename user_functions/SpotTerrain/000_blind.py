"""An observation without the height scan: 48 numbers, Isaac Lab's for flat ground.

The policy can be compared with one that sees the ground, on the same robot and terrain.
"""
from envcoder_bench.torch_utils import quat_rotate_inverse


def compute_observation(state_dict):
    root_states, base_quat = state_dict["root_states"], state_dict["root_states"][:, 3:7]
    return torch.cat(
        (
            quat_rotate_inverse(base_quat, root_states[:, 7:10]),
            quat_rotate_inverse(base_quat, root_states[:, 10:13]),
            quat_rotate_inverse(base_quat, state_dict["gravity_vec"]),
            state_dict["commands"][:, :3],
            state_dict["dof_pos"] - state_dict["default_dof_pos"],
            state_dict["dof_vel"],
            state_dict["actions"],
        ),
        dim=-1,
    )
