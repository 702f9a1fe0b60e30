"""Expressions and function bodies as in candidates; names are those of ``tracing_fakes.make_state``."""

ARITHMETIC = """
1 - x | 1 / pos | x + k | k + j | j + u | u * 2 | d + x | d * 2 | b * x | b + b | i / 4 | k / j.abs().clamp(min=1)
k * WHOLE_0D | x * WHOLE_0D | d * ZERO_D | torch.add(x, y, alpha=0.3) | torch.rsub(x, y, alpha=2)
torch.add(k, k, alpha=3) | x % y | k % (j * 2 + 1) | torch.fmod(x, 0.7) | torch.fmod(k, 4) | torch.fmod(x, y)
torch.remainder(x, y) | torch.remainder(2.0, pos) | u % 3 | d % 0.3 | x // 0.5 | x // y | k // (j * 2 + 1) | u // 2
(k * 0.1) // 0.1 | torch.div(x, y, rounding_mode='floor') | torch.div(x, y, rounding_mode='trunc')
torch.div(k, 4, rounding_mode='floor') | torch.div(k, -4, rounding_mode='trunc')
torch.div(k, j * 2 + 1, rounding_mode='trunc') | pos ** 0.5 | pos ** -1 | pos ** x | 2 ** x | 1.5 ** k | k ** 4
k ** 0 | x ** 1 | j ** 2 | u ** 2 | k ** 0.5 | torch.pow(pos, torch.tensor(1.3)) | d ** 2.2
torch.float_power(pos, 2) | torch.exp2(x) | torch.addcmul(x, y, x, value=0.5) | torch.addcdiv(x, y, pos, value=-2.0)
torch.lerp(x, y, 0.3) | torch.lerp(x, y, unit) | torch.hypot(x, y) | torch.rsqrt(pos) | torch.frac(x)
torch.copysign(x, y) | torch.copysign(pos, -1.0) | torch.fmax(x, y) | torch.fmin(x, y) | torch.logaddexp(x, y)
torch.heaviside(x, y) | torch.deg2rad(x) | torch.rad2deg(x) | torch.xlogy(x, pos) | torch.sinc(x)
"""
FUNCTIONS = """
torch.tan(unit) | torch.acos(unit) | torch.atan(x) | torch.sinh(x) | torch.cosh(x) | torch.expm1(x) | torch.log2(pos)
torch.log10(pos) | torch.erf(x) | torch.erfc(x) | torch.arctan2(k, x) | torch.floor(x) | torch.ceil(x) | torch.fix(x)
(k * 0.5).round() | torch.round(x, decimals=2) | torch.floor(k) | torch.ceil(j) | torch.round(k) | torch.trunc(k) | -k
-j | torch.sin(k) | torch.sqrt(k.abs()) | torch.sign(x) | torch.sign(k) | torch.sgn(x) | torch.sign(b) | x.signbit()
torch.asinh(x) | torch.acosh(pos + 1) | torch.atanh(unit) | torch.exp(d) | torch.tanh(d) | torch.log1p(d.abs())
torch.expm1(d) | torch.logit(0.5 + 0.4 * unit) | torch.log1p(1e-9 * pos.double()) | torch.expm1(1e-12 * d) | F.relu(x)
torch.relu(k) | F.relu6(4 * x) | F.elu(x) | F.selu(x) | F.celu(x, 0.7) | F.leaky_relu(x) | F.leaky_relu(x, 0.3)
F.gelu(x) | F.gelu(x, approximate='tanh') | F.silu(x) | F.hardtanh(x) | F.softshrink(x) | F.hardshrink(x)
F.logsigmoid(x) | F.mish(x) | F.hardsigmoid(4 * x) | F.hardswish(4 * x) | F.threshold(x, 0.1, 20.0)
F.prelu(x, ZERO_D.reshape(1)) | torch.nan_to_num(x / 0) | torch.nan_to_num(x, nan=1.0, posinf=2.0, neginf=-2.0)
torch.nan_to_num(d / 0)
"""
COMPARISONS = """
k <= j | k >= j | k < j | (i % 4).unsqueeze(-1) == torch.arange(4) | x >= 0 | x <= y | k == 3 | k > 0.5 | k != j
k < s.unsqueeze(-1) | b == c.unsqueeze(-1) | u > 4 | d > 0.1 | i > 2 | torch.ge(x, 0) | x.lt(0) | k & 3 | k ^ j | ~k
~j | ~u | k << 2 | k >> 1 | 1 << u | torch.logical_and(x, b) | torch.logical_or(k, b) | torch.logical_not(x)
torch.logical_xor(b, k) | torch.logical_not(k) | torch.isinf(x / 0) | torch.isfinite(x / 0) | torch.isfinite(k)
torch.isinf(k) | torch.isnan(k) | torch.where(b, k, 0) | torch.where(b, x, d) | torch.where(b, k, x)
torch.where(s > 0, 1, 0) | x.masked_fill(b, -1.0) | k.masked_fill(b, 7) | x.masked_fill(b, ZERO_D) | x.clamp(max=0.3)
torch.clamp(k, -2, 2) | torch.clamp(x, y, y + 1) | torch.clamp(x, min=y) | torch.clamp(x, max=s.unsqueeze(1))
x.clamp_max(y) | torch.clamp(k, min=0.5) | torch.clamp(x, min=-y.abs(), max=y.abs()) | torch.max(x, y)
torch.min(k, j) | torch.maximum(b, x > 0) | torch.minimum(d, x.double())
"""
REDUCTIONS = """
k.sum(-1) | j.sum(-1) | u.sum(-1) | x.sum(-1, dtype=torch.float64) | x.mean(dim=-1) | k.double().mean(-1)
x.prod(dim=1) | k.prod(dim=1) | f.amin(dim=(1, 2)) | k.amax(1, keepdim=True) | b.any(dim=1) | b.all(dim=-1)
(f > 0).all(2).any(1) | x.any(-1) | k.all(dim=1) | u.any(1) | x.count_nonzero(dim=1) | b.count_nonzero(1)
x.max(dim=1) | x.min(dim=1)[0] | k.max(dim=1) | k.argmin(-1) | b.max(dim=1) | b.int().argmax(1) | x.aminmax(dim=1)
x.nansum(dim=1) | x.nanmean(dim=-1) | x.norm(p=1, dim=-1) | x.norm(p=float('inf'), dim=-1) | torch.norm(x, p=3, dim=1)
torch.linalg.norm(x, ord=-float('inf'), dim=1) | torch.linalg.norm(x, ord=0.5, dim=1)
torch.linalg.norm(x, ord=0, dim=1) | torch.norm(d, dim=1) | x.var(dim=1) | x.std(dim=-1) | x.var(1, unbiased=False)
x.std(dim=1, correction=2) | torch.var_mean(x, dim=1) | torch.std_mean(f, dim=-1) | torch.logsumexp(x, dim=1)
F.log_softmax(x, dim=-1) | x.softmax(1) | f.cumsum(-1) | f.cumsum(1) | x.cumprod(dim=-1) | k.cumsum(1) | b.cumsum(1)
x.cummax(dim=1) | x.cummin(1).values | torch.einsum('nii->ni', m)
torch.bmm(v.unsqueeze(1), w.unsqueeze(2)).squeeze() | x @ W[0] | x.mm(W.t())
F.linear(x, W, torch.tensor([0.1, -0.2, 0.3])) | torch.addmm(torch.ones(3), x, W.T) | torch.baddbmm(m, m, m)
torch.baddbmm(m, m, m, beta=0.5, alpha=2.0) | torch.addmv(torch.ones(1), x[:, :3], W[:, 0]) | torch.mv(x, W[0])
F.normalize(x, p=1, dim=1) | F.cosine_similarity(v, w, dim=-1) | F.cosine_similarity(x, y) | F.pairwise_distance(x, y)
F.mse_loss(x, y, reduction='none') | F.smooth_l1_loss(x, y, reduction='none')
F.smooth_l1_loss(x, y, reduction='none', beta=0.5) | F.huber_loss(x, y, reduction='none', delta=0.4)
F.layer_norm(x, (4,)) | F.layer_norm(f, (4, 3)) | x.sort(dim=1) | x.argsort(dim=1) | torch.topk(x, 2, dim=1)
x.topk(2, largest=False).values | x.median(dim=1) | x.kthvalue(2, dim=1) | k.sort(dim=1, stable=True)
torch.cdist(f, f) | torch.diagonal(m, dim1=1, dim2=2).sum(-1) | torch.diag_embed(v) | m @ torch.diag_embed(v) @ m.mT
torch.diag_embed(b)
"""
MATRICES = """
torch.linalg.solve(W[:, :3], v.T).T | torch.linalg.solve(W[:, :3], v, left=False)
torch.cholesky_solve(v.T, W[:, :3]).T | torch.linalg.solve_triangular(W[:, :3], v.T, upper=False).T
torch.inverse(m + 4 * torch.eye(3)) | torch.linalg.inv(m + 4 * torch.eye(3))
torch.linalg.solve(m + 4 * torch.eye(3), v) | torch.linalg.solve(m + 4 * torch.eye(3), f, left=False)
torch.linalg.det(m) | torch.det(m) | torch.linalg.slogdet(m) | torch.logdet(m @ m.mT + torch.eye(3))
torch.linalg.cholesky(m @ m.mT + torch.eye(3)) | torch.linalg.cholesky_ex(m @ m.mT + torch.eye(3))
torch.cholesky_solve(f.mT, torch.tril(m) + 4 * torch.eye(3))
torch.cholesky_inverse(torch.tril(m) + 4 * torch.eye(3))
torch.cholesky_inverse(torch.triu(m) + 4 * torch.eye(3), upper=True)
torch.linalg.solve(m + 4 * torch.eye(3), W[0, :3]) | torch.linalg.solve(m + 4 * torch.eye(3), W)
torch.linalg.solve_triangular(m + 4 * torch.eye(3), f.mT, upper=True)
torch.linalg.solve_triangular(m + 4 * torch.eye(3), f, upper=True, left=False)
torch.linalg.inv((m + 4 * torch.eye(3)).double())
"""
STRUCTURE = """
f[:, [0, 2]] | x[:, MASK] | x[:] * 2 | s.squeeze() | x.repeat(1, 2) | torch.tile(x, (1, 2))
x.repeat_interleave(2, dim=-1) | W[0].repeat(x.shape[0], 1) | torch.cat([x]) | x.split(2, dim=1)
torch.split(x, [1, 3], dim=-1) | x.chunk(2, dim=-1) | x.flip(1) | x.roll(-1, -1) | torch.triu(m, 1)
x.unfold(1, 2, 1) | torch.gather(x, 1, torch.tensor([[0, 2]]).expand(x.shape[0], 2))
x[torch.arange(x.shape[0]), i % 4] | F.pad(x, (1, 2)) | F.pad(f, (1, 0, 0, 2))
F.one_hot(torch.tensor([0, 2]), 4) * s.view(-1, 1, 1) | F.one_hot(torch.arange(3)) * s.view(-1, 1, 1) | x.int()
b.long() | k.to(x) | x.type_as(d) | u.float() | d.float() | k.byte() | torch.zeros(x.shape[0], 3)
torch.full((x.shape[0], 2), 0.3) | torch.full_like(x, 2) | torch.full((x.shape[0],), True) | x.new_ones(3) * v
x.new_full((x.shape[0],), 4.0) | torch.empty(x.shape[0], 2).fill_(3.0) | torch.empty_like(x).zero_()
torch.tensor([[1, 2, 3]]) + v | torch.from_numpy(np.array([1.0, 2.0, 3.0])) * v
to_torch([0.0, 0.0, 1.0]).repeat((x.shape[0], 1)) | torch.arange(x.shape[0], dtype=torch.float) * 0.5 + s
torch.arange(2, x.shape[0] + 2) | torch.arange(x.shape[0]).unsqueeze(1) % 2 == torch.arange(2)
torch.arange(x.shape[0] * 4).view(-1, 4) | torch.linspace(0, 1, 4) * x | torch.logspace(0, 1, 4) * x
torch.tensor([1.0, 2.0]).sum().item() * x | float(ZERO_D) + s | torch.isin(k, torch.tensor([1, 2]))
torch.bucketize(x, torch.tensor([-0.5, 0.0, 0.5])) | torch.bucketize(k, torch.tensor([-2, 3]), right=True)
torch.isin(k, torch.tensor([1, 2]), invert=True) | torch.zeros(x.shape) + x | x.new_zeros(x.size())
torch.zeros(x.size(0), dtype=torch.long) + i
"""
QUATERNIONS = """
quat_axis(q, 0) | slerp(q, r, unit[:, :1].abs()) | exp_map_to_quat(v) | get_euler_xyz(q)
matrix_to_quaternion(quaternion_to_matrix(q)) | compute_rot(q, v, w, f[:, 0], f[:, 1])
"""
BODIES = [
    "o = x.clone(); o[c] = 0; return o",
    "o = x.clone(); o[:, [1, 3]] = 0.5; return o",
    "o = torch.empty_like(x); torch.add(x, y, out=o); return o",
    "o = torch.empty_like(x); torch.clamp(x, -0.1, 0.1, out=o); return o",
    "o = x.clone(); o.clamp_(-0.5, 0.5).mul_(3).sub_(1).div_(2).abs_().sqrt_(); return o",
    "o = k.clone(); o += 1; o *= 2; o //= 3; o %= 4; o -= j; return o",
    "o = k.clone(); o += 0; o[b] = 5; o.clamp_(min=0); return o",
    "o = b.clone(); o &= (x > 0); o |= (y > 1); o ^= (x > y); return o, ~o",
    "o = b.clone(); o[:, 0] = True; o[:, 1] = c; o.logical_not_(); return o",
    "o = torch.tensor([1.0, 2.0, 3.0]); w = o.tolist(); o[1] = 5.0; return v * o + w[1] * s.unsqueeze(1)",
    """
reset = torch.where(c, torch.ones_like(i), i)
reset = torch.where(i >= 5, torch.ones_like(reset), reset)
return reset
    """,
    "o = x.clone(); o.fill_(0.25); o[:, 3].fill_(s.shape[0] * 0); return o",
    "o = x.clone(); o.index_fill_(1, IDX, 4.0); return o",
    "o = x.clone(); o.scatter_(1, (i % 4).unsqueeze(1), 1.0); return o",
    "o = torch.zeros_like(x); return o.scatter(1, k % 4, y)",
    "o = x.clone(); o[:, 0].copy_(i); o[:, 1] = b[:, 0]; return o",
    "vals, idx = x.max(dim=1); return vals * (idx == 2), idx + 1",
    """
@torch.jit.script
def g(a: Tensor):
    out = torch.zeros_like(a)
    out[:, 0] = a[:, 1]
    for n in range(2):
        out = out + a
    return out
return g(x), g(x), g(x)
    """,
    "return x.new_empty(x.shape[0], 2).fill_(1.0)",
    "return x[torch.arange(x.shape[0]), i % 4 - 4], f[torch.arange(x.shape[0]), -1, -1 - i % 3]",
    "return W[i % 3], W[i % 3 - 3, k[:, 0] % 4], W[:, i % 4].sum(0), W[k % 3], W[(k % 3).unsqueeze(1), IDX.view(2, 1)]",
    "return IDX[i % 2], MASK[k % 4], W.view(3, 2, 2)[i % 3, :, i % 2], W[i.int() % 3, 1:3], W[i % 3, IDX[0]]",
    "return W.index_select(0, i % 3), W.index_select(1, i % 4).T, torch.arange(3.0)[x.argmax(1) % 3], W.exp()[i % 3]",
    "return x[:, torch.tensor([0, 1, 2, 1], dtype=torch.uint8)]",
    "o = x.clone(); o[torch.arange(x.shape[0])] = y; return o",
    "o = f.clone(); o[torch.arange(x.shape[0]), i % 4] = v; return o, torch.zeros_like(x, dtype=torch.int64)",
    "o = torch.zeros_like(k); p = o[:, 1:]; p[torch.arange(x.shape[0]), i % 3] = k[:, 0]; return o",
    "o = x.clone(); p = o.T.contiguous(); p[:, : p.shape[1]] = 2.0; return p.T",
    "o = x[:, :3].clone(); o.t_(); o[0] = s; return o.T",
    "o = b.clone(); o[:, :2][c] = True; return o",
    "return b | (x > 0), k | 4, j.__or__(k)",
    # two numbers of an index for each environment, with its axes first, or in their place
    "return f[torch.arange(x.shape[0])[:, None], :, k[:, :2] % 3], x.T[torch.tensor([2])].T",
    "return f.transpose(0, 1)[:, torch.arange(x.shape[0])[:, None], k[:, :2] % 3].transpose(0, 1)",
]


def _parts(*texts: str) -> list[str]:
    return [part.strip() for text in texts for line in text.strip().splitlines() for part in line.split(" | ")]


def _table() -> list[str]:
    bodies = [body.strip() if "\n" in body else body.replace("; ", "\n") for body in BODIES]
    return _parts(ARITHMETIC, FUNCTIONS, COMPARISONS, REDUCTIONS, STRUCTURE, QUATERNIONS) + bodies


SOLVERS = _parts(MATRICES)  # of which torch leaves to LAPACK what becomes of NaN, and raises where it has no result
TABLE = _table() + SOLVERS
