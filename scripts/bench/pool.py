"""A pool of shaping for walking robots: reward terms, observations, actions, initial states, goals and terminal rules.

Terms as in IsaacGymEnvs, legged_gym and what people and language models write after them. Expressions read keys of the
state and the names in LOCALS; ``@low~high@`` is a number that every candidate draws for itself.
"""

# each local uses only those before it
LOCALS: dict[str, str] = {
    "base_quat": "root_states[:, 3:7]",
    "lin_vel": "quat_rotate_inverse(base_quat, root_states[:, 7:10])",
    "ang_vel": "quat_rotate_inverse(base_quat, root_states[:, 10:13])",
    "gravity": "quat_rotate_inverse(base_quat, gravity_vec)",
    "forward": "quat_axis(base_quat, 0)",
    "stance_error": "dof_pos - default_dof_pos",
    "feet_forces": "contact_forces[:, feet_indices, :]",
    "feet_contact": "feet_forces[:, :, 2] > 1.0",
    "knee_force": "torch.norm(contact_forces[:, knee_indices, :], dim=-1)",
    "base_force": "torch.norm(contact_forces[:, base_index, :], dim=-1)",
    "lin_vel_error": "torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)",
    "yaw_error": "torch.square(commands[:, 2] - ang_vel[:, 2])",
    "moving": "(torch.norm(commands[:, :2], dim=1) > 0.2).float()",
    "phase": "2.0 * math.pi * @1.2~3.0@ * progress_buf * dt",
}

# rewards for following the commanded velocity: every candidate has one of each
TRACK_LINEAR: tuple[str, ...] = (
    "@0.8~1.5@ * torch.exp(-lin_vel_error / @0.1~0.5@)",
    "@0.8~1.5@ / (1.0 + @2.0~8.0@ * lin_vel_error)",
    "@0.8~1.5@ * torch.exp(-torch.sqrt(lin_vel_error + 1e-6) / @0.2~0.7@)",
    "@0.5~1.0@ * torch.sum(torch.exp(-torch.square(commands[:, :2] - lin_vel[:, :2]) / @0.1~0.4@), dim=1)",
    "@1.0~1.5@ * torch.clamp(1.0 - torch.sqrt(lin_vel_error + 1e-6), min=0.0)",
)
TRACK_YAW: tuple[str, ...] = (
    "@0.3~0.8@ * torch.exp(-yaw_error / @0.1~0.5@)",
    "@0.3~0.8@ / (1.0 + @2.0~8.0@ * yaw_error)",
    "@0.3~0.8@ * torch.exp(-torch.abs(commands[:, 2] - ang_vel[:, 2]) / @0.2~0.7@)",
    "-@0.05~0.2@ * yaw_error",
)
# terms that shape how: each candidate takes some
STYLE: dict[str, str] = {
    "lin_vel_z": "-@0.5~4.0@ * torch.square(lin_vel[:, 2])",
    "ang_vel_xy": "-@0.02~0.1@ * torch.sum(torch.square(ang_vel[:, :2]), dim=1)",
    "orientation": "-@0.2~2.0@ * torch.sum(torch.square(gravity[:, :2]), dim=1)",
    "upright": "@0.1~0.4@ * torch.clamp(-gravity[:, 2], min=0.0)",
    "base_height": "-@2.0~20.0@ * torch.square(root_states[:, 2] - @0.45~0.6@)",
    "height": "@0.1~0.4@ * torch.exp(-torch.square((root_states[:, 2] - @0.45~0.6@) / @0.05~0.15@))",
    "torques": "-@0.00001~0.00005@ * torch.sum(torch.square(torques), dim=1)",
    "torque_limits": "-@0.002~0.01@ * torch.sum(torch.clamp(torch.abs(torques) - @40.0~70.0@, min=0.0), dim=1)",
    "power": "-@0.0001~0.0005@ * torch.sum(torch.abs(torques * dof_vel), dim=1)",
    "dof_vel": "-@0.0001~0.0005@ * torch.sum(torch.square(dof_vel), dim=1)",
    "action_size": "-@0.005~0.02@ * torch.sum(torch.square(actions), dim=1)",
    "action_mean": "-@0.01~0.05@ * torch.mean(torch.abs(actions), dim=1)",
    "stance": "-@0.02~0.1@ * torch.sum(torch.abs(stance_error), dim=1)",
    "stance_bonus": "@0.1~0.3@ * torch.exp(-torch.sum(torch.square(stance_error), dim=1) / @0.5~3.0@)",
    "hips": "-@0.05~0.3@ * torch.sum(torch.square(stance_error[:, 0::3]), dim=1)",
    "left_right": "-@0.02~0.1@ * torch.sum(torch.square(stance_error[:, 0:6] - stance_error[:, 6:12]), dim=1)",
    "stand_still": "-@0.05~0.2@ * torch.sum(torch.abs(stance_error), dim=1) * (1.0 - moving)",
    "collision": "-@0.1~0.5@ * torch.sum((knee_force > @0.1~1.0@).float(), dim=1)",
    "base_collision": "-@0.5~2.0@ * (base_force > 1.0).float()",
    "impact": "-@0.0005~0.002@ * "
    "torch.sum(torch.clamp(torch.norm(feet_forces, dim=-1) - @200.0~400.0@, min=0.0), dim=1)",
    "stumble": "-@0.1~0.5@ * torch.any("
    "torch.norm(feet_forces[:, :, :2], dim=2) > 4.0 * torch.abs(feet_forces[:, :, 2]), dim=1).float()",
    "feet_air": "@0.05~0.2@ * torch.sum((~feet_contact).float(), dim=1) * moving",
    "two_feet": "-@0.05~0.2@ * torch.abs(torch.sum(feet_contact.float(), dim=1) - 2.0) * moving",
    "trot": "@0.1~0.3@ * (feet_contact[:, 0] == feet_contact[:, 3]).float()"
    " * (feet_contact[:, 1] == feet_contact[:, 2]).float()",
    "gait_clock": "@0.1~0.3@ * torch.sin(phase) * (feet_contact[:, 0].float() - feet_contact[:, 1].float())",
    "load_share": "-@0.0005~0.002@ * torch.std(feet_forces[:, :, 2], dim=1)",
    "progress": "@0.1~0.3@ * torch.minimum(lin_vel[:, 0] * torch.sign(commands[:, 0]), torch.abs(commands[:, 0]))",
    "level_heading": "-@0.2~1.0@ * torch.square(forward[:, 2])",
    "alive": "@0.02~0.1@ * torch.ones_like(root_states[:, 2])",
}
TOTALS: tuple[str, ...] = (
    "torch.clamp(sum(components.values()), min=0.0)",
    "dt * sum(components.values())",
    "torch.clamp(dt * sum(components.values()), min=0.0)",
    "torch.clamp(torch.stack(list(components.values())).sum(dim=0), -1.0, 3.0)",
    "components['lin_vel'] * torch.exp(sum(components.values()) - components['lin_vel'] - 1.0)",
)

