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
    quaternion_helpers="""
    import torch
    from isaacgym.torch_utils import *
    from isaacgymenvs.utils.torch_jit_utils import quat_rotate_inverse, get_euler_xyz

    def compute_reward(state_dict: dict) -> torch.Tensor:
        base_quat = state_dict["root_states"][:, 3:7]
        base_lin_vel = quat_rotate_inverse(base_quat, state_dict["root_states"][:, 7:10])
        base_ang_vel = quat_rotate_inverse(base_quat, state_dict["root_states"][:, 10:13])
        projected_gravity = quat_rotate_inverse(base_quat, state_dict["gravity_vec"])
        roll, pitch, yaw = get_euler_xyz(base_quat)

        lin_vel_error = torch.sum(torch.square(state_dict["commands"][:, :2] - base_lin_vel[:, :2]), dim=1)
        ang_vel_error = torch.square(state_dict["commands"][:, 2] - base_ang_vel[:, 2])
        rew_lin_vel_xy = torch.exp(-lin_vel_error / 0.25)
        rew_ang_vel_z = torch.exp(-ang_vel_error / 0.25) * 0.5
        rew_orientation = -torch.norm(projected_gravity[:, :2], p=2, dim=-1)
        return torch.clip(rew_lin_vel_xy + rew_ang_vel_z + rew_orientation, 0.0, None)
    """,
    helper_functions_and_constants="""
    \"\"\"Reward for smooth tracking.\"\"\"
    import math
    from typing import Dict

    import torch

    SIGMA = 0.25
    WEIGHTS = {"tracking": 1.0, "height": -0.5, "smoothness": -2e-4}

    def _gaussian(x: torch.Tensor, sigma: float = SIGMA) -> torch.Tensor:
        return torch.exp(-x / (2 * sigma ** 2)) / math.sqrt(2 * math.pi)

    def compute_reward(state_dict: Dict[str, torch.Tensor]):
        velocity = state_dict["root_states"][:, 7:10]
        terms = {
            "tracking": _gaussian(((velocity[:, :2] - state_dict["commands"][:, :2]) ** 2).sum(-1)),
            "height": (state_dict["root_states"][:, 2] - 0.5).abs(),
            "smoothness": (state_dict["dof_vel"] ** 2).sum(-1),
        }
        total = sum(WEIGHTS[name] * value for name, value in terms.items())
        return total, terms
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
    with_no_grad="""
    import torch

    @torch.no_grad()
    def compute_reward(state_dict):
        with torch.no_grad():
            v = state_dict["root_states"][:, 7:10]
            speed = torch.linalg.norm(v, dim=-1)
        return speed.clamp(max=2.0) - 0.1 * v[:, 2].pow(2)
    """,
    prints_and_asserts="""
    import torch

    def compute_reward(state_dict):
        assert "dof_pos" in state_dict, "missing dof_pos"
        x = state_dict["dof_pos"]
        print(f"x has shape {x.shape} and {len(state_dict)} keys: {', '.join(state_dict.keys())}")
        if x.shape[1] != 12:
            raise ValueError(f"expected 12 joints, got {x.shape[1]}")
        try:
            target = state_dict["default_dof_pos"]
        except KeyError:
            target = torch.zeros_like(x)
        return -torch.sum((x - target) ** 2, dim=1)


    if __name__ == "__main__":
        print("this file is for EnvCoderBench")
    """,
    numpy_constants="""
    import numpy as np
    import torch

    FREQUENCY = 2.0 * np.pi * 1.25
    GAINS = np.array([1.0, 0.5, 0.25])

    def compute_reward(state_dict):
        phase = FREQUENCY * 0.02 * state_dict["progress_buf"]
        gains = torch.tensor(GAINS, dtype=torch.float32, device=phase.device)
        return (state_dict["root_states"][:, 7:10] * gains).sum(-1) + 0.1 * torch.sin(phase) + float(np.sqrt(2.0))
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
    gated_torque="""
    import torch

    ACTION_DIM = 12
    KP, KD, LIMIT = 85.0, 2.0, 80.0

    def compute_torque(action, state_dict):
        target = state_dict["default_dof_pos"] + 0.5 * action
        torque = KP * (target - state_dict["dof_pos"]) - KD * state_dict["dof_vel"]
        return torque.clamp(-LIMIT, LIMIT)
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
    lambdas_and_walrus="""
    import torch
    import typing as t

    kernel: t.Callable[[torch.Tensor], torch.Tensor] = lambda x: 1.0 / (1.0 + x ** 2)

    def compute_reward(state_dict: t.Mapping[str, torch.Tensor]) -> torch.Tensor:
        if (n := state_dict["dof_pos"].shape[0]) < 1:
            return torch.zeros(n)
        speeds = list(map(lambda i: state_dict["root_states"][:, i], (7, 8)))
        x, y = speeds
        scale = max(0.5, min(2.0, 1.0))
        return scale * kernel(x - 1.0) + 0.1 * kernel(y) * round(0.55, 1)
    """,
    named_parameters_with_defaults="""
    def compute_reward(root_states, commands, *, weight: float = 2.0, temperature=0.3):
        error = (root_states[:, 7:9] - commands[:, :2]).norm(dim=-1)
        return weight * torch.exp(-error / temperature)

    def compute_done(root_states, contact_forces, base_index):
        return (root_states[:, 2] < 0.2) | (contact_forces[:, base_index].norm(dim=-1) > 5.0)
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
ordinary(
    "Ant",
    run_fast="""
    import torch
    from torch import Tensor
    from typing import Dict, Tuple

    @torch.jit.script
    def compute_reward(
        root_states: torch.Tensor, up_vec: torch.Tensor, heading_vec: torch.Tensor, actions: torch.Tensor,
        potentials: torch.Tensor, prev_potentials: torch.Tensor
    ) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
        progress = potentials - prev_potentials
        speed = root_states[:, 7]
        speed_reward = torch.clamp(speed, min=0.0, max=10.0)
        upright = torch.where(up_vec[:, 2] > 0.93, torch.ones_like(speed) * 0.1, torch.zeros_like(speed))
        cost = torch.sum(actions ** 2, dim=-1) * 0.005
        total = progress + speed_reward + upright - cost
        return total, {"progress": progress, "speed": speed_reward, "upright": upright, "cost": -cost}
    """,
    observation_of_everything="""
    import torch

    def compute_observation(state_dict):
        keys = ["root_states", "dof_pos", "dof_vel", "up_vec", "heading_vec", "vec_sensor_tensor", "actions"]
        parts = [state_dict[k].flatten(start_dim=1) for k in keys]
        height = state_dict["root_states"][:, 2:3]
        obs = torch.cat([height, *parts], dim=-1)
        return torch.clamp(torch.nan_to_num(obs), -10.0, 10.0)
    """,
    inverse_pendulum_energy="""
    import math
    import torch

    def potential(z: torch.Tensor, mass: float, g: float = 9.81) -> torch.Tensor:
        return mass * g * z

    def compute_reward(state_dict):
        s = state_dict["root_states"]
        kinetic = 0.5 * 0.9 * s[:, 7:10].pow(2).sum(-1)
        energy = kinetic + potential(s[:, 2], mass=0.9)
        angle = torch.atan2(state_dict["heading_vec"][:, 1], state_dict["heading_vec"][:, 0])
        wrapped = (angle + math.pi) % (2 * math.pi) - math.pi
        return torch.log1p(energy.clamp(min=0)) * torch.cos(wrapped) - torch.sigmoid(5 * (0.31 - s[:, 2]))
    """,
)
ordinary(
    "Cartpole",
    balance="""
    import torch

    def compute_reward(pole_angle, pole_vel, cart_pos, cart_vel, reset_dist):
        reward = 1.0 - pole_angle * pole_angle - 0.01 * torch.abs(cart_vel) - 0.005 * torch.abs(pole_vel)
        reward = torch.where(torch.abs(cart_pos) > reset_dist, torch.ones_like(reward) * -2.0, reward)
        return reward
    """,
    staged="""
    import torch

    UPRIGHT, CENTRED = 0.1, 0.5

    def compute_reward(state_dict):
        angle, pos = state_dict["pole_angle"].abs(), state_dict["cart_pos"].abs()
        upright, centred = angle < UPRIGHT, pos < CENTRED
        stage = upright.long() + (upright & centred).long()
        bonus = torch.tensor([0.0, 1.0, 3.0], device=angle.device)
        one_hot = (stage.unsqueeze(-1) == torch.arange(3, device=angle.device)).float()
        return (one_hot * bonus).sum(dim=-1) - 0.5 * angle

    def compute_torque(action, state_dict):
        force = torch.tanh(action[:, 0]) * state_dict["max_push_effort"]
        return torch.stack([force, torch.zeros_like(force)], dim=-1)
    """,
)
ordinary(
    "Humanoid",
    humanoid_run="""
    import torch
    from typing import Dict, Tuple
    from isaacgymenvs.utils.torch_jit_utils import compute_heading_and_up, normalize_angle, quat_conjugate

    def compute_reward(state_dict: Dict[str, torch.Tensor]) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
        root, dof_vel = state_dict["root_states"], state_dict["dof_vel"]
        forward_velocity = root[:, 7]
        alive = torch.where(root[:, 2] > 0.8, 2.0, 0.0)
        velocity_reward = 1.25 * forward_velocity.clamp(-1.0, 8.0)
        ctrl_cost = 0.1 * torch.sum(torch.square(state_dict["actions"]), dim=-1)
        wobble = torch.std(dof_vel, dim=-1)
        sideways = torch.abs(root[:, 8])
        reward = alive + velocity_reward - ctrl_cost - 0.05 * wobble - 0.2 * sideways
        reward_dict = dict(alive=alive, velocity=velocity_reward, control=-ctrl_cost, wobble=-0.05 * wobble)
        return reward, reward_dict
    """,
    wide_network_input="""
    import torch

    def compute_observation(state_dict):
        x = torch.cat([state_dict["dof_pos"], 0.1 * state_dict["dof_vel"]], dim=-1)
        bands = 2.0 ** torch.arange(3, device=x.device, dtype=x.dtype)
        waves = (x.unsqueeze(-1) * bands).reshape(x.shape[0], -1)
        return torch.cat([x, torch.sin(waves), torch.cos(waves), state_dict["root_states"][:, 2:]], dim=-1)
    """,
)
