"""Eight numbers instead of twelve joints: diagonal legs move together, as they do in a trot.

Each pair of legs (LF with RH, LH with RF) has four: move the feet to the left, turn them about the base, swing them
forward, lift them. A smaller action space is searched faster, but gaits outside it cannot be found.
"""
ACTION_DIM = 8

# joint order: LF, LH, RF, RH, each HAA, HFE, KFE. Positive HAA moves a foot to the left, positive HFE backward; the
# knees of front and hind legs bend against each other, and to bend knee by twice the hip keeps the foot below the hip
LEFT, TURN, FORWARD, LIFT = range(4)


def leg(pair, front):
    """Joint offsets ``(n, 3)``, rad, of one leg from its pair's four numbers ``(n, 4)``."""
    side = 1.0 if front else -1.0
    haa = 0.3 * (pair[:, LEFT] + side * pair[:, TURN])
    hfe = 0.4 * side * pair[:, LIFT] - 0.5 * pair[:, FORWARD]
    kfe = -0.8 * side * pair[:, LIFT]
    return torch.stack((haa, hfe, kfe), dim=1)


def compute_dof_target(action, state_dict):
    first, second = action[:, :4], action[:, 4:]
    legs = (leg(first, True), leg(second, False), leg(second, True), leg(first, False))
    return state_dict["default_dof_pos"] + torch.cat(legs, dim=1)
