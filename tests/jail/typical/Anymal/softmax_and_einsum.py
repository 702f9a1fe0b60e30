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
