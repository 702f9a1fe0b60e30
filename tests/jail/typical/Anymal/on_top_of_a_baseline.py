import torch
from envcoder_bench.tasks.anymal.human import compute_reward as human_reward

def compute_reward(state_dict):
    reward, parts = human_reward(state_dict)
    level = -state_dict["root_states"][:, 9].abs()
    return reward + 0.02 * level, {**parts, "level": level}
