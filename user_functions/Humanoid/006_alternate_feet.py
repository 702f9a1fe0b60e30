"""A reward for running on alternate feet: one foot on the ground at a time, and the feet take turns.

The force sensors tell which foot bears weight, and progress_buf is a clock: 1.5 strides a second, the right foot in the
first half of each. The policy can only follow a clock that it sees, so the observation has the phase too.
"""
from envcoder_bench.torch_utils import quat_rotate_inverse, unscale

STRIDES = 1.5  # a second


def phase(state_dict):
    return 2.0 * math.pi * STRIDES * state_dict["progress_buf"] * state_dict["dt"]


def compute_reward(state_dict):
    right, left = state_dict["vec_sensor_tensor"][:, 0:3], state_dict["vec_sensor_tensor"][:, 6:9]
    right_stands = torch.sum(torch.square(right), dim=1) > 400.0  # more than 20 N
    left_stands = torch.sum(torch.square(left), dim=1) > 400.0
    right_turn = torch.sin(phase(state_dict)) > 0.0
    in_turn = (right_stands == right_turn).float() + (left_stands != right_turn).float()
    speed = state_dict["potentials"] - state_dict["prev_potentials"]
    components = {
        "speed": speed,
        "alive": torch.full_like(speed, 2.0),
        "turns": 0.3 * in_turn,
        "effort": -0.01 * torch.sum(torch.square(state_dict["actions"]), dim=1),
    }
    return sum(components.values()), components


def compute_observation(state_dict):
    root_states = state_dict["root_states"]
    quat, angle = root_states[:, 3:7], phase(state_dict)
    return torch.cat(
        (
            root_states[:, 2:3],
            quat_rotate_inverse(quat, root_states[:, 7:10]),
            0.25 * quat_rotate_inverse(quat, root_states[:, 10:13]),
            quat_rotate_inverse(quat, state_dict["basis_vec1"]),
            state_dict["heading_vec"][:, :2],
            unscale(state_dict["dof_pos"], state_dict["dof_limits_lower"], state_dict["dof_limits_upper"]),
            0.1 * state_dict["dof_vel"],
            0.01 * state_dict["vec_sensor_tensor"],
            state_dict["actions"],
            torch.stack((torch.sin(angle), torch.cos(angle)), dim=1),
        ),
        dim=1,
    )
