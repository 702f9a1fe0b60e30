"""IsaacGymEnvs' own ending, with a stack: how a terminal can spoil a good reward.

With the human baseline's reward, a stack pays 16 and the episode is over; a cube that is lifted and held in its place pays
3.6 at every step, which discounted by 0.99 is worth 360. So the best policy holds the cube on its place and never lets go:
after 313 M env-steps, cube A was in its place in 94 % of the episodes, and let go in none.
"""


def compute_terminal(state_dict):
    height = state_dict["cubeA_pos"][:, 2] - state_dict["table_height"]
    on_b = torch.abs(height - (state_dict["cubeB_size"] + 0.5 * state_dict["cubeA_size"])) < 0.02
    over_b = torch.norm(state_dict["cubeA_to_cubeB_pos"][:, :2], dim=-1) < 0.02
    return on_b & over_b & (torch.norm(state_dict["cubeA_pos_relative"], dim=-1) > 0.04)
