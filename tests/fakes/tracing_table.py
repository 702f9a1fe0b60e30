"""Expressions and function bodies as in candidates; names are those of ``tracing_fakes.make_state``."""

ARITHMETIC = """
x + y | x - y | x * y | x / y | -x | +x | abs(x) | x + 1 | 1 - x | 2.5 * x | x / 3 | 1 / pos | x + s.unsqueeze(-1)
x * s[:, None] | f * v.unsqueeze(1) | f + 1.0 | x + k | k * 0.5 | k + j | j + u | u * 2 | d + x | d * 2 | b * x
b + b | b * b | i + 1 | i / 4 | k / j.abs().clamp(min=1) | x * ZERO_D | k * ZERO_D | k * WHOLE_0D | x * WHOLE_0D
d * ZERO_D | torch.add(x, y, alpha=0.3) | torch.sub(x, y, alpha=2) | torch.rsub(x, y, alpha=2)
torch.add(k, k, alpha=3) | x % 0.7 | x % -0.7 | x % y | k % 4 | k % -4 | k % (j * 2 + 1) | j % 3
torch.fmod(x, 0.7) | torch.fmod(k, 4) | torch.fmod(x, y) | torch.remainder(x, y) | torch.remainder(2.0, pos) | u % 3
d % 0.3 | x // 0.5 | x // y | k // 4 | k // -4 | k // (j * 2 + 1) | u // 2 | pos // 0.1 | (k * 0.1) // 0.1
torch.div(x, y, rounding_mode='floor') | torch.div(x, y, rounding_mode='trunc') | torch.floor_divide(k, 3)
torch.div(k, 4, rounding_mode='floor') | torch.div(k, -4, rounding_mode='trunc')
torch.div(k, j * 2 + 1, rounding_mode='trunc') | x ** 2 | x ** 3 | x ** 4 | pos ** 0.5 | pos ** 1.7 | pos ** -1
pos ** -2 | pos ** -0.5 | pos ** x | 2 ** x | 1.5 ** k | k ** 2 | k ** 3 | k ** 4 | k ** 0 | x ** 0 | x ** 1
j ** 2 | u ** 2 | k ** 0.5 | torch.pow(pos, torch.tensor(1.3)) | pos.pow(y) | d ** 2.2 | torch.float_power(pos, 2)
torch.square(k) | torch.exp2(x) | torch.addcmul(x, y, x, value=0.5) | torch.addcdiv(x, y, pos, value=-2.0)
torch.lerp(x, y, 0.3) | torch.lerp(x, y, unit) | torch.hypot(x, y) | torch.reciprocal(pos) | torch.rsqrt(pos)
torch.sqrt(pos) | torch.square(x) | torch.frac(x) | torch.copysign(x, y) | torch.copysign(pos, -1.0)
torch.fmax(x, y) | torch.fmin(x, y) | torch.logaddexp(x, y) | torch.heaviside(x, y) | torch.deg2rad(x)
torch.rad2deg(x) | torch.xlogy(x, pos) | torch.sinc(x)
"""
FUNCTIONS = """
torch.sin(x) | torch.cos(x) | torch.tan(unit) | torch.asin(unit) | torch.acos(unit) | torch.atan(x) | torch.sinh(x)
torch.cosh(x) | torch.tanh(x) | torch.exp(x) | torch.expm1(x) | torch.log(pos) | torch.log2(pos) | torch.log10(pos)
torch.log1p(pos) | torch.erf(x) | torch.erfc(x) | torch.atan2(y, x) | torch.arctan2(k, x) | torch.floor(x)
torch.ceil(x) | torch.trunc(x) | torch.fix(x) | torch.round(x) | torch.round(x * 2) / 2 | (k * 0.5).round()
torch.round(x, decimals=2) | torch.floor(k) | torch.ceil(j) | torch.round(k) | torch.trunc(k) | k.abs() | -k | -j
torch.sin(k) | torch.exp(b.float()) | torch.sqrt(k.abs()) | torch.sign(x) | torch.sign(k) | torch.sgn(x)
torch.sign(b) | x.signbit() | torch.sigmoid(x) | x.sigmoid() | torch.asinh(x) | torch.acosh(pos + 1)
torch.atanh(unit) | torch.arcsin(unit) | torch.exp(d) | torch.tanh(d) | torch.log1p(d.abs()) | torch.expm1(d)
torch.logit(0.5 + 0.4 * unit) | torch.log1p(1e-9 * pos.double()) | torch.expm1(1e-12 * d) | torch.expm1(1e-9 * x)
F.relu(x) | torch.relu(k) | F.relu6(4 * x) | F.elu(x) | F.elu(x, alpha=0.4) | F.selu(x) | F.celu(x, 0.7)
F.softplus(x) | F.softplus(x, beta=3) | F.softplus(50 * x) | F.leaky_relu(x) | F.leaky_relu(x, 0.3) | F.gelu(x)
F.gelu(x, approximate='tanh') | F.silu(x) | F.hardtanh(x) | F.hardtanh(x, -0.3, 0.4) | F.softshrink(x)
F.hardshrink(x) | F.tanhshrink(x) | F.softsign(x) | F.logsigmoid(x) | F.mish(x) | F.hardsigmoid(4 * x)
F.hardswish(4 * x) | F.threshold(x, 0.1, 20.0) | F.prelu(x, ZERO_D.reshape(1)) | torch.nan_to_num(x / 0)
torch.nan_to_num(x, nan=1.0, posinf=2.0, neginf=-2.0) | torch.nan_to_num(k) | torch.nan_to_num(d / 0)
"""
COMPARISONS = """
k <= j | k >= j | k < j | (i % 4).unsqueeze(-1) == torch.arange(4)
x > y | x >= 0 | x < 0.1 | x <= y | x == y | x != y | k == 3 | k > 0.5 | k != j | k < s.unsqueeze(-1)
b == c.unsqueeze(-1) | u > 4 | d > 0.1 | x > ZERO_D | i > 2 | i % 3 == 0 | torch.eq(x, x) | torch.ge(x, 0)
torch.greater(x, y) | x.lt(0) | b & c.unsqueeze(1) | b ^ (y > 0) | ~b | k & 3 | k ^ j | ~k | ~j | ~u | k << 2
k >> 1 | 1 << u | torch.bitwise_and(k, 5) | torch.bitwise_not(b) | torch.logical_and(x, b) | torch.logical_or(k, b)
torch.logical_not(x) | torch.logical_xor(b, k) | torch.logical_not(k) | torch.isnan(x) | torch.isinf(x / 0)
torch.isfinite(x / 0) | torch.isfinite(k) | torch.isclose(x, x + 1e-9) | torch.isclose(x, y, atol=0.5)
torch.isposinf(x / 0) | torch.isneginf(x / 0) | torch.isinf(k) | torch.isnan(k) | torch.where(x > 0, x, y)
torch.where(x > 0, x, 0.0) | torch.where(x > 0, 1.0, -1.0) | torch.where(b, k, 0) | torch.where(c, s, z)
torch.where(c.unsqueeze(1), x, y) | torch.where(b, x, d) | torch.where(b, k, 0.5) | torch.where(b, k, x)
torch.where(s > 0, 1, 0) | torch.where(c[:, None, None], f, -f) | torch.where(s < 0, torch.zeros_like(s), s)
torch.where(b, torch.tensor(2.0), x) | x.where(b, y) | x.masked_fill(b, -1.0) | x.masked_fill(c.unsqueeze(1), 2)
k.masked_fill(b, 7) | x.masked_fill(~b, float('-inf')) | x.masked_fill(b, ZERO_D) | torch.clamp(x, -0.5, 0.5)
torch.clamp(x, min=0) | x.clamp(max=0.3) | torch.clip(x, -1, 1) | torch.clamp(k, -2, 2) | torch.clamp(x, y, y + 1)
torch.clamp(x, min=y) | torch.clamp(x, max=s.unsqueeze(1)) | x.clamp_min(0.1) | x.clamp_max(y)
torch.clamp(x, 1.0, -1.0) | torch.clamp(k, min=0.5) | torch.clamp(x, min=-y.abs(), max=y.abs())
torch.maximum(x, y) | torch.minimum(x, s[:, None]) | torch.max(x, y) | torch.min(k, j) | torch.maximum(b, x > 0)
torch.maximum(x, torch.zeros_like(x)) | torch.max(s, torch.tensor(0.0)) | torch.minimum(d, x.double())
max(0.3, 0.1) * x
"""
REDUCTIONS = """
x.sum(dim=-1) | x.sum(dim=1, keepdim=True) | torch.sum(f, dim=(1, 2)) | f.sum(dim=1) | f.sum(-1)
f.sum(dim=(-1, -2), keepdim=True) | k.sum(-1) | b.sum(dim=-1) | j.sum(-1) | u.sum(-1)
x.sum(-1, dtype=torch.float64) | x.mean(dim=-1) | f.mean(dim=[1, 2]) | k.float().mean(1)
f.mean(dim=1, keepdim=True) | k.double().mean(-1) | b.float().mean(-1) | x.prod(dim=1) | k.prod(dim=1) | x.amax(-1)
f.amin(dim=(1, 2)) | k.amax(1, keepdim=True) | b.any(dim=1) | b.all(dim=-1) | (x > 0).any(-1)
(f > 0).all(2).any(1) | x.any(-1) | k.all(dim=1) | u.any(1) | torch.any(f > 1, dim=-1, keepdim=True)
x.count_nonzero(dim=1) | b.count_nonzero(1) | x.max(dim=1) | x.max(dim=-1).values | x.min(dim=1)[0]
x.min(1).indices | f.max(dim=1, keepdim=True) | k.max(dim=1) | torch.max(f, -1)[1] | x.argmax(dim=1) | k.argmin(-1)
f.argmax(dim=1, keepdim=True) | b.max(dim=1) | b.int().argmax(1) | torch.zeros_like(x).argmax(-1) | x.aminmax(dim=1)
x.nansum(dim=1) | x.nanmean(dim=-1) | torch.norm(x, dim=-1) | x.norm(dim=1, keepdim=True) | x.norm(p=1, dim=-1)
x.norm(p=float('inf'), dim=-1) | torch.norm(x, p=3, dim=1) | torch.norm(f, dim=-1) | torch.norm(f, dim=(1, 2))
torch.linalg.norm(x, dim=-1) | torch.linalg.norm(v, ord=1, dim=-1) | torch.linalg.vector_norm(f, dim=(1, 2))
x.norm(2, -1) | x.norm(p='fro', dim=1) | torch.linalg.norm(x, ord=-float('inf'), dim=1)
torch.linalg.norm(x, ord=0.5, dim=1) | torch.linalg.norm(x, ord=0, dim=1) | torch.norm(d, dim=1)
torch.linalg.norm(m, dim=(1, 2)) | x.var(dim=1) | x.std(dim=-1) | x.var(1, unbiased=False)
torch.std(f, dim=(1, 2), keepdim=True) | x.std(dim=1, correction=2) | torch.var_mean(x, dim=1)
torch.std_mean(f, dim=-1) | torch.logsumexp(x, dim=1) | torch.logsumexp(f, dim=(1, 2), keepdim=True)
torch.softmax(x, dim=-1) | F.softmax(f, dim=1) | F.log_softmax(x, dim=-1) | x.softmax(1) | F.softmin(x, dim=1)
x.cumsum(dim=1) | f.cumsum(-1) | f.cumsum(1) | x.cumprod(dim=-1) | k.cumsum(1) | b.cumsum(1) | x.cummax(dim=1)
x.cummin(1).values | torch.diff(x, dim=1) | torch.diff(x) | torch.cross(v, w, dim=-1) | torch.cross(v, w, dim=1)
torch.linalg.cross(v, w) | torch.linalg.cross(f, v[:, None].expand(-1, 4, -1))
torch.cross(m, m.transpose(1, 2), dim=1) | (v * w).sum(-1) | torch.einsum('ni,ni->n', v, w)
torch.einsum('nij,nj->ni', m, v) | torch.einsum('nij,njk->nik', m, m) | torch.einsum('ni,nj->nij', v, w)
torch.einsum('ij,nj->ni', W, x) | torch.einsum('nij,kj->nik', f, W[:, :3]) | torch.einsum('nij->n', f)
torch.einsum('nii->ni', m) | torch.bmm(m, v.unsqueeze(-1)).squeeze(-1)
torch.bmm(v.unsqueeze(1), w.unsqueeze(2)).squeeze() | x @ W.T | (W @ x.T).sum(0) | x @ W[0]
(W @ x.unsqueeze(-1)).squeeze(-1) | m @ v.unsqueeze(-1) | torch.matmul(m, m) | f @ m | torch.matmul(f, W[:, :3].T)
f.matmul(torch.eye(3)) | x.mm(W.t()) | F.linear(x, W) | F.linear(x, W, torch.tensor([0.1, -0.2, 0.3]))
F.linear(f, W[:, :3]) | torch.addmm(torch.ones(3), x, W.T) | torch.baddbmm(m, m, m)
torch.baddbmm(m, m, m, beta=0.5, alpha=2.0) | torch.addmm(torch.ones(3), x, W.T, beta=0.5, alpha=-2.0)
torch.addmv(torch.ones(1), x[:, :3], W[:, 0]) | torch.mv(x, W[0]) | torch.tensordot(x, W, dims=([1], [1]))
torch.inner(x, W) | torch.linalg.vecdot(v, w) | torch.outer(s, W[0]) | F.normalize(x, dim=-1)
F.normalize(f, p=2.0, dim=-1) | F.normalize(x, p=1, dim=1) | F.cosine_similarity(v, w, dim=-1)
F.cosine_similarity(x, y) | F.pairwise_distance(x, y) | F.mse_loss(x, y, reduction='none')
F.l1_loss(x, y, reduction='none').sum(-1) | F.smooth_l1_loss(x, y, reduction='none')
F.smooth_l1_loss(x, y, reduction='none', beta=0.5) | F.huber_loss(x, y, reduction='none', delta=0.4)
F.layer_norm(x, (4,)) | F.layer_norm(f, (4, 3)) | x.sort(dim=1) | x.sort(dim=-1, descending=True).values
torch.sort(f, dim=1)[0] | x.argsort(dim=1) | torch.topk(x, 2, dim=1) | x.topk(2, largest=False).values
x.median(dim=1) | x.median(-1).values | x.kthvalue(2, dim=1) | k.sort(dim=1, stable=True) | torch.cdist(f, f)
torch.trapz(x, dim=1) | torch.trace(W[:, :3]) * s | torch.diagonal(m, dim1=1, dim2=2).sum(-1)
torch.dist(W[0], W[1]) * s | torch.linalg.matrix_power(m, 3) | torch.linalg.matrix_norm(m)
torch.linalg.matrix_norm(m, ord=1) | torch.linalg.matrix_norm(m, ord=float('inf')) | torch.diag_embed(v)
torch.diag_embed(v[:, :2], offset=-1) | torch.diag_embed(f, dim1=1, dim2=2) | m @ torch.diag_embed(v) @ m.mT
torch.diag_embed(b) | torch.diag(W[0]) @ x.unsqueeze(-1) | torch.linalg.multi_dot([W, W.mT, W]) * s.view(-1, 1, 1)
"""
MATRICES = """
torch.linalg.solve(W[:, :3], v.T).T | torch.linalg.solve(W[:, :3], v, left=False)
torch.cholesky_solve(v.T, W[:, :3]).T | torch.linalg.solve_triangular(W[:, :3], v.T, upper=False).T
torch.inverse(m + 4 * torch.eye(3)) | torch.linalg.inv(m + 4 * torch.eye(3)) | torch.linalg.inv_ex(m + 4 * torch.eye(3))
torch.linalg.solve(m + 4 * torch.eye(3), v) | torch.linalg.solve(m + 4 * torch.eye(3), f.mT)
torch.linalg.solve(m + 4 * torch.eye(3), f, left=False) | torch.linalg.solve(m + 4 * torch.eye(3), W[:, :3])
torch.linalg.solve(4 * torch.eye(3) + W[:, :3], v.unsqueeze(-1)) | torch.linalg.solve(4 * torch.eye(3) + W[:, :3], f.mT)
torch.linalg.det(m) | torch.det(m) | torch.linalg.slogdet(m) | torch.logdet(m @ m.mT + torch.eye(3))
torch.linalg.cholesky(m @ m.mT + torch.eye(3)) | torch.linalg.cholesky(m @ m.mT + torch.eye(3), upper=True)
torch.linalg.cholesky_ex(m @ m.mT + torch.eye(3))
torch.cholesky_solve(f.mT, torch.tril(m) + 4 * torch.eye(3)) | torch.cholesky_inverse(torch.tril(m) + 4 * torch.eye(3))
torch.cholesky_solve(f.mT, torch.triu(m) + 4 * torch.eye(3), upper=True)
torch.cholesky_inverse(torch.triu(m) + 4 * torch.eye(3), upper=True)
torch.linalg.solve_triangular(m + 4 * torch.eye(3), f.mT, upper=True)
torch.linalg.solve_triangular(m + 4 * torch.eye(3), f.mT, upper=False)
torch.linalg.solve_triangular(m + 4 * torch.eye(3), f, upper=True, left=False)
torch.linalg.solve_triangular(0.1 * m, f.mT, upper=False, unitriangular=True)
torch.linalg.matrix_power(m + 4 * torch.eye(3), -2) | torch.linalg.inv((m + 4 * torch.eye(3)).double())
"""
STRUCTURE = """
x[:, 0] | x[:, -1] | x[:, 1:3] | x[:, ::2] | x[:, 1:] - x[:, :-1] | x[..., 2] | f[..., 0] | f[:, 1] | f[:, 1:3, 2]
f[:, :, 2] | x[:, None] | x[:, None, :, None] | f[:, [0, 2]] | x[:, [3, 1]] | x[:, IDX] | f[:, IDX, 2]
f[:, IDX, :] | f[:, IDX, IDX] | f[:, [0, 1], [1, 2]] | f[:, IDX][:, 0] | x[:, MASK] | f[:, MASK, 1] | x[:] * 2
x[0:] | x[:, torch.tensor([0, 0, -1])] | f[:, IDX[:, None], IDX] | x[:, WHOLE_0D] | f[:, WHOLE_0D, 0]
x[:, 1].unsqueeze(-1) | s.unsqueeze(0).squeeze(0) | s.view(-1, 1) | s.reshape(-1, 1) | f.view(-1, 12)
f.reshape(f.shape[0], -1) | f.flatten(1) | f.flatten(start_dim=1) | f.view(f.shape[0], 3, 4)
f.reshape(-1, 3).view(-1, 4, 3) | f.reshape(-1, 3).norm(dim=-1).view(-1, 4) | x.unflatten(1, (2, 2))
x.view(-1, 2, 2).transpose(1, 2).reshape(-1, 4) | s.squeeze() | x.unsqueeze(1).squeeze(1) | x.squeeze(-1)
f[:, :, :1].squeeze(-1) | x.T.sum(0) | x.t()[1] | f.permute(0, 2, 1) | f.permute(2, 0, 1).sum(0) | f.transpose(1, 2)
f.transpose(0, 1)[2] | f.mT | f.movedim(-1, 1) | f.swapaxes(1, 2) | m.transpose(-1, -2) | x.expand(3, -1, -1).sum(0)
s.unsqueeze(-1).expand(-1, 3) | s[:, None].expand_as(v) | v.unsqueeze(1).expand(-1, 4, 3)
v.unsqueeze(1).repeat(1, 4, 1) | x.repeat(1, 2) | torch.tile(x, (1, 2)) | s.unsqueeze(1).repeat_interleave(3, dim=1)
x.repeat_interleave(2, dim=-1) | W[0].repeat(x.shape[0], 1) | W[0].expand(x.shape[0], -1) | W[0].expand_as(x) * x
torch.tensor([0.0, 0.0, 1.0]).repeat(x.shape[0], 1) | torch.tensor([1.0, 2.0]).unsqueeze(0).expand(x.shape[0], 2)
torch.broadcast_to(W[0], x.shape) | quat_apply(q.repeat_interleave(4, dim=0), f.reshape(-1, 3)).view(-1, 4, 3)
quat_rotate(q.unsqueeze(1).repeat(1, 4, 1).view(-1, 4), f.view(-1, 3)).reshape(-1, 12)
(f.reshape(-1, 3) @ W[:, :3]).view(-1, 4, 3) | torch.cat((x, y), dim=-1)
torch.cat([x, s.unsqueeze(-1), f.flatten(1)], dim=1) | torch.cat((k, x), dim=1)
torch.cat((x, torch.zeros(x.shape[0], 2)), 1) | torch.cat([f, f], dim=1) | torch.cat([x]) | torch.concat((x, y), -1)
torch.cat((x, d), dim=1) | torch.cat((b, k), dim=1) | torch.stack((s, z), dim=-1) | torch.stack([s, z], dim=1)
torch.stack((x, y), dim=1) | torch.stack((x, y)).sum(0) | torch.stack([s, z], 0).mean(dim=0)
torch.stack([s, z, s * z]).T | torch.hstack((x, y)) | torch.column_stack((s, z))
torch.dstack((s[:, None], z[:, None])) | torch.vstack((s, z)).t()
torch.stack([x[:, i] * i for i in range(4)], dim=-1) | torch.stack((s, ZERO_D.expand_as(s)), -1) | x.split(2, dim=1)
torch.split(x, [1, 3], dim=-1) | x.chunk(2, dim=-1) | torch.chunk(f, 2, dim=1)[1] | x.unbind(-1)
torch.unbind(f, dim=1)[2] | x.tensor_split(2, dim=1) | x.narrow(1, 1, 2) | x.select(1, 2) | x.hsplit(2) | x.flip(1)
x.flip(-1) | f.flip(dims=(1, 2)) | x.fliplr() | x.roll(1, dims=1) | f.roll((1, -1), (1, 2)) | x.roll(-1, -1)
torch.tril(m) | torch.triu(m, 1) | x.unfold(1, 2, 1) | x.index_select(1, IDX) | torch.index_select(f, 2, IDX)
torch.gather(x, 1, torch.tensor([[0, 2]]).expand(x.shape[0], 2)) | x.gather(1, k.abs() % 4)
torch.gather(f, 1, f.argmax(1, keepdim=True)) | torch.take_along_dim(x, x.argmax(dim=1, keepdim=True), dim=1)
x.gather(1, (i % 4).unsqueeze(1)).squeeze(1) | x[torch.arange(x.shape[0]), i % 4]
f[torch.arange(x.shape[0]), x.argmax(dim=-1)] | f[torch.arange(x.shape[0]), i % 4, k[:, 0] % 3]
f[torch.arange(x.shape[0]), :, 1] | F.pad(x, (1, 2)) | F.pad(x, (0, 1), value=7.0) | F.pad(f, (1, 0, 0, 2))
F.one_hot(torch.tensor([0, 2]), 4) * s.view(-1, 1, 1) | F.one_hot(torch.arange(3)) * s.view(-1, 1, 1) | x.clone()
x.detach() | x.contiguous() | x.float() | x.double() | k.float() | k.int() | x.long() | x.int() | x.bool()
b.float() | b.long() | x.to(torch.float64) | k.to(x.dtype) | x.to('cpu') | x.type(torch.int64) | k.to(x)
x.type_as(d) | u.float() | d.float() | k.byte() | torch.zeros_like(x[:, 0]) | torch.ones_like(x) * s[:, None]
torch.zeros(x.shape[0], 3) | torch.ones(x.shape[0]) | torch.full((x.shape[0], 2), 0.3) | torch.full_like(x, 2)
torch.full((x.shape[0],), True) | x.new_zeros(x.shape[0], 2) | x.new_ones(3) * v | x.new_tensor([1.0, 2.0, 3.0]) * v
x.new_full((x.shape[0],), 4.0) | torch.empty(x.shape[0], 2).fill_(3.0) | torch.empty_like(x).zero_()
torch.tensor([0.1, 0.2, 0.3]) * v | torch.tensor([[1, 2, 3]]) + v | torch.tensor(0.3) * x
torch.as_tensor([1.0, 2.0, 3.0]) - w | torch.from_numpy(np.array([1.0, 2.0, 3.0])) * v
to_torch([0.0, 0.0, 1.0]).repeat((x.shape[0], 1)) | to_torch(get_axis_params(-1.0, 2)).expand(x.shape[0], 3)
torch.arange(4) * x | torch.arange(x.shape[0]) | torch.arange(x.shape[0], dtype=torch.float) * 0.5 + s
torch.arange(2, x.shape[0] + 2) | torch.arange(x.shape[0]).unsqueeze(1) % 2 == torch.arange(2)
torch.arange(x.shape[0] * 4).view(-1, 4) | torch.linspace(0, 1, 4) * x | torch.eye(3) @ v.unsqueeze(-1)
torch.eye(3).repeat(x.shape[0], 1, 1) @ v[:, :, None] | torch.logspace(0, 1, 4) * x
torch.tensor([1.0, 2.0, 2.0]).norm() * s | torch.tensor([3.0, 1.0]).sort().values.sum() * s
torch.tensor([1.0, 2.0]).sum().item() * x | WHOLE_0D.item() * x | float(ZERO_D) + s | x[:, int(WHOLE_0D)]
torch.meshgrid(torch.arange(2), torch.arange(2), indexing='ij')[0] * s.view(-1, 1, 1)
torch.linalg.inv(torch.tensor([[2.0, 0.0], [0.0, 4.0]])) @ x[:, :2].unsqueeze(-1)
torch.tensor([0.1, -0.2, 0.3]).abs().max() * s | torch.isin(k, torch.tensor([1, 2]))
torch.bucketize(x, torch.tensor([-0.5, 0.0, 0.5])) | torch.bucketize(k, torch.tensor([-2, 3]), right=True)
torch.isin(k, torch.tensor([1, 2]), invert=True) | sum([x[:, 0], x[:, 1], s]) | sum({'a': s, 'b': z}.values())
{'a': s, 'b': x} | [s, [z, k]] | torch.zeros(x.shape) + x | x.new_zeros(x.size()) | torch.empty_like(x).copy_(y)
torch.zeros(x.size(0), dtype=torch.long) + i | len(x.shape) * x | x.ndim + x | math.pi * x
"""
QUATERNIONS = """
quat_mul(q, r) | quat_conjugate(q) | quat_unit(x) | quat_apply(q, v) | quat_rotate(q, v) | my_quat_rotate(q, v)
quat_rotate_inverse(q, v) | quat_axis(q, 0) | quat_axis(q, 2) | get_basis_vector(q, v) | quat_diff_rad(q, r)
slerp(q, r, unit[:, :1].abs()) | quat_from_angle_axis(s, v) | quat_to_angle_axis(q) | angle_axis_to_exp_map(s, v)
exp_map_to_angle_axis(v) | quat_to_exp_map(q) | exp_map_to_quat(v) | get_euler_xyz(q) | quat_from_euler_xyz(s, z, s)
euler_xyz_to_exp_map(s, z, s + z) | quat_to_tan_norm(q) | quaternion_to_matrix(q)
matrix_to_quaternion(quaternion_to_matrix(q)) | calc_heading(q) | calc_heading_quat(q) | calc_heading_quat_inv(q)
compute_heading_and_up(q, r, v, w, v, 2) | compute_rot(q, v, w, f[:, 0], f[:, 1]) | tf_apply(q, v, w)
tf_vector(q, v) | tf_inverse(q, v) | tf_combine(q, v, r, w) | local_to_world_space(v, torch.cat((w, q), -1))
normalise_quat_in_pose(torch.cat((w, x), -1)) | normalize(x) | normalize_angle(5 * x) | copysign(2.0, x)
tensor_clamp(x, -pos, pos) | saturate(x, -pos, pos) | scale(x, -pos, pos) | unscale(x, -pos, pos)
scale_transform(x, -pos, pos) | unscale_transform(x, -pos, pos) | unscale_np(x, -pos, pos) | to_torch(x)
quat_apply(q.unsqueeze(1).expand(-1, 4, -1), f) | quat_axis(q.unsqueeze(1).repeat(1, 4, 1), 1)
"""
BODIES = [
    "o = torch.zeros_like(x); o[:, 0] = s; o[:, 1:3] = v[:, :2]; return o",
    "o = x.clone(); o[:, 0] += 1.0; o[:, -1] *= s; return o, o.sum(-1)",
    "o = x.clone(); o[o > 0.5] = -1.0; return o",
    "o = x.clone(); o[c] = 0; return o",
    "o = x.clone(); o[c, 1] = 3.0; return o",
    "o = q.clone(); o[c] = torch.tensor([0.0, 0.0, 0.0, 1.0]); return o",
    "o = f.clone(); o[c] = torch.zeros(3); return o",
    "o = f.clone(); o[c] = W[0, :3]; return o",
    "o = x.clone(); o[:, IDX] = v[:, :2]; return o",
    "o = x.clone(); o[:, [1, 3]] = 0.5; return o",
    "o = x.clone(); o[..., 2] = -z; return o",
    "o = x.clone(); o[:] = y; return o",
    "o = x.clone(); o[:, :2], o[:, 2:] = y[:, 2:], x[:, :2]; return o",
    "o = torch.empty(x.shape[0], 2); o[:, 0] = s; o[:, 1] = z; return o",
    "o = torch.zeros(x.shape[0], 4, 3); o[:, 1] = v; o[:, 2, 0] = s; return o",
    "o = torch.empty_like(x); torch.add(x, y, out=o); return o",
    "o = torch.empty_like(x); torch.clamp(x, -0.1, 0.1, out=o); return o",
    "o = torch.zeros_like(s); p = o.view(-1, 1); p += s.unsqueeze(1); return o",
    "o = f.clone(); first = o[:, 0]; first.mul_(2.0).add_(v); return o, first",
    "o = f.clone(); flat = o.view(-1, 12); flat[:, 5] = s; return o[:, 1, 2]",
    "o = f.clone(); t = o.transpose(1, 2); t[:, 0, :] = x; return o",
    "o = x.clone(); left, right = o.chunk(2, dim=1); left.copy_(right); return o",
    "o = x.clone(); a, b2, c2, e = o.unbind(1); a.add_(b2); e.zero_(); return o",
    "o = x.clone(); o.neg_(); return o",
    "o = m.clone(); o.diagonal(dim1=1, dim2=2).add_(1.0); return o",
    "o = x.clone(); o.clamp_(-0.5, 0.5).mul_(3).sub_(1).div_(2).abs_().sqrt_(); return o",
    "o = x.clone(); o.masked_fill_(b, 9.0); return o",
    "o = x.clone(); o.exp_(); o.tanh_(); o.pow_(2); o.sigmoid_(); o.relu_(); return o",
    "o = k.clone(); o += 1; o *= 2; o //= 3; o %= 4; o -= j; return o",
    "o = k.clone(); o += 0; o[b] = 5; o.clamp_(min=0); return o",
    "o = b.clone(); o &= (x > 0); o |= (y > 1); o ^= (x > y); return o, ~o",
    "o = b.clone(); o[:, 0] = True; o[:, 1] = c; o.logical_not_(); return o",
    "o = x.clone(); o.unsqueeze_(1); o.squeeze_(1); return o + 1",
    "o = m.clone(); o.transpose_(1, 2); o[:, 0] = v; return o",
    "o = torch.tensor([1.0, 2.0, 3.0]); o[1] = 5.0; o *= 2.0; return o * v",
    "o = torch.zeros(3); o[0] += 2.0; return o + v",
    "o = torch.tensor([1.0, 2.0, 3.0]); w = o.tolist(); o[1] = 5.0; return v * o + w[1] * s.unsqueeze(1)",
    "o = x.clone(); o[:, 1:] += o[:, :-1].clone(); return o",
    "total = torch.zeros_like(s)\nfor n in range(x.shape[1]):\n    total = total + x[:, n] * 0.1 * n\nreturn total",
    "total = 0\nfor part, scale in zip(x.unbind(-1), (0.1, 0.2, 0.3, 0.4)):\n    total += scale * part\nreturn total",
    "parts = [x[:, n] ** 2 for n in range(4) if n != 2]; return torch.stack(parts, dim=-1).sum(-1)",
    """
terms = dict(a=s, b=z)
terms.update(c=terms['a'] * 2)
return torch.stack(list(terms.values())).sum(dim=0), terms
    """,
    "def half(a, by=2.0):\n    return a / by\nreturn half(x), half(s, 3.0)",
    "mask = (x > 0).float(); return mask * x + (1 - mask) * y",
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
    "o = x.view(-1, 2, 2).clone(); o[:, :, 0] = o[:, :, 1]; return o.view(-1, 4)",
    "o = x.expand(2, -1, -1).clone(); o[0] = y; return o.sum(0)",
    "o = torch.zeros(x.shape[0] * 4, 3); o[:] = f.view(-1, 3); o += 1.0; return o.view(-1, 4, 3)",
    "vals, idx = x.max(dim=1); return vals * (idx == 2), idx + 1",
    """
@torch.jit.script
def g(a: Tensor, scale: float) -> Tensor:
    return torch.exp(-a.square().sum(-1) / scale)
return g(x, 0.25), g(x, 2.0)
    """,
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
    "o = torch.linalg.norm(f[:, IDX, :2], dim=-1) > 5 * f[:, IDX, 2].abs(); return o.any(dim=1)",
    "import math\nreturn math.sqrt(2.0) * x + math.sin(float(ZERO_D))",
    """
return torch.exp(-torch.sum(torch.square(x[:, :2] - v[:, :2]), dim=1) / 0.25) * 0.5 - 1e-5 * torch.sum(x ** 2, dim=1)
    """,
    """
@torch.jit.script
def g(a: Tensor, m: Tensor, n: Tensor):
    return (a > 0) & m, (a > 0) | m, (a > 0) ^ m, n >> 1, n << 1, torch.max(a, dim=1)[1], a[:, 0].unsqueeze(-1)
return g(x, b, k)
    """,
    "return x.new_empty(x.shape[0], 2).fill_(1.0)",
    "return x[torch.arange(x.shape[0]), i % 4 - 4], f[torch.arange(x.shape[0]), -1, -1 - i % 3]",
    "return W[i % 3], W[i % 3 - 3, k[:, 0] % 4], W[:, i % 4].sum(0), W[k % 3], W[(k % 3).unsqueeze(1), IDX.view(2, 1)]",
    "return IDX[i % 2], MASK[k % 4], W.view(3, 2, 2)[i % 3, :, i % 2], W[i.int() % 3, 1:3], W[i % 3, IDX[0]]",
    "return W.index_select(0, i % 3), W.index_select(1, i % 4).T, torch.arange(3.0)[x.argmax(1) % 3], W.exp()[i % 3]",
    "return x[:, torch.tensor([0, 1, 2, 1], dtype=torch.uint8)]",
    "o = x.clone(); o[torch.arange(x.shape[0])] = y; return o",
    "o = x.clone(); o[torch.arange(x.shape[0]), i % 4 - 4] = 7.0; o[torch.arange(x.shape[0]), 1] += s; return o",
    "o = f.clone(); n = torch.arange(x.shape[0]); o[n, i % 4, k[:, 0] % 3] = s; o[n, :, 1] = x; return o",
    "o = f.clone(); o[torch.arange(x.shape[0]), i % 4] = v; return o, torch.zeros_like(x, dtype=torch.int64)",
    "o = x.clone(); o[torch.arange(x.shape[0]).unsqueeze(1), IDX] = torch.stack([s, z], 1); return o",
    "o = torch.zeros_like(f); o[torch.arange(x.shape[0]).unsqueeze(1), k % 4] = 1.0; return o",
    "o = torch.zeros_like(k); p = o[:, 1:]; p[torch.arange(x.shape[0]), i % 3] = k[:, 0]; return o",
    "o = x.clone(); p = o.view(-1); p[::2] = 1.0; p[1::4] = s; p[3::4] += z; return o",
    "p = f.reshape(-1); return p[2::3].view(-1, 4), p[::12], p[::1].view(-1, 12), p.view(-1, 2)[1::6]",
    "o = torch.zeros(x.shape[0] * 2); o[::2], o[1::2] = s, z; return o.view(-1, 2), o[::2] - o[1::2]",
    "o = x.clone(); p = o.view(-1, 2); p[::2] = p[1::2]; return o",
    "o = x.clone(); p = o.T.contiguous(); p[:, : p.shape[1]] = 2.0; return p.T",
    "o = x.clone(); p = o.unsqueeze(0).expand(3, -1, -1); o += 1; return p.sum(0)",
    "o = x.clone(); p, r2 = o.split(2, dim=1); o *= 2; p += 1; return o, p, r2",
    "o = f.clone(); p = o.permute(0, 2, 1).flatten(1); p[:, 0] = 7; return o, p",
    "o = f.clone(); p = o.flatten(1); p[:, 0] = 7; return o",
    "o = x.clone(); p = o.reshape(-1, 2); p[:] = p.flip(1); return o",
    "o = x.clone(); p, r2 = o.to(torch.float32), o.double(); p += 1; return o, r2",
    "o = torch.stack([s, z], 1); o[:, 0], o[:, 1] = o[:, 1], o[:, 0]; return o",
    "o = x[:, :3].clone(); o.t_(); o[0] = s; return o.T",
    "o = x.clone(); p = o.unfold(1, 2, 1); p[:, 0] = 3.0; return o, p",
    "o = x.clone(); p = o.detach(); p += 1; return o",
    "o = x.clone(); o[:, 1:][:, ::2][:, 0] = s; return o",
    "o = x.clone(); o.data[:, 1] = s; o[..., None][:, 0, 0] = z; return o",
    "o = b.clone(); o[:, :2][c] = True; return o",
    "o = x.T.contiguous(); o[0] = s; return o.T, o.sum(0)",
    "o = torch.zeros(x.shape[0], 4); a = o[:, :2]; e = o[:, 1:3]; a += y[:, :2]; e *= 3; a.copy_(e.clone()); return o",
    "return b | (x > 0), k | 4, j.__or__(k)",
    "return (s.abs() > 0.2) & (z < 0.5) | c, (s > 0).float() * (~c).float()",
    "return torch.where(torch.isnan(x / x), torch.zeros_like(x), x)",
]


def _parts(*texts: str) -> list[str]:
    return [part.strip() for text in texts for line in text.strip().splitlines() for part in line.split(" | ")]


def _table() -> list[str]:
    bodies = [body.strip() if "\n" in body else body.replace("; ", "\n") for body in BODIES]
    return _parts(ARITHMETIC, FUNCTIONS, COMPARISONS, REDUCTIONS, STRUCTURE, QUATERNIONS) + bodies


SOLVERS = _parts(MATRICES)  # of which torch leaves to LAPACK what becomes of NaN, and raises where it has no result
TABLE = _table() + SOLVERS
