"""Joint groups are weighted with a match statement."""
import torch

JOINT_NAMES = ["LF_HAA", "LF_HFE", "LF_KFE", "LH_HAA", "LH_HFE", "LH_KFE",
               "RF_HAA", "RF_HFE", "RF_KFE", "RH_HAA", "RH_HFE", "RH_KFE"]


def joint_weight(name: str) -> float:
    match name.split("_"):
        case [_, "HAA"]:
            return 1.0
        case ["LF" | "RF", "HFE"]:
            return 0.5
        case [_, "HFE"]:
            return 0.4
        case [_, "KFE"]:
            return 0.2
        case _:
            raise ValueError(f"Unexpected joint {name}")


WEIGHTS = [joint_weight(name) for name in JOINT_NAMES]


def compute_reward(state_dict):
    dof_pos = state_dict["dof_pos"]
    weights = torch.tensor(WEIGHTS, dtype=dof_pos.dtype, device=dof_pos.device)
    deviation = torch.sum(weights * torch.abs(dof_pos - state_dict["default_dof_pos"]), dim=-1)
    error = torch.norm(state_dict["root_states"][:, 7:9] - state_dict["commands"][:, :2], dim=-1)
    tracking = 1.0 / (1.0 + error)
    return tracking - 0.05 * deviation, {"tracking": tracking, "deviation": -0.05 * deviation}
