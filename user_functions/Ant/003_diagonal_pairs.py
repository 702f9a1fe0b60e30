"""Four numbers instead of eight: diagonal legs move together, as in a trot.

Legs 1 (front left) and 3 (back left), 2 (front right) and 4 (back right) face each other across the torso. A smaller
action space is searched faster, but gaits outside it cannot be found.
"""
ACTION_DIM = 4


def compute_torque(action, state_dict):
    # joints: hip and ankle of the legs 1 to 4. Ankles of legs 2 and 3 bend with the opposite sign
    hip_a, ankle_a, hip_b, ankle_b = action.unbind(dim=1)
    torque = torch.stack((hip_a, ankle_a, hip_b, -ankle_b, hip_a, -ankle_a, hip_b, ankle_b), dim=1)
    return torque * state_dict["motor_efforts"]
