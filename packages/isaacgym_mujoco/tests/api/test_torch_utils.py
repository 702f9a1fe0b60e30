"""Properties and hand-computed cases of the quaternion, scaling and random helpers."""

import inspect
import math

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from mujoco_batches import torch_utils as tu

S = math.sqrt(0.5)
QUARTER_Z = torch.tensor([[0.0, 0.0, S, S]])  # 90 degrees about z, xyzw
QUARTER_X = torch.tensor([[S, 0.0, 0.0, S]])
X, Y, Z = torch.eye(3).unsqueeze(1)


def random_quats(n: int = 200, seed: int = 0) -> torch.Tensor:
    return tu.quat_unit(torch.randn(n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


def random_vectors(n: int = 200, seed: int = 1) -> torch.Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def same_rotation(a: torch.Tensor, b: torch.Tensor, atol: float = 1e-9) -> None:
    """q and -q are one rotation."""
    sign = torch.sign((a * b).sum(-1, keepdim=True))
    torch.testing.assert_close(a, sign * b, atol=atol, rtol=0)


@pytest.mark.parametrize("name", ["quat_rotate", "quat_apply", "my_quat_rotate", "get_basis_vector", "tf_vector"])
def test_quarter_turn_about_z_rotates_x_to_y(name):
    rotate = getattr(tu, name)
    torch.testing.assert_close(rotate(QUARTER_Z, X), Y, atol=1e-6, rtol=0)
    torch.testing.assert_close(rotate(QUARTER_Z, Y), -X, atol=1e-6, rtol=0)
    torch.testing.assert_close(rotate(QUARTER_Z, Z), Z, atol=1e-6, rtol=0)


def test_rotate_inverse_inverts_rotate():
    q, v = random_quats(), random_vectors()
    torch.testing.assert_close(tu.quat_rotate_inverse(q, tu.quat_rotate(q, v)), v)
    torch.testing.assert_close(tu.quat_rotate_inverse(QUARTER_Z, X), -Y, atol=1e-6, rtol=0)


def test_product_rotates_by_its_right_factor_first():
    # x -> (about x: x) -> (about z: y);  the other order: x -> y -> z
    torch.testing.assert_close(tu.quat_rotate(tu.quat_mul(QUARTER_Z, QUARTER_X), X), Y, atol=1e-6, rtol=0)
    torch.testing.assert_close(tu.quat_rotate(tu.quat_mul(QUARTER_X, QUARTER_Z), X), Z, atol=1e-6, rtol=0)
    a, b, v = random_quats(seed=2), random_quats(seed=3), random_vectors()
    torch.testing.assert_close(tu.quat_rotate(tu.quat_mul(a, b), v), tu.quat_rotate(a, tu.quat_rotate(b, v)))


def test_rotation_matches_the_matrix():
    q, v = random_quats(), random_vectors()
    wxyz = torch.cat([q[:, 3:], q[:, :3]], dim=-1)
    matrix = tu.quaternion_to_matrix(wxyz)
    torch.testing.assert_close((matrix @ v.unsqueeze(-1)).squeeze(-1), tu.quat_rotate(q, v))
    same_rotation(tu.matrix_to_quaternion(matrix), wxyz)


@pytest.mark.parametrize("axis", range(3))
def test_matrix_to_quaternion_supports_half_turns(axis):
    """The scalar part is zero: a formula that divides by it fails."""
    matrix = -torch.eye(3)
    matrix[axis, axis] = 1.0
    want = torch.zeros(4)
    want[1 + axis] = 1.0
    same_rotation(tu.matrix_to_quaternion(matrix), want, atol=1e-6)


def test_angle_axis_round_trips():
    angle = torch.tensor([0.3, -2.0, 3.0, 0.5], dtype=torch.float64)
    axis = tu.normalize(random_vectors(4))
    q = tu.quat_from_angle_axis(angle, 5.0 * axis)  # any length of the axis
    got_angle, got_axis = tu.quat_to_angle_axis(q)
    torch.testing.assert_close(got_angle.unsqueeze(-1) * got_axis, angle.unsqueeze(-1) * axis)
    torch.testing.assert_close(tu.quat_from_angle_axis(torch.tensor([math.pi / 2]), Z), QUARTER_Z)


def test_exp_map_round_trips_beyond_half_a_turn():
    small = 0.5 * random_vectors(50)
    torch.testing.assert_close(tu.quat_to_exp_map(tu.exp_map_to_quat(small)), small)
    beyond = torch.tensor([[0.0, 0.0, 4.0]], dtype=torch.float64)
    same_rotation(tu.exp_map_to_quat(beyond), tu.quat_from_angle_axis(beyond[:, 2], beyond))
    torch.testing.assert_close(tu.angle_axis_to_exp_map(torch.tensor([2.0]), Y), 2.0 * Y)


def test_zero_rotation_has_a_finite_axis():
    for angle, axis in (
        tu.quat_to_angle_axis(torch.tensor([[0.0, 0.0, 0.0, 1.0]])),
        tu.exp_map_to_angle_axis(torch.zeros(1, 3)),
    ):
        assert angle.item() == 0.0
        torch.testing.assert_close(axis, Z)


def test_euler_angles_match_hand_computed_values_and_round_trip():
    quarter, zero = torch.tensor([math.pi / 2]), torch.zeros(1)
    torch.testing.assert_close(tu.quat_from_euler_xyz(zero, zero, quarter), QUARTER_Z)
    torch.testing.assert_close(tu.quat_from_euler_xyz(quarter, zero, zero), QUARTER_X)
    # fixed axes: roll first, then yaw
    torch.testing.assert_close(tu.quat_from_euler_xyz(quarter, zero, quarter), tu.quat_mul(QUARTER_Z, QUARTER_X))
    q = random_quats()
    roll, pitch, yaw = tu.get_euler_xyz(q)
    for angle in (roll, pitch, yaw):
        assert bool(((angle >= 0) & (angle < 2 * math.pi)).all())
    same_rotation(tu.quat_from_euler_xyz(roll, pitch, yaw), q)
    torch.testing.assert_close(tu.euler_xyz_to_exp_map(zero, zero, quarter), quarter.unsqueeze(-1) * Z)


def test_vertical_pitch_is_finite():
    q = tu.quat_from_euler_xyz(torch.zeros(1), torch.tensor([math.pi / 2]), torch.zeros(1))
    assert tu.get_euler_xyz(1.0001 * q)[1].item() == pytest.approx(math.pi / 2, abs=1e-3)


def test_quat_diff_rad_is_the_angle_between_quaternions():
    base = random_quats(3)
    for angle in (0.0, 0.7, math.pi / 2):
        turned = tu.quat_mul(base, tu.quat_from_angle_axis(torch.full((3,), angle), random_vectors(3)))
        torch.testing.assert_close(tu.quat_diff_rad(turned, base), torch.full((3,), angle, dtype=base.dtype))
        torch.testing.assert_close(tu.quat_diff_rad(-turned, base), torch.full((3,), angle, dtype=base.dtype))


def test_slerp_is_linear_in_angle_and_takes_the_shorter_arc():
    q0 = random_quats(5)
    step = tu.quat_from_angle_axis(torch.full((5,), 0.25), random_vectors(5))
    q1 = tu.quat_mul(tu.quat_mul(tu.quat_mul(tu.quat_mul(q0, step), step), step), step)
    quarter = torch.full((5, 1), 0.25, dtype=q0.dtype)
    for end in (q1, -q1):
        same_rotation(tu.slerp(q0, end, quarter), tu.quat_mul(q0, step))
        same_rotation(tu.slerp(q0, end, torch.ones_like(quarter)), q1)
    same_rotation(tu.slerp(q0, q0, quarter), q0)


def test_heading_helpers_extract_and_remove_yaw():
    turned = tu.quat_from_euler_xyz(torch.tensor([0.2]), torch.tensor([-0.3]), torch.tensor([2.0]))
    torch.testing.assert_close(tu.calc_heading(turned), torch.tensor([2.0]))
    level = tu.quat_mul(tu.calc_heading_quat_inv(turned), turned)
    torch.testing.assert_close(tu.calc_heading(level), torch.zeros(1), atol=1e-6, rtol=0)
    torch.testing.assert_close(tu.calc_heading_quat(QUARTER_Z), QUARTER_Z)
    torch.testing.assert_close(tu.quat_to_tan_norm(QUARTER_Z), torch.cat([Y, Z], dim=-1), atol=1e-6, rtol=0)


def test_compute_heading_and_up_of_a_torso_facing_its_target():
    identity = torch.tensor([[0.0, 0.0, 0.0, 1.0]])
    _, up, heading, up_vec, heading_vec = tu.compute_heading_and_up(QUARTER_Z, identity, 7.0 * Y, X, Z, 2)
    torch.testing.assert_close(torch.cat([up, heading]), torch.ones(2))
    torch.testing.assert_close(torch.cat([up_vec, heading_vec]), torch.cat([Z, Y]), atol=1e-6, rtol=0)


def test_compute_rot_gives_body_frame_velocities():
    origin, ahead = torch.zeros(1, 3), X + Z
    vel, ang_vel, roll, pitch, yaw, angle = tu.compute_rot(QUARTER_Z, Y, Z, ahead, origin)
    torch.testing.assert_close(vel, X, atol=1e-6, rtol=0)
    torch.testing.assert_close(ang_vel, Z, atol=1e-6, rtol=0)
    torch.testing.assert_close(torch.cat([yaw, angle]), torch.tensor([math.pi / 2, math.pi / 4 - math.pi / 2]))
    torch.testing.assert_close(torch.cat([roll, pitch]), torch.zeros(2), atol=1e-6, rtol=0)


def test_transforms_compose_and_invert():
    q1, t1, v = random_quats(seed=4), random_vectors(seed=5), random_vectors(seed=7)
    q2, t2 = random_quats(seed=6), random_vectors()
    both = tu.tf_apply(*tu.tf_combine(q1, t1, q2, t2), v)
    torch.testing.assert_close(both, tu.tf_apply(q1, t1, tu.tf_apply(q2, t2, v)))
    torch.testing.assert_close(tu.tf_apply(*tu.tf_inverse(q1, t1), tu.tf_apply(q1, t1, v)), v)
    torch.testing.assert_close(tu.local_to_world_space(v, torch.cat([t1, q1], -1)), tu.tf_apply(q1, t1, v))


def test_normalise_quat_in_pose_does_not_modify_its_argument():
    pose = torch.tensor([[1.0, 2.0, 3.0, 0.0, 0.0, 2.0, 0.0]])
    assert tu.normalise_quat_in_pose(pose).tolist() == [[1.0, 2.0, 3.0, 0.0, 0.0, 1.0, 0.0]]
    assert pose[0, 5] == 2.0


def test_range_helpers_scale_unscale_and_clamp():
    lower, upper = torch.tensor([-1.0, 10.0]), torch.tensor([3.0, 20.0])
    middle, top = torch.zeros(1, 2), torch.ones(1, 2)
    for to_range, to_unit in ((tu.scale, tu.unscale), (tu.unscale_transform, tu.scale_transform)):
        assert to_range(middle, lower, upper).tolist() == [[1.0, 15.0]]
        assert to_range(top, lower, upper).tolist() == [[3.0, 20.0]]
        assert to_unit(upper.unsqueeze(0), lower, upper).tolist() == [[1.0, 1.0]]
        assert to_unit(lower.unsqueeze(0), lower, upper).tolist() == [[-1.0, -1.0]]
    assert tu.unscale_np(3.0, -1.0, 3.0) == 1.0
    wild = torch.tensor([[-5.0, 50.0]])
    assert tu.tensor_clamp(wild, lower, upper).tolist() == tu.saturate(wild, lower, upper).tolist() == [[-1.0, 20.0]]


def test_small_helpers_match_expected_values():
    torch.testing.assert_close(tu.normalize_angle(torch.tensor([3.5 * math.pi])), torch.tensor([-0.5 * math.pi]))
    assert tu.copysign(-2.0, torch.tensor([-3.0, 0.0, 4.0])).tolist() == [-2.0, 0.0, 2.0]
    assert tu.get_axis_params(-1.0, 2) == [0.0, 0.0, -1.0]
    with pytest.raises(ValueError, match="axis_idx 3"):
        tu.get_axis_params(1.0, 3)
    assert tu.normalize(torch.zeros(1, 3)).tolist() == [[0.0, 0.0, 0.0]]
    for axis in range(3):
        assert tu.quat_axis(torch.tensor([[0.0, 0.0, 0.0, 1.0]]), axis).tolist() == [torch.eye(3)[axis].tolist()]
    source = torch.ones(2)
    copy = tu.to_torch(source)
    copy[0] = 5.0
    assert source.tolist() == [1.0, 1.0] and tu.to_torch([1, 2]).dtype == torch.float32


def test_random_helpers_stay_in_their_range():
    torch.manual_seed(0)
    draw = tu.torch_rand_float(-2.0, 3.0, (500, 4), "cpu")
    assert draw.shape == (500, 4) and draw.min() >= -2.0 and draw.max() < 3.0
    assert abs(draw.mean().item() - 0.5) < 0.15
    torch.testing.assert_close(tu.torch_random_dir_2((50, 1), "cpu").norm(dim=-1), torch.ones(50))
    low, high = torch.tensor(5.0), torch.tensor(6.0)  # constants of the state are 0-d tensors
    assert bool((tu.torch_rand_float(low, high, (9, 1), "cpu") >= 5.0).all())


FUNCTIONS = sorted(
    name
    for name, f in vars(tu).items()
    if inspect.isfunction(f) and f.__module__ == tu.__name__ and not name.startswith("_")
)
NOT_TENSOR_CODE = {"to_torch", "get_axis_params", "unscale_np"}


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in NOT_TENSOR_CODE])
def test_helpers_are_callable_from_torchscript(name):
    """Candidates call them inside @torch.jit.script, as IsaacGymEnvs' reward functions do."""
    torch.jit.script(getattr(tu, name))


