"""Careful about devices and dtypes."""
import torch

DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
GAIT_OFFSETS = torch.tensor([0.0, 0.5, 0.5, 0.0], dtype=torch.float32)


def _on(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return tensor.to(device=like.device, dtype=like.dtype, non_blocking=True)


@torch.no_grad()
def compute_observation(state_dict):
    root = state_dict["root_states"]
    offsets = _on(GAIT_OFFSETS, root)
    t = state_dict["progress_buf"].to(root.dtype).unsqueeze(-1) * float(state_dict["dt"])
    phase = 2.0 * torch.pi * torch.remainder(1.5 * t + offsets, 1.0)
    pieces = [
        root[:, 2:3],
        root[:, 3:7],
        root[:, 7:10],
        root[:, 10:13] * 0.25,
        state_dict["dof_pos"],
        state_dict["dof_vel"] * 0.2,
        state_dict["up_vec"],
        state_dict["heading_vec"],
        torch.sin(phase),
        torch.cos(phase),
        state_dict["actions"].detach(),
    ]
    obs = torch.cat([p.float() for p in pieces], dim=1).contiguous()
    return torch.nan_to_num(obs, nan=0.0, posinf=5.0, neginf=-5.0)
