def compute_reward(contact_forces, feet_indices, knee_indices, base_index, actions, dof_pos, default_dof_pos):
    feet = torch.norm(contact_forces[:, feet_indices, :], dim=-1) > 1.0
    knees = (torch.norm(contact_forces[:, knee_indices, :], dim=-1) > 1.0).float().sum(dim=1)
    base_hit = torch.norm(contact_forces[:, int(base_index)], dim=-1) > 1.0
    diagonal = (feet[:, 0] == feet[:, 3]).float() + (feet[:, 1] == feet[:, 2]).float()
    posture = torch.mean(torch.abs(dof_pos - default_dof_pos), dim=-1)
    reward = 0.5 * diagonal - 0.25 * knees - 0.1 * posture - 0.01 * torch.sum(actions ** 2, dim=-1)
    reward = torch.where(base_hit, reward - 1.0, reward)
    components = {"diagonal": diagonal, "knees": -0.25 * knees, "posture": posture}
    return reward, components
