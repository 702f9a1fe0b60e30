"""What a real hand knows: joint angles, the cube's pose and the last action; no velocities and no torques.

IsaacGymEnvs' observation "full_no_vel", 50 numbers instead of 88. Fewer inputs are quicker to learn from, if what is
missing does not matter.
"""
from envcoder_bench.torch_utils import quat_conjugate, quat_mul, unscale


def compute_observation(state_dict):
    lower, upper = state_dict["shadow_hand_dof_lower_limits"], state_dict["shadow_hand_dof_upper_limits"]
    return torch.cat(
        (
            unscale(state_dict["shadow_hand_dof_pos"], lower, upper),
            state_dict["object_pose"],
            state_dict["goal_pose"],
            quat_mul(state_dict["object_rot"], quat_conjugate(state_dict["goal_rot"])),
            state_dict["actions"],
        ),
        dim=-1,
    )
