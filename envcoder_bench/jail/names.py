"""What untrusted files may name: everything else is refused before a line of them runs.

Lists of what is allowed, never of what is forbidden: a name that somebody forgot is refused. They let through what
computes with tensors and numbers; nothing here opens, loads, registers, compiles or sets anything.
"""

from __future__ import annotations

import math
from typing import Dict, FrozenSet


def _words(text: str) -> FrozenSet[str]:
    return frozenset(text.split())


HELPERS = ("envcoder_bench.torch_utils", "isaacgym.torch_utils", "isaacgymenvs.utils.torch_jit_utils")

# both torch.X(...) and x.X(...)
_BOTH = _words("""
abs absolute acos acosh add addcdiv addcmul addmm addmv all allclose amax amin aminmax angle any arccos arccosh arcsin
arcsinh arctan arctan2 arctanh argmax argmin argsort asin asinh atan atan2 atanh baddbmm bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm broadcast_to bucketize ceil chunk clamp
clamp_max clamp_min clip clone concat concatenate copysign cos cosh count_nonzero cov cross cummax cummin cumprod
cumsum deg2rad det detach diag diag_embed diagonal diff digamma dist div divide dot dsplit eq equal erf erfc exp exp2
expm1 fix flatten flip fliplr flipud float_power floor floor_divide fmax fmin fmod frac gather ge ger greater
greater_equal gt hardshrink heaviside histc hsplit hypot index_add index_copy index_fill index_put index_select inner
inverse is_floating_point is_complex is_nonzero isclose isfinite isin isinf isnan isneginf isposinf isreal kron
kthvalue le lerp less less_equal lgamma log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logdet
logical_and logical_not logical_or logical_xor logit logsumexp lt masked_fill masked_scatter masked_select matmul max
maximum mean median min minimum mm mode moveaxis movedim msort mul multiply mv mvlgamma nan_to_num nanmean nanmedian
nanquantile nansum narrow ne neg negative nextafter nonzero norm not_equal numel outer permute positive pow prelu prod
quantile rad2deg ravel reciprocal relu remainder repeat_interleave renorm reshape rot90 roll round rsqrt rsub scatter
scatter_add select select_scatter sgn sigmoid sign signbit sin sinc sinh slogdet softmax sort split sqrt square
squeeze std sub subtract sum swapaxes swapdims t take take_along_dim tan tanh tensor_split tile topk trace transpose
tril triu true_divide trunc unbind unflatten unique unique_consecutive unsqueeze vander var vdot view_as_real vsplit
where xlogy bernoulli multinomial cholesky cholesky_inverse cholesky_solve cdist std_mean var_mean
""")
_TORCH_ALONE = _words("""
Tensor FloatTensor BoolTensor LongTensor IntTensor Size dtype device bool double float float16 float32 float64
bfloat16 half int int8 int16 int32 int64 long short uint8 finfo iinfo pi inf nan e newaxis arange as_tensor atleast_1d
atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod cat chain_matmul column_stack combinations
cumulative_trapezoid dstack einsum empty empty_like eye full full_like hstack is_tensor linspace logspace meshgrid
numel ones ones_like polar result_type row_stack scalar_tensor searchsorted stack tensor tensordot trapezoid trapz
tril_indices triu_indices vstack zeros zeros_like no_grad inference_mode is_grad_enabled can_cast promote_types addr
bincount celu cosine_similarity complex layer_norm pairwise_distance pdist selu threshold
rand rand_like randn randn_like randint randint_like normal
""")
_METHODS_ALONE = _words("""
unfold T mT H mH dtype device shape ndim is_cuda requires_grad layout values indices item tolist numpy cpu cuda to
type type_as float double half bfloat16 int long short bool byte char size dim contiguous is_contiguous expand
expand_as view view_as reshape_as repeat masked_fill new_zeros new_ones new_full new_empty new_tensor nelement
element_size clone stride requires_grad_ ndimension detach_ copy eps tiny resolution smallest_normal get_device
is_pinned nbytes sum_to_size scatter_reduce index_reduce add_ sub_ mul_ div_ pow_ abs_ neg_ exp_ log_ sqrt_ clamp_
clamp_min_ clamp_max_ clip_ fill_ zero_ copy_ masked_fill_ index_fill_ index_copy_ index_add_ index_put_ scatter_
scatter_add_ squeeze_ unsqueeze_ transpose_ t_ round_ floor_ ceil_ sigmoid_ tanh_ relu_ sin_ cos_ tan_ atan2_ fmod_
remainder_ reciprocal_ rsqrt_ square_ nan_to_num_ lerp_ addcmul_ addcdiv_ eq_ ne_ lt_ le_ gt_ ge_ logical_and_
logical_or_ logical_not_ logical_xor_ trunc_ sign_ tril_ triu_ cumsum_ cumprod_
uniform_ normal_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_ random_
""")
# of dicts, lists, strings, sets and numbers
_CONTAINERS = _words("""
keys items get setdefault update pop append extend insert index count reverse sort remove clear add discard union
intersection difference issubset issuperset join startswith endswith lower upper strip lstrip rstrip replace split
find title zfill isdigit real imag is_integer bit_length conjugate start stop step
""")
METHODS = _BOTH | _METHODS_ALONE | _CONTAINERS

