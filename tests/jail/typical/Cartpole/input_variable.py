"""Uses everyday names such as input, type, format and id for its variables."""
import torch


def compute_observation(state_dict):
    input = torch.stack(
        [state_dict["cart_pos"], state_dict["cart_vel"], state_dict["pole_angle"], state_dict["pole_vel"]], dim=1
    )
    type = input.dtype
    format = {"scale": torch.tensor([0.4, 0.2, 1.0, 0.3], dtype=type, device=input.device)}
    id = input * format["scale"]
    filter, map = torch.sin(id[:, 2:3]), torch.cos(id[:, 2:3])
    return torch.cat((id, filter, map), dim=-1)


def compute_reward(pole_angle, cart_pos):
    vars = {"angle": pole_angle, "pos": cart_pos}
    sum = -vars["angle"].abs() - 0.1 * vars["pos"].abs()
    return 1.0 + sum
