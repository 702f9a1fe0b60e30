"""Quaternion functions for Warp kernels, against those for torch."""
# Warp compiles the kernel; it is Python in its syntax alone, and a type checker for Python misreads it.
# pyright: reportIndexIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportCallIssue=false

import torch
import warp as wp

from mujoco_batches.physics.warp_functions import conjugate, is_within, multiply, rotate, set_state_row, velocity_at
from mujoco_batches.torch_utils import quat_conjugate, quat_mul, quat_rotate

wp.config.log_level = wp.LOG_WARNING
wp.init()


@wp.kernel(enable_backward=False)
def evaluate(
    a: wp.array[wp.vec4],
    b: wp.array[wp.vec4],
    v: wp.array[wp.vec3],
    w: wp.array[wp.vec3],
    out: wp.array2d[wp.float32],
    within: wp.array[wp.bool],
):
    """Write two rows of 13 numbers side by side: of a product and its rotations, and of the inverse rotation."""
    i = wp.tid()
    turned = rotate(a[i], v[i])
    set_state_row(i, 0, turned, multiply(a[i], b[i]), velocity_at(wp.spatial_vector(w[i], v[i]), turned), w[i], out)
    set_state_row(i, 13, rotate(conjugate(a[i]), turned), conjugate(a[i]), v[i], w[i], out)
    within[i] = is_within(v[i][0], 1.0)


def test_warp_functions_match_torch():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.nn.functional.normalize(torch.randn(2, 8, 4, generator=generator), dim=-1)
    v, w = torch.randn(2, 8, 3, generator=generator)
    v[3, 0] = torch.nan
    out, within = torch.zeros(8, 26), torch.zeros(8, dtype=torch.bool)
    given = [wp.from_torch(q[:, [3, 0, 1, 2]].contiguous(), dtype=wp.vec4) for q in (a, b)]  # wxyz
    given += [wp.from_torch(x, dtype=wp.vec3) for x in (v, w)]
    wp.launch(evaluate, dim=8, inputs=given, outputs=[wp.from_torch(out), wp.from_torch(within)], device="cpu")
    turned = quat_rotate(a, v)
    expected = [turned, quat_mul(a, b), v + torch.cross(w, turned, dim=-1), w, v, quat_conjugate(a), v, w]
    finite = torch.arange(8) != 3
    torch.testing.assert_close(out[finite], torch.cat(expected, dim=-1)[finite])
    assert torch.equal(within, v[:, 0].abs() <= 1.0) and not within[3]


def test_zero_quaternion_does_not_rotate():
    out, within = torch.zeros(1, 26), torch.zeros(1, dtype=torch.bool)
    zero, vector = torch.zeros(1, 4), torch.tensor([[1.0, 2.0, 3.0]])
    inputs = [
        wp.from_torch(x, dtype=t) for x, t in ((zero, wp.vec4), (zero, wp.vec4), (vector, wp.vec3), (vector, wp.vec3))
    ]
    wp.launch(evaluate, dim=1, inputs=inputs, outputs=[wp.from_torch(out), wp.from_torch(within)], device="cpu")
    assert torch.equal(out[:, :3], vector)
