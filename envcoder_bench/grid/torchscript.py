"""Policies as TorchScript, whose code is examined before it runs.

A file's code may only compute. While torch loads it, only literals are evaluated. When the policy is called, it runs
operators of a list, in loops of a fixed length.
"""

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envcoder_bench.compat.torch_archive import ArchiveError, archive_records, class_name, load_script
from envcoder_bench.core.errors import UserError
from envcoder_bench.shaping.scan import parse

MOST_OPERATORS = 20_000  # most operators in a call
# operators that read or write files, or speak to other processes; as words, because code can rename torch
_DENIED = re.compile(r"\b(from_file|save|load|classes|rpc_\w+)\b")
_CLASSES = re.compile(r"\btorch\s*\.\s*classes\b")  # C++ classes may do anything
# ops.NAMESPACE.NAME; namespaces other than these have operators for files, networks and processes
_OPS = re.compile(r"\bops\b(?!\.(?:prim|aten)\.)")
# getattr with a name that is not a single word: it could be spelled with escapes or in parts
_GETATTR = re.compile(r"\bgetattr\b(?!\([^\"'#\n]*, \"\w+\"\))")
# The operators of policies. Each checks the shapes and indices of its arguments, which as_strided's relatives do not.
# Operators that write to their argument have the same names with _ at the end.
_ATEN_NAMES = """
    abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil
    clamp clamp_max clamp_min clip copy copysign cos cosh deg2rad div divide eq erf erfc exp exp2 expm1 fill floor
    floor_divide floordiv fmod frac ge gt hypot isfinite isinf isnan le lerp log log10 log1p log2 logical_and
    logical_not logical_or logical_xor lt masked_fill maximum minimum mul multiply nan_to_num ne neg negative pow
    rad2deg reciprocal remainder round rsqrt rsub sigmoid sign sin sinh sqrt square sub subtract tan tanh true_divide
    trunc where xlogy zero

    celu elu gelu glu hardsigmoid hardswish hardtanh leaky_relu log_sigmoid log_softmax mish prelu relu relu6 selu silu
    softmax softplus threshold dropout alpha_dropout feature_dropout

    all amax amin any argmax argmin cumsum logsumexp max mean median min norm linalg_norm linalg_vector_norm prod std
    sum var addmm addmv baddbmm bilinear bmm cross linalg_cross dot einsum linear matmul mm mv outer
    scaled_dot_product_attention

    adaptive_avg_pool1d adaptive_avg_pool2d avg_pool1d avg_pool2d max_pool1d max_pool2d batch_norm conv1d conv2d
    convolution _convolution group_norm instance_norm layer_norm gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell
    rnn_tanh rnn_tanh_cell

    alias broadcast_to cat chunk clone concat concatenate contiguous detach dim expand expand_as flatten flip gather
    hstack index index_select movedim narrow numel permute repeat reshape reshape_as roll select size slice split
    split_with_sizes squeeze stack swapaxes t tensor_split tile transpose type_as unbind unflatten unsqueeze view
    view_as vstack

    arange eye full full_like linspace new_full new_ones new_zeros ones ones_like scalar_tensor tensor to zeros
    zeros_like

    Bool Float FloatImplicit Int IntImplicit ScalarImplicit __and__ __contains__ __getitem__ __is__ __isnot__ __not__
    __or__ append cpu cuda device dtype format is_floating_point item len list
"""
_PRIM_NAMES = """
    CallFunction CallMethod Constant DictConstruct GetAttr If ImplicitTensorToNum ListConstruct ListUnpack Loop
    NumToTensor RaiseException SetAttr TupleConstruct TupleIndex TupleSlice TupleUnpack Uninitialized abs data device
    dtype is_cuda isinstance layout max min requires_grad unchecked_cast unchecked_unwrap_optional
"""
_ATEN, _PRIM = frozenset(_ATEN_NAMES.split()), frozenset(_PRIM_NAMES.split())
_LISTS = ("__parameters__", "__buffers__", "__annotations__")


class _Refused(Exception):
    """The code is refused; the message is the reason."""


def load_torchscript(name: str, path: Path) -> Any:
    """Return the module of a TorchScript file, on the CPU; None for other files.

    Raises UserError if its code could do more than compute, or might not end.
    """
    content = path.read_bytes()  # read once, so that the examined content is also the loaded one
    try:
        records = archive_records(content)
    except ArchiveError as error:
        raise UserError(f"policy {name}: {path} is refused: {error}") from error
    if records is None or not any(record.startswith("code/") for record in records):
        return None
    try:
        for record, data in records.items():
            _examine_text(record, data)
        module, forward, graphs = load_script(content)
        _Cost(graphs).of(forward)
        return module
    except _Refused as error:
        raise UserError(
            f"policy {name}: {path} is refused: {error}; export it as ONNX, which only computes, or with"
            " torch.jit.trace"
        ) from error
    except (RuntimeError, ValueError, EOFError):
        return None


