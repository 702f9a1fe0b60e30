"""Episodes to everywhere: the Ant begins turned by any angle, and the target lies in any direction.

Initial states and goals decide what the policy practises. Fitness is always measured on the task's own episodes, which
begin with the target straight ahead: is it better to practise that alone, or to learn to steer first?
"""
from envcoder_bench.torch_utils import quat_from_angle_axis, torch_rand_float


def compute_initial_state(state_dict):
    start = state_dict["initial_root_states"]
    n, device = start.shape[0], start.device
    turn = torch_rand_float(-math.pi, math.pi, (n, 1), device).squeeze(1)
    quat = quat_from_angle_axis(turn, state_dict["basis_vec1"])
    dof_pos = state_dict["initial_dof_pos"] + torch_rand_float(-0.2, 0.2, (n, 8), device)
    return {
        "root_states": torch.cat((start[:, :3], quat, start[:, 7:]), dim=1),
        "dof_pos": torch.clamp(dof_pos, state_dict["dof_limits_lower"], state_dict["dof_limits_upper"]),
    }


def compute_goal(state_dict):
    n, device = state_dict["targets"].shape[0], state_dict["targets"].device
    angle = torch_rand_float(-math.pi, math.pi, (n, 1), device)
    direction = torch.cat((torch.cos(angle), torch.sin(angle), torch.zeros_like(angle)), dim=1)
    return {"targets": 1000.0 * direction}