_FUNCTIONAL = _words("""
normalize cosine_similarity pairwise_distance relu relu6 elu selu celu gelu silu mish leaky_relu prelu sigmoid tanh
hardtanh hardsigmoid hardswish hardshrink softshrink tanhshrink softsign softplus logsigmoid threshold softmax softmin
log_softmax layer_norm one_hot pad linear mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
binary_cross_entropy_with_logits cosine_embedding_loss pdist glu dropout gumbel_softmax
""")
_LINALG = _words("""
norm vector_norm matrix_norm cross inv inv_ex solve solve_ex det slogdet cholesky cholesky_ex matmul multi_dot vecdot
solve_triangular diagonal pinv lstsq eigh eigvalsh svd qr matrix_power matrix_exp matrix_rank tensorsolve
""")
_SPECIAL = _words("""
expit logit erf erfc erfinv exp2 expm1 log1p sinc xlogy xlog1py entr round log_softmax softmax logsumexp gammaln
digamma i0 i0e i1 i1e ndtr psi
""")
_NUMPY = _words("""
pi e inf nan newaxis float32 float64 int32 int64 bool_ ndarray sqrt exp log log2 log10 log1p expm1 sin cos tan arcsin
arccos arctan arctan2 sinh cosh tanh abs absolute fabs sign square power clip floor ceil round rint trunc deg2rad
rad2deg radians degrees hypot minimum maximum min max sum mean prod cumsum array asarray zeros ones full eye arange
linspace concatenate stack dot cross where isfinite isnan isinf allclose isclose mod diff outer
""")
_TYPING = _words("""
Any Callable ClassVar Dict Final FrozenSet Generic Iterable Iterator List Literal Mapping MutableMapping NoReturn
Optional Sequence Set Tuple Type TypeVar Union cast Annotated TYPE_CHECKING
""")

# module: what of it may be named; a module by itself is no value
MODULES: Dict[str, FrozenSet[str]] = {
    "torch": _BOTH | _TORCH_ALONE,
    "torch.Tensor": METHODS,
    "torch.nn": frozenset(),
    "torch.nn.functional": _FUNCTIONAL,
    "torch.linalg": _LINALG,
    "torch.special": _SPECIAL,
    "torch.jit": _words("script ignore unused export annotate"),
    "torch.cuda": _words("is_available"),
    "math": frozenset(name for name in vars(math) if not name.startswith("_")),
    "numpy": _NUMPY,
    "numpy.linalg": _words("norm"),
    "typing": _TYPING,
    "typing_extensions": _TYPING,
    "__future__": _words("annotations"),
}
STARS = ("math", "typing", *HELPERS)  # modules of which "import *" may be said
CONTEXTS = _words("torch.no_grad torch.inference_mode")
DECORATORS = CONTEXTS | _words("torch.jit.script torch.jit.ignore torch.jit.unused torch.jit.export")

BUILTINS = _words("""
abs all any bool complex dict divmod enumerate filter float frozenset int isinstance len list map max min pow print
range repr reversed round set slice sorted str sum tuple zip bytes NotImplemented Ellipsis __name__ Exception
ArithmeticError AssertionError AttributeError FloatingPointError IndexError KeyError LookupError NotImplementedError
OverflowError RuntimeError TypeError ValueError ZeroDivisionError Warning UserWarning iter next hash id bin hex oct
ord chr ascii callable object hasattr
""")

# what people reach for, and what to do instead
HINTS = {
    "getattr": "write x.name",
    "globals": "pass values as parameters",
    "type": "use isinstance",
    "format": 'write f"{x}"',
}
