"""C code of a traced program. Programs that differ only in floating-point constants have the same code."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from envcoder_bench.compile.program import FLOATS, Node, Program, reachable

C_TYPES = {
    "f32": "float", "f64": "double", "i64": "long long", "i32": "int", "u8": "unsigned char", "b": "bool",
}  # fmt: skip
# functions of the C library; the names for float end in f
_INSTRUCTIONS = {"floor", "ceil", "trunc"}  # a single instruction on CUDA
_FUNCTIONS = {
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "exp2", "log", "log2", "log10", "sqrt",
    "erf", "erfc",
}  # fmt: skip
_FUNCTIONS_OF_TWO = {"atan2", "pow", "fmod"}
_CALL = re.compile(r"\bMath::(\w+)")
_OPERATORS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_BITS = {"and": "&", "or": "|", "xor": "^"}


@dataclass(frozen=True)
class CCode:
    """A program as C statements.

    Attributes:
        statements: the code. It reads ``S_<name>`` (pointers to the environment's row of the state), ``c[i]`` (its
            constants), ``lane``, ``n`` (environments of the group), ``seed`` and ``step``, writes ``O_<name>[i]``
            (pointers to the environment's row of the results), and calls functions of ``Math``.
        constants: the numbers of ``c``.
        state: keys of the state that the code reads, with their C types.
        outputs: names of the results, with their widths.
    """

    statements: str
    constants: tuple[float, ...]
    state: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, int], ...]


def c_name(key: str) -> str:
    """Return a key of the state as part of an identifier: ``robot.joint_pos`` is ``robot_2e_joint_pos``."""
    return "".join(c if c.isalnum() or c == "_" else f"_{ord(c):x}_" for c in key)


def write_c(program: Program, stores: dict[str, str]) -> CCode:
    """Write a program as C.

    Args:
        stores: for each wanted output, the statement that stores a number, with ``{place}``, ``{value}``, ``{name}``.
    """
    wanted = {name: output for name, output in program.outputs.items() if name in stores}
    used = reachable(program, [node for output in wanted.values() for node in output.nodes])
    names: dict[int, str] = {}
    constants: list[float] = []
    state: dict[str, str] = {}
    lines: list[str] = []
    # one variable for each node, in the order of the program
    for node in used:
        definition = program.nodes[node]
        names[node] = f"v{len(names)}"
        if definition.op == "const" and definition.kind in FLOATS:
            expression = f"({C_TYPES[definition.kind]})c[{len(constants)}]"
            constants.append(float(definition.value))
        elif definition.op == "load":
            state[definition.name] = C_TYPES[definition.kind]
            expression = f"S_{c_name(definition.name)}[{definition.column}]"
        else:
            kinds = [program.nodes[arg].kind for arg in definition.args]
            expression = _expression(definition, kinds, [names[arg] for arg in definition.args])
        # not const: clang folds const values recursively, through all their operands
        lines.append(f"{C_TYPES[definition.kind]} {names[node]} = {expression};")
    # stores of the outputs
    for name, output in wanted.items():
        for column, node in enumerate(output.nodes):
            lines.append(stores[name].format(name=name, place=column, value=names[node]))
    sizes = tuple((name, len(output.nodes)) for name, output in wanted.items())
    return CCode("\n".join(lines), tuple(constants), tuple(sorted(state.items())), sizes)


def define_functions(code: str) -> str:
    """Return the definition of ``Math``, with the C library's functions that the code calls.

    CUDA's compiler would copy them, dozens of instructions each, to every place where they are called: kernels with
    many sines took five times as long to compile.
    """
    lines = []
    for name in sorted(set(_CALL.findall(code))):
        kind, op = ("double", name) if name in _FUNCTIONS | _FUNCTIONS_OF_TWO else ("float", name[:-1])
        parameters, passed = (f"{kind} x, {kind} y", "x, y") if op in _FUNCTIONS_OF_TWO else (f"{kind} x", "x")
        lines.append(f"static NOT_INLINED {kind} {name}({parameters}) {{ return ::{name}({passed}); }}")
    if not lines:
        return ""
    macro = "#ifdef __CUDA_ARCH__\n#define NOT_INLINED __noinline__\n#else\n#define NOT_INLINED\n#endif"
    return "\n".join(["", macro, "struct Math {", *lines, "};"])


def _expression(node: Node, kinds: list[str], x: list[str]) -> str:
    op, kind = node.op, node.kind
    # variables and constants
    if op in ("lane", "seed", "step"):
        return op
    if op == "rows":
        return "n"
    if op == "const":
        return _integer(int(node.value), kind)
    # operators of C
    if op == "cast":
        return _cast(kind, kinds[0], x[0])
    if op == "select":
        return f"{x[0]} ? {x[1]} : {x[2]}"
    if op in _OPERATORS:
        return f"{x[0]} {_OPERATORS[op]} {x[1]}"
    if op == "not":
        return f"!{x[0]}" if kinds[0] == "b" else f"~{x[0]}"
    if op in _BITS:
        return f"{x[0]} {_BITS[op]} {x[1]}"
    # functions, by the kind of number
    if kind in FLOATS:
        return _float(op, kind, x)
    return _whole(op, kind, x)


def _cast(kind: str, of: str, x: str) -> str:
    """Convert; a floating-point number out of range gives the lowest integer, as on x86 (undefined in C)."""
    if kind == "b":
        return f"{x} != 0"
    if kind in FLOATS or of not in FLOATS:
        return f"({C_TYPES[kind]}){x}"
    wide, bits = ("long long", 63) if kind == "i64" else ("int", 31)
    limit = f"{float(1 << bits)!r}{'f' if of == 'f32' else ''}"
    cast = f"{x} >= -{limit} && {x} < {limit} ? ({wide}){x} : ({wide})(1ULL << {bits})"
    return f"({C_TYPES[kind]})({cast})" if kind == "u8" else cast


def _integer(value: int, kind: str) -> str:
    if kind == "i64":
        return f"(long long){value % (1 << 64)}ULL"
    return str(value) if kind != "b" else ("true" if value else "false")


def _float(op: str, kind: str, x: list[str]) -> str:
    suffix, zero = ("f", "0.0f") if kind == "f32" else ("", "0.0")
    symbol = {"add": "+", "sub": "-", "mul": "*", "div": "/"}.get(op)
    if symbol:
        return f"{x[0]} {symbol} {x[1]}"
    if op == "neg":
        return f"-{x[0]}"
    if op == "abs":
        return f"fabs{suffix}({x[0]})"
    if op == "round":
        return f"rint{suffix}({x[0]})"
    if op in ("maximum", "minimum"):  # NaN if an operand is NaN
        return f"{x[0]} != {x[0]} || {x[0]} {'>' if op == 'maximum' else '<'} {x[1]} ? {x[0]} : {x[1]}"
    if op == "log1p":  # some C libraries lack log1p and expm1; double precision compensates
        return f"({C_TYPES[kind]})Math::log(1.0 + (double){x[0]})"
    if op == "expm1":
        return f"({C_TYPES[kind]})(Math::exp((double){x[0]}) - 1.0)"
    if op == "fmod":
        # some C libraries do not return NaN for 0 % 0
        return f"{x[1]} == {zero} ? ({x[0]} - {x[0]}) / {x[1]} : Math::fmod{suffix}({x[0]}, {x[1]})"
    if op in _INSTRUCTIONS:
        return f"{op}{suffix}({x[0]})"
    if op not in _FUNCTIONS | _FUNCTIONS_OF_TWO:
        raise ValueError(f"no C code for {op} of {kind}")
    return f"Math::{op}{suffix}({', '.join(x)})"


def _whole(op: str, kind: str, x: list[str]) -> str:
    """Write an integer operation. Integers wrap around as in torch, which C defines for unsigned integers only.

    Cases that are undefined in C are defined here: division by zero gives 0, the lowest number divided by -1 gives
    itself, and a shift by too many bits gives the bits that are shifted in.
    """
    c_type, unsigned = C_TYPES[kind], "unsigned long long"
    bits = {"i64": 64, "i32": 32}.get(kind, 8)
    # parts of several operations
    minus = f"({c_type})(0ULL - ({unsigned}){x[0]})"
    by_minus_one = f"{x[-1]} == ({c_type})-1 && ({c_type})-1 < 0"
    in_range = f"{x[-1]} >= 0 && {x[-1]} < {bits}"  # a shift by fewer bits than the type has
    rest = f"{x[0]} % {x[-1]}"
    # expressions are built on demand: an operation with one operand does not have x[1]
    wrapping: dict[str, Callable[[], str]] = {
        "add": lambda: f"({c_type})(({unsigned}){x[0]} + ({unsigned}){x[1]})",
        "sub": lambda: f"({c_type})(({unsigned}){x[0]} - ({unsigned}){x[1]})",
        "mul": lambda: f"({c_type})(({unsigned}){x[0]} * ({unsigned}){x[1]})",
        "neg": lambda: minus,
        "shl": lambda: f"{in_range} ? ({c_type})(({unsigned}){x[0]} << {x[1]}) : ({c_type})0",
        "shr": lambda: f"({c_type})({x[0]} >> ({in_range} ? {x[1]} : {bits - 1}))",
        "abs": lambda: f"{x[0]} < 0 ? {minus} : {x[0]}",
        "maximum": lambda: f"{x[0]} > {x[1]} ? {x[0]} : {x[1]}",
        "minimum": lambda: f"{x[0]} < {x[1]} ? {x[0]} : {x[1]}",
        "div": lambda: f"{x[1]} == 0 ? 0 : {by_minus_one} ? {minus} : {x[0]} / {x[1]}",
        "fmod": lambda: f"{x[1]} == 0 || ({by_minus_one}) ? 0 : {rest}",
        "remainder": lambda: (
            f"{x[1]} == 0 || ({by_minus_one}) ? 0 : {rest} + ({rest} != 0 && ({rest} < 0) != ({x[1]} < 0) ? {x[1]} : 0)"
        ),
        "floordiv": lambda: (
            f"{x[1]} == 0 ? 0 : {by_minus_one} ? {minus} : "
            f"{x[0]} / {x[1]} - (({rest} != 0) && (({x[0]} < 0) != ({x[1]} < 0)))"
        ),
    }
    if op in ("floor", "ceil", "trunc", "round"):
        return x[0]
    if op not in wrapping:
        raise ValueError(f"no C code for {op} of {kind}")
    return wrapping[op]()
