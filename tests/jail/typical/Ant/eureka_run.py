@torch.jit.script
def compute_reward(root_states: torch.Tensor, targets: torch.Tensor, dt: float, actions: torch.Tensor,
                   dof_vel: torch.Tensor) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
    torso_position = root_states[:, 0:3]
    velocity = root_states[:, 7:10]

    to_target = targets - torso_position
    to_target[:, 2] = 0.0
    direction = to_target / (torch.norm(to_target, p=2, dim=-1, keepdim=True) + 1e-6)
    forward_speed = torch.sum(velocity * direction, dim=-1)

    speed_temp = 4.0
    speed_reward = 1.0 - torch.exp(-forward_speed / speed_temp)
    height_reward = torch.exp(-torch.abs(torso_position[:, 2] - 0.5) / 0.2)
    energy_penalty = 0.005 * torch.sum(torch.abs(actions * dof_vel), dim=-1)

    total_reward = 3.0 * speed_reward + 0.3 * height_reward - energy_penalty
    return total_reward, {"speed_reward": speed_reward, "height_reward": height_reward,
                          "energy_penalty": -energy_penalty}