# parts of the observation: every candidate has one of each, in its own order, and some of the extras
OBSERVED: tuple[tuple[str, ...], ...] = (
    ("lin_vel * @1.0~2.5@", "torch.clamp(lin_vel, -2.0, 2.0)", "commands[:, :2] - lin_vel[:, :2]"),
    ("ang_vel * @0.2~0.5@", "torch.tanh(ang_vel * @0.2~0.5@)"),
    ("gravity", "base_quat", "gravity[:, :2]", "quat_axis(base_quat, 2)"),
    ("commands", "torch.cat((commands[:, :2] * 2.0, commands[:, 2:] * @0.2~0.5@), dim=-1)"),
    ("stance_error", "dof_pos * @0.5~1.5@", "torch.cat((torch.sin(dof_pos), torch.cos(dof_pos)), dim=-1)"),
    ("dof_vel * @0.03~0.08@", "torch.clamp(dof_vel * @0.05~0.1@, -1.0, 1.0)"),
)
EXTRAS: tuple[str, ...] = (
    "actions",
    "torques * @0.005~0.02@",
    "root_states[:, 2:3] - @0.45~0.6@",
    "feet_contact.float()",
    "torch.norm(feet_forces, dim=-1) * @0.002~0.005@",
    "torch.clamp(knee_force * 0.01, max=1.0)",
    "torch.stack((torch.sin(phase), torch.cos(phase)), dim=-1)",
    "(progress_buf / max_episode_length).unsqueeze(-1)",
    "torch.sqrt(lin_vel_error + 1e-6).unsqueeze(-1)",
    "torch.stack(get_euler_xyz(base_quat)[:2], dim=-1) * 0.1",
)