def _examine_text(record: str, data: bytes) -> None:
    """Raise _Refused if a part of a file has a denied name, or runs more than literals while it is loaded."""
    if not record.endswith((".py", ".pkl")):
        return
    text = data.decode("latin-1")
    patterns = [_CLASSES] if record.endswith(".pkl") else [_DENIED, _OPS, _GETATTR]
    match = next(filter(None, (pattern.search(text) for pattern in patterns)), None)
    if match is not None:
        line = text.count("\n", 0, match.start()) + 1
        what = text[match.start() : match.start() + 40].split("\n")[0]
        raise _Refused(f"its code could use files or other processes ({record}, line {line}: {what})")
    if record.endswith(".pkl"):
        return
    try:
        tree = parse(text)  # torch's code is also Python
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _Refused(f"its code is not as torch writes it ({record}: {error})") from None
    for node in (node for statement in tree.body for node in _when_loaded(statement)):
        raise _Refused(f"its code runs while it is loaded ({record}, line {node.lineno})")


def _when_loaded(statement: ast.stmt) -> list[ast.stmt]:
    """Return the parts of a statement that torch runs on loading: all except classes, functions and literals."""
    if isinstance(statement, ast.ClassDef):
        return [node for part in statement.body for node in _when_loaded(part)]
    if isinstance(statement, ast.FunctionDef):
        defaults = [*statement.args.defaults, *filter(None, statement.args.kw_defaults)]
        plain = all(map(_is_literal, defaults)) and not statement.decorator_list
        return [] if plain and statement.name != "__setstate__" else [statement]
    if isinstance(statement, ast.AnnAssign):
        return [] if statement.value is None or _is_literal(statement.value) else [statement]
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
        base = target.value if isinstance(target, ast.Subscript) else target
        return [] if isinstance(base, ast.Name) and base.id in _LISTS and not _calls(statement) else [statement]
    return [] if isinstance(statement, ast.Pass) else [statement]


def _is_literal(node: ast.expr) -> bool:
    parts = (ast.Constant, ast.UnaryOp, ast.unaryop, ast.Tuple, ast.List, ast.Load)
    return all(isinstance(part, parts) for part in ast.walk(node))


def _calls(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


class _Cost:
    """The largest number of operators that each function of a file executes."""

    def __init__(self, graphs: Mapping[str, Any]) -> None:
        self._graphs = graphs
        self._by_name: dict[str, list[str]] = {}
        for name in graphs:
            self._by_name.setdefault(name.rpartition(".")[2], []).append(name)
        self._counts: dict[str, int] = {}

    def of(self, name: str) -> int:
        """Return the number of operators of a call. Raises _Refused if it may not end, or has other operators."""
        if name not in self._graphs:
            raise _Refused(f"its code calls {name}, which it does not define")
        if name not in self._counts:
            self._counts[name] = MOST_OPERATORS + 1  # refuses a function that calls itself
            self._counts[name] = self._of_block(self._graphs[name], name)
        if self._counts[name] > MOST_OPERATORS:
            raise _Refused(f"a call executes more than {MOST_OPERATORS:,} operators ({name})")
        return self._counts[name]

    def _of_block(self, block: Any, where: str) -> int:
        return sum(self._of_node(node, where) for node in block.nodes())

    def _of_node(self, node: Any, where: str) -> int:
        namespace, _, operator = node.kind().partition("::")
        base = operator if operator.startswith("__") else operator.removesuffix("_")
        if not (base in _ATEN if namespace == "aten" else namespace == "prim" and operator in _PRIM):
            raise _Refused(f"its operator {node.kind()} is not one of those that policies need ({where})")
        if operator == "CallMethod":
            kind = node.inputsAt(0).type()
            owner = class_name(kind)
            if owner is None:
                raise _Refused(f"its code calls a method of {kind.str()}")
            return 1 + self.of(f"{owner}.{node.s('name')}")
        if operator == "CallFunction":
            short = node.inputsAt(0).node().s("name")
            return 1 + max(map(self.of, self._by_name.get(short, [short])))
        inner = sum(self._of_block(block, where) for block in node.blocks())
        return 1 + inner * (_length(node, where) if operator == "Loop" else 1)


def _length(loop: Any, where: str) -> int:
    """Return how often a loop runs. Raises _Refused if that is not a number in the code."""
    length = loop.inputsAt(0).node()
    goes_on = next(iter(next(iter(loop.blocks())).outputs())).node()
    if any(node.kind() != "prim::Constant" for node in (length, goes_on)) or length.i("value") > MOST_OPERATORS:
        raise _Refused(f"it has a loop whose length is not fixed ({where})")
    return max(0, length.i("value"))