def test_rows_are_independent_and_helpers_are_traceable():
    q, p, v = random_quats(33).float(), random_quats(33, seed=9).float(), random_vectors(33).float()

    def everything(q, p, v):
        t = 0.5 * torch.ones_like(q[:, :1])
        outputs = [tu.quat_rotate(q, v), tu.slerp(q, p, t), tu.quat_diff_rad(q, p), tu.calc_heading_quat(q)]
        outputs += [tu.quat_to_exp_map(q), tu.exp_map_to_quat(v), *tu.get_euler_xyz(q)]
        outputs += [tu.matrix_to_quaternion(tu.quaternion_to_matrix(q))]
        return torch.cat([x.reshape(x.shape[0], -1) for x in outputs], dim=-1)

    whole = everything(q, p, v)
    graph = make_fx(everything)(q, p, v)
    assert torch.equal(graph(p, q, v), everything(p, q, v))
    torch.testing.assert_close(everything(q[7:8], p[7:8], v[7:8]), whole[7:8])


def test_quat_apply_accepts_flattened_quaternions():
    q, v = torch.nn.functional.normalize(torch.randn(5, 7, 4), dim=-1), torch.randn(5, 7, 3)
    torch.testing.assert_close(tu.quat_apply(q.view(35, 4), v), tu.quat_apply(q, v))