TARGETS: tuple[str, ...] = (
    "default_dof_pos + @0.25~0.6@ * action",
    "default_dof_pos + @0.5~1.0@ * torch.tanh(@0.5~1.0@ * action)",
    "default_dof_pos + torch.clamp(@0.3~0.8@ * action, -@0.4~0.7@, @0.4~0.7@)",
    "dof_pos + @0.2~0.4@ * action",
    "@0.6~0.9@ * (default_dof_pos + @0.4~0.8@ * action) + @0.1~0.4@ * dof_pos",
    "default_dof_pos + action * torch.tensor([@0.2~0.4@, @0.4~0.7@, @0.4~0.7@] * 4, device=action.device)",
    "default_dof_pos + torch.cat((action[:, :6], action[:, :6] * @0.8~1.0@), dim=-1) * @0.3~0.6@",
)
TORQUES: tuple[str, ...] = (
    "@70.0~95.0@ * (@0.3~0.6@ * action - stance_error) - @1.5~2.5@ * dof_vel",
    "torch.clamp(@70.0~95.0@ * (@0.3~0.6@ * action - stance_error) - @1.5~2.5@ * dof_vel, -@60.0~80.0@, 80.0)",
    "@70.0~95.0@ * (torch.tanh(action) - stance_error) - @1.5~2.5@ * dof_vel - @2.0~5.0@ * torch.sign(default_dof_pos)",
    "@20.0~40.0@ * action - @60.0~85.0@ * stance_error - @1.5~2.5@ * dof_vel",
)

ENDINGS: tuple[str, ...] = (
    "base_force > @1.0~5.0@",
    "torch.any(knee_force > @1.0~5.0@, dim=1)",
    "gravity[:, 2] > -@0.3~0.6@",
    "root_states[:, 2] < @0.2~0.35@",
    "torch.norm(ang_vel, dim=1) > @8.0~15.0@",
    "torch.any(torch.abs(stance_error) > @1.5~2.5@, dim=1)",
    "torch.abs(lin_vel[:, 2]) > @2.0~4.0@",
)

# uniform numbers, and noise of the observation, as people write them
DRAWS: tuple[str, ...] = (
    "(high - low) * torch.rand(shape, device=device) + low",
    "low + (high - low) * torch.rand(*shape, device=device)",
    "torch.empty(shape, device=device).uniform_(low, high)",
)
NOISES: tuple[str, ...] = (
    "torch_rand_float(-@0.01~0.03@, @0.01~0.03@, obs.shape, obs.device)",
    "(2.0 * torch.rand_like(obs) - 1.0) * @0.01~0.03@",
    "@0.01~0.03@ * torch.randn_like(obs)",
)
DRAW_12 = "torch_rand_float(@{low}@, @{high}@, (default_dof_pos.shape[0], 12), default_dof_pos.device)"
STARTS: tuple[str, ...] = (
    f"'dof_pos': default_dof_pos * {DRAW_12.format(low='0.4~0.8', high='1.2~1.6')}",
    f"'dof_pos': default_dof_pos + {DRAW_12.format(low='-0.3~-0.1', high='0.1~0.3')}",
    f"'dof_pos': torch.clamp(default_dof_pos + {DRAW_12.format(low='-0.5~-0.2', high='0.2~0.5')}, -1.0, 1.0)",
)
START_EXTRAS: tuple[str, ...] = (
    f"'dof_vel': {DRAW_12.format(low='-0.5~-0.1', high='0.1~0.5')}",
    "'dof_vel': torch.zeros_like(default_dof_pos)",
    "'root_states': initial_root_states",
    "'root_states': torch.cat((initial_root_states[:, :7],"
    " torch_rand_float(-@0.1~0.5@, @0.1~0.5@, (initial_root_states.shape[0], 6), initial_root_states.device)), dim=-1)",
)
DRAW_3 = "torch_rand_float(-1.0, 1.0, (commands.shape[0], 3), commands.device)"
DRAW_1 = "torch_rand_float(0.0, 1.0, (commands.shape[0], 1), commands.device)"
GOALS: tuple[str, ...] = (
    f"@0.5~1.5@ * {DRAW_3}",
    f"{DRAW_3} * torch.tensor([@1.0~2.0@, @0.4~1.0@, @0.5~1.0@], device=commands.device)",
    f"torch.cat((@0.5~2.0@ * {DRAW_3}[:, :1].abs(), @0.2~0.6@ * {DRAW_3}[:, 1:]), dim=-1)",
    f"torch.where({DRAW_1} < @0.1~0.3@, torch.zeros_like(commands), @0.8~1.5@ * {DRAW_3})",
)
