"""Files as people and language models write them, each for a task; they pass the jail."""

from textwrap import dedent

ORDINARY: dict[str, tuple[str, str]] = {}  # by name, the task and the code


def ordinary(task: str, **codes: str) -> None:
    for name, code in codes.items():
        ORDINARY[name] = (task, dedent(code).lstrip("\n"))


ordinary(
    "Anymal",
    scripted_with_types="""
    import torch
    from torch import Tensor
    from typing import Tuple, Dict

    @torch.jit.script
    def compute_reward(root_states: Tensor, commands: Tensor, torques: Tensor, dof_vel: Tensor,
                       lin_vel_scale: float) -> Tuple[Tensor, Dict[str, Tensor]]:
        # Temperature parameters for the exponential transforms
        velocity_temp: float = 0.25
        energy_temp: float = 0.1

        lin_vel = root_states[:, 7:9]
        error = torch.sum(torch.square(commands[:, :2] - lin_vel), dim=1)
        velocity_reward = torch.exp(-error / velocity_temp)
        energy = torch.sum(torch.abs(torques * dof_vel), dim=1)
        energy_reward = torch.exp(-energy * energy_temp / 100.0)
        reward = 1.5 * velocity_reward + 0.5 * energy_reward * lin_vel_scale
        return reward, {"velocity_reward": velocity_reward, "energy_reward": energy_reward}
    """,
    contact_indices="""
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
    """,
    all_types="""
    import torch
    import torch.nn.functional as F

    def compute_observation(state_dict):
        root = state_dict["root_states"]
        quat = F.normalize(root[:, 3:7], dim=-1)
        phase = 2 * torch.pi * 1.5 * state_dict["progress_buf"].float().unsqueeze(-1) * 0.02
        return torch.cat((
            quat, root[:, 7:13], state_dict["commands"], torch.sin(phase), torch.cos(phase),
            (state_dict["dof_pos"] - state_dict["default_dof_pos"]) * state_dict["dof_pos_scale"],
            state_dict["dof_vel"] * state_dict["dof_vel_scale"], state_dict["actions"],
        ), dim=-1)

    def compute_reward(state_dict):
        forward = state_dict["root_states"][:, 7]
        return forward - 1e-4 * torch.sum(torch.square(state_dict["torques"]), dim=-1)

    def compute_terminal(state_dict):
        height = state_dict["root_states"][:, 2]
        fallen = height < 0.25
        gone = torch.any(torch.isnan(state_dict["root_states"]), dim=-1)
        return torch.logical_or(fallen, gone)

    def compute_dof_target(action, state_dict):
        return state_dict["default_dof_pos"] + 0.4 * torch.tanh(action)
    """,
    random_start_and_goal="""
    import torch
    from isaacgymenvs.utils.torch_jit_utils import torch_rand_float, quat_from_euler_xyz

    def compute_initial_state(state_dict):
        n, device = state_dict["dof_pos"].shape[0], state_dict["dof_pos"].device
        dof_pos = state_dict["default_dof_pos"] * torch_rand_float(0.5, 1.5, (n, 12), device)
        yaw = torch_rand_float(-3.14, 3.14, (n, 1), device).squeeze(1)
        zero = torch.zeros_like(yaw)
        root = state_dict["initial_root_states"].clone()
        root[:, 3:7] = quat_from_euler_xyz(zero, zero, yaw)
        root[:, 2] += 0.02
        return {"dof_pos": dof_pos, "dof_vel": torch.zeros_like(dof_pos), "root_states": root}

    def compute_goal(state_dict):
        n = state_dict["commands"].shape[0]
        device = state_dict["commands"].device
        x = torch_rand_float(0.5, 2.0, (n, 1), device)
        return {"commands": torch.cat([x, 0.2 * torch_rand_float(-1.0, 1.0, (n, 2), device)], dim=1)}
    """,
    loops_over_legs="""
    import torch

    LEGS = ["LF", "LH", "RF", "RH"]

    def compute_reward(state_dict):
        q, dq = state_dict["dof_pos"], state_dict["dof_vel"]
        parts = {}
        for i, leg in enumerate(LEGS):
            hip, thigh, knee = q[:, 3 * i], q[:, 3 * i + 1], q[:, 3 * i + 2]
            parts[f"{leg} hip"] = -hip.abs()
            parts[f"{leg} stretch"] = -torch.square(thigh + 0.5 * knee)
        total = torch.zeros(q.shape[0], device=q.device)
        for value in parts.values():
            total = total + 0.1 * value
        total -= 1e-3 * torch.stack([dq[:, k] ** 2 for k in range(12)], dim=-1).mean(dim=-1)
        return total, parts
    """,
    softmax_and_einsum="""
    import torch
    from torch.nn import functional as F

    def compute_reward(state_dict):
        up = torch.tensor([0.0, 0.0, 1.0], device=state_dict["root_states"].device)
        v = state_dict["root_states"][:, 7:10]
        weights = F.softmax(-v.abs(), dim=-1)
        flat = torch.einsum("ni,i->n", v, up).abs()
        alike = F.cosine_similarity(v, state_dict["root_states"][:, 10:13] + 1e-3, dim=-1)
        return (weights * v).sum(dim=-1) - flat + 0.1 * alike + 0.2 * F.smooth_l1_loss(
            v[:, 0], state_dict["commands"][:, 0], reduction="none")
    """,
    masks_and_indices="""
    import torch

    def compute_reward(state_dict):
        height = state_dict["root_states"][:, 2]
        reward = torch.ones_like(height)
        reward[height < 0.3] = 0.0
        reward = reward * (state_dict["dof_vel"].abs().max(dim=-1)[0] < 30.0).float()
        best, place = torch.topk(state_dict["torques"].abs(), 3, dim=-1)
        reward = reward - 1e-3 * best.mean(-1)
        reward += torch.gather(state_dict["dof_pos"], 1, place[:, :1]).squeeze(-1) * 0.01
        return torch.nan_to_num(reward, nan=0.0)
    """,
    future_annotations="""
    from __future__ import annotations
    import torch

    def compute_reward(state_dict: dict[str, torch.Tensor]) -> torch.Tensor | None:
        return -(state_dict["dof_pos"] - state_dict["default_dof_pos"]).square().mean(dim=-1)
    """,
    cuda_if_there="""
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    TARGET = torch.tensor([1.0, 0.0, 0.0])

    def compute_reward(state_dict):
        target = TARGET.to(state_dict["root_states"].device)
        return -torch.norm(state_dict["root_states"][:, 7:10] - target, dim=-1)
    """,
)
ordinary(
    "Anymal",
    on_top_of_a_baseline="""
    import torch
    from envcoder_bench.tasks.anymal.human import compute_reward as human_reward

    def compute_reward(state_dict):
        reward, parts = human_reward(state_dict)
        level = -state_dict["root_states"][:, 9].abs()
        return reward + 0.02 * level, {**parts, "level": level}
    """,
)
