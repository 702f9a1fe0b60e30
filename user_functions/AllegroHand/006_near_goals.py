"""Goals within 60 degrees of how the cube is turned now, half of them; the other half anywhere.

compute_goal is asked wherever a goal has been reached, and sees the state: a goal may depend on it. Near goals are
reached by chance early on, so that there is success to learn from. Fitness has the task's own goals.
"""
from envcoder_bench.torch_utils import exp_map_to_quat, quat_mul, torch_rand_float


def compute_goal(state_dict):
    object_rot = state_dict["object_rot"]
    n, device = object_rot.shape[0], object_rot.device
    axis = torch_rand_float(-1.0, 1.0, (n, 3), device)
    axis = axis / torch.clamp(torch.norm(axis, p=2, dim=-1, keepdim=True), min=1e-3)
    near = quat_mul(exp_map_to_quat(axis * torch_rand_float(0.15, 1.05, (n, 1), device)), object_rot)
    anywhere = torch_rand_float(-1.0, 1.0, (n, 4), device)
    anywhere = anywhere / torch.clamp(torch.norm(anywhere, p=2, dim=-1, keepdim=True), min=1e-3)
    half_of_them = torch_rand_float(0.0, 1.0, (n, 1), device) < 0.5
    return {"goal_rot": torch.where(half_of_them, near, anywhere)}
