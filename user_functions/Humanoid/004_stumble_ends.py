"""Episodes end at a stumble, not only at a fall: torso below 1 m, or tilted by more than 60 degrees.

Who stumbles is about to fall, and the steps until then teach little. Ending early spends them on standing and running;
but a policy that never saw a stumble cannot catch one.
"""


def compute_terminal(state_dict):
    return (state_dict["root_states"][:, 2] < 1.0) | (state_dict["up_vec"][:, 2] < 0.5)
