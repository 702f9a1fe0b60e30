"""Pairs left and right joints by name through a dict comprehension and index tensors."""
import torch

JOINTS = (
    "abdomen_z", "abdomen_y", "abdomen_x",
    "right_hip_x", "right_hip_z", "right_hip_y", "right_knee", "right_ankle_y", "right_ankle_x",
    "left_hip_x", "left_hip_z", "left_hip_y", "left_knee", "left_ankle_y", "left_ankle_x",
    "right_shoulder1", "right_shoulder2", "right_elbow", "left_shoulder1", "left_shoulder2", "left_elbow",
)
INDEX = {name: i for i, name in enumerate(JOINTS)}
PAIRS = [(INDEX[n], INDEX[n.replace("left", "right")]) for n in JOINTS if n.startswith("left")]
LEFT, RIGHT = map(list, zip(*PAIRS))


def compute_reward(state_dict):
    q, dq = state_dict["dof_pos"], state_dict["dof_vel"]
    left = torch.index_select(q, 1, torch.tensor(LEFT, device=q.device))
    right = q[:, RIGHT]
    # legs should alternate: positions differ, velocities are opposite
    alternate = -(dq[:, INDEX["left_hip_y"]] * dq[:, INDEX["right_hip_y"]])
    arms = (q[:, INDEX["left_shoulder1"]] - q[:, INDEX["right_hip_y"]]).abs()
    spread = torch.var(left - right, dim=1, unbiased=False)
    forward = state_dict["root_states"][:, 7].clip(-1, 10)
    reward = forward + 0.02 * torch.tanh(alternate) - 0.05 * arms + 0.01 * spread
    return reward
