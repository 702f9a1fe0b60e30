"""From a jail's answer to a candidate without code: everything in it is checked, and nothing in it is run."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import torch
from torch import Tensor

from envcoder_bench.compile.interpret import Interpreter
from envcoder_bench.compile.program import ACTION, FLOATS, Node, Output, Program, reachable
from envcoder_bench.compile.program import KINDS as NUMBERS
from envcoder_bench.jail import wire
from envcoder_bench.shaping.contract import MAX_ACTION_DIM, Candidate, CandidateError, CandidateFunction
from envcoder_bench.shaping.kinds import ACTION_TYPES, ANY, KINDS, SHAPER_TYPES, VALUE, Part
from envcoder_bench.tasks.contract import AnyTask

MAX_NODES = 10_000  # numbers that all functions of a file compute for one environment
MAX_LIVE = 1_000  # numbers that a function keeps at once: a GPU sets memory aside for them, for every thread it can run
MAX_COMPONENTS = 64
MAX_MESSAGE = 600
MAX_COMPONENT_NAME = 64
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_ .:/+*()\[\],%^-]|^[^A-Za-z0-9_]")  # a name is a column's and a curve's
# a path of two parts or more; not m/s, and no address of the network
_PATH = re.compile(r"(?<![\w/.:])/(?:[^\s/'\"<>|:;,()]+/)+")

_WHOLE = ("i64", "i32", "u8")
_ALL = (*FLOATS, *_WHOLE, "b")
_LOWEST = {"i64": -(2**63), "i32": -(2**31), "u8": 0, "b": 0}
_HIGHEST = {"i64": 2**63 - 1, "i32": 2**31 - 1, "u8": 255, "b": 1}

# what operations there are: how many arguments of the node's own kind, and which kinds
_SAME: dict[str, tuple[int, tuple[str, ...]]] = {
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"), (1, FLOATS)),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "erf", "erfc"), (1, FLOATS)),
    **dict.fromkeys(("floor", "ceil", "trunc", "round"), (1, (*FLOATS, *_WHOLE))),
    "neg": (1, _ALL),
    "abs": (1, (*FLOATS, *_WHOLE)),
    **dict.fromkeys(("add", "sub", "mul", "maximum", "minimum"), (2, _ALL)),
    **dict.fromkeys(("div", "fmod"), (2, (*FLOATS, *_WHOLE))),
    **dict.fromkeys(("pow", "atan2"), (2, FLOATS)),
    **dict.fromkeys(("remainder", "floordiv", "shl", "shr"), (2, _WHOLE)),
    **dict.fromkeys(("and", "or", "xor"), (2, (*_WHOLE, "b"))),
    "not": (1, (*_WHOLE, "b")),
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_LEAVES = ("const", "load", "lane", "rows", "seed", "step")
OPERATIONS = (*_SAME, *_COMPARISONS, *_LEAVES, "select", "cast")


@dataclass(frozen=True)
class Contract:
    """What programs of a task may read, and must give.

    Attributes:
        reads: by name of the state, the kind of number and how many one environment has; without the actions.
        parts: by name of a function, the tensors that it may return.
        action_dim: width of the action where a file has no action function.
        types: the functions that are asked for.
    """

    reads: Mapping[str, tuple[str, int]]
    parts: Mapping[str, Mapping[str, Part]]
    action_dim: int
    types: tuple[str, ...] = SHAPER_TYPES

    @classmethod
    def of(
        cls, task: AnyTask, state: Mapping[str, Tensor], action_dim: int, types: Sequence[str] | None = None
    ) -> Contract:
        """The contract of a task, whose ``state`` is as functions see it; ``types`` None: all."""
        reads = {key: (NUMBERS[x.dtype], math.prod(x.shape[1:])) for key, x in state.items() if x.dtype in NUMBERS}
        return cls(
            reads={key: own for key, own in reads.items() if key != "actions"},
            parts={name: KINDS[name].parts(task) for name in SHAPER_TYPES},
            action_dim=action_dim,
            types=SHAPER_TYPES if types is None else tuple(types),
        )


def rebuild(answer: bytes, name: str, file: str, source: str, contract: Contract) -> Candidate:
    """Make a candidate of an answer.

    Raises:
        CandidateError: the answer says what is wrong with the file, or the answer itself is not in order.
    """
    try:
        value = wire.unpack(answer)
        _require(isinstance(value, dict) and len(value) == 1, "it is no answer")
        if "error" in value:
            raise _error(value["error"], file, source)
        return _candidate(value.get("candidate"), name, file, source, contract)
    except wire.Malformed as error:
        raise CandidateError(f"its answer from the jail was refused: {error}", file) from None


def clean(message: object, most: int = MAX_MESSAGE) -> str:
    """A message on one line, of printable characters alone, in which paths are their last parts."""
    text = message if isinstance(message, str) else ""
    text = "".join(c if c.isprintable() else " " for c in text[: 2 * most])
    text = _PATH.sub("", text)
    return text if len(text) <= most else text[: most - 3] + "..."


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise wire.Malformed(reason)


def _is_whole(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _error(given: Any, file: str, source: str) -> CandidateError:
    _require(isinstance(given, dict) and set(given) == {"message", "line", "function"}, "its error is none")
    message, line, function = clean(given["message"]), given["line"], given["function"]
    _require(bool(message), "its error says nothing")
    if not _is_whole(line, 1, source.count("\n") + 1):
        line = None
    return CandidateError(message, file, line, function if function in SHAPER_TYPES else "")


def _candidate(given: Any, name: str, file: str, source: str, contract: Contract) -> Candidate:
    _require(isinstance(given, dict) and set(given) == {"functions", "action_dim", "components"}, "parts are missing")
    functions, components = given["functions"], given["components"]
    _require(isinstance(functions, dict) and bool(functions), "it has no functions")
    _require(all(type_ in contract.types for type_ in functions), "it has functions that nobody asked for")
    actions = [type_ for type_ in ACTION_TYPES if type_ in functions]
    _require(len(actions) < 2, "it has two action functions")
    _require(_is_whole(given["action_dim"], 1, MAX_ACTION_DIM), "its action has no width")
    action_dim = given["action_dim"] if actions else contract.action_dim
    names = _components(components, file)
    made: dict[str, CandidateFunction] = {}
    budget = MAX_NODES
    for type_, own in functions.items():
        _require(isinstance(own, dict) and set(own) == {"line", "nodes", "outputs"}, f"{type_} is incomplete")
        line = own["line"] if _is_whole(own["line"], 1, source.count("\n") + 1) else 1
        _require(isinstance(own["nodes"], list), f"{type_} has no nodes")
        budget -= len(own["nodes"])
        if budget < 0:
            message = f"computes more than {MAX_NODES} numbers for one environment, untrusted code's limit"
            raise CandidateError(message, file, line, type_)
        reads = {**contract.reads, "actions": ("f32", action_dim)}
        if KINDS[type_].acts:
            reads[ACTION] = ("f32", action_dim)
        program = Program(_nodes(own["nodes"], reads))
        program.outputs.update(_outputs(own["outputs"], program, type_, file, line, len(components), contract))
        if most_live(program) > MAX_LIVE:
            message = f"keeps more than {MAX_LIVE} numbers of one environment at once, untrusted code's limit"
            raise CandidateError(message, file, line, type_)
        made[type_] = CandidateFunction(
            type=type_,
            file=file,
            line=line,
            call=_Call(type_, program, names, contract),
            parameters=_PARAMETERS,
            action_dim=action_dim if KINDS[type_].acts else None,
            program=program,
        )
    return Candidate(name, file, source, made, action_dim if actions else None)


def _components(given: Any, file: str) -> tuple[str, ...]:
    """The names of components, with plain characters alone; no two are the same."""
    _require(isinstance(given, list) and all(isinstance(one, str) for one in given), "its components have no names")
    if len(given) > MAX_COMPONENTS:
        raise CandidateError(f"returns more than {MAX_COMPONENTS} components, untrusted code's limit", file)
    _require(len(set(given)) == len(given), "two components have one name")
    names: list[str] = []
    for one in given:
        if not one or not one[:MAX_COMPONENT_NAME].isprintable():
            message = f"names a component {clean(one, 70)!r}: use up to {MAX_COMPONENT_NAME} printable characters"
            raise CandidateError(message, file)
        names.append(_plain_name(one, names))
    return tuple(names)


def _plain_name(given: str, taken: Sequence[str]) -> str:
    """A name with what is no plain character replaced: ``v² → x`` is ``v2 _ x``."""
    text = unicodedata.normalize("NFKD", given[:MAX_COMPONENT_NAME])
    text = "".join(c for c in text if not unicodedata.combining(c))
    plain = name = _NOT_PLAIN.sub("_", text)[:MAX_COMPONENT_NAME]
    for number in itertools.count(2):
        if name not in taken:
            return name
        name = f"{plain[: MAX_COMPONENT_NAME - 4]} {number}"
    raise AssertionError


def _nodes(given: list[Any], reads: Mapping[str, tuple[str, int]]) -> list[Node]:
    nodes: list[Node] = []
    for own in given:
        _require(isinstance(own, list) and len(own) == 6, "a node is incomplete")
        op, kind, args, value, name, column = own
        _require(isinstance(op, str) and kind in _ALL and isinstance(args, list), "a node is none")
        _require(all(_is_whole(arg, 0, len(nodes) - 1) for arg in args), "a node is computed from a later one")
        _require(_fits(op, kind, [nodes[arg].kind for arg in args]), f"{clean(op, 20)!r} does not take these kinds")
        _require(op == "const" or value == 0, f"{op} has a value")
        _require(op == "load" or (name == "" and column == 0), f"{op} has a name")
        if op == "const":
            value = _number(value, kind)
        elif op == "load":
            _require(isinstance(name, str) and name in reads, "it reads what the state has not")
            _require(reads[name][0] == kind, f"it takes {name} for another kind of number")
            _require(_is_whole(column, 0, reads[name][1] - 1), f"it reads beyond {name}")
        nodes.append(Node(op, kind, tuple(args), value if op == "const" else 0, name, column))
    return nodes


def _fits(op: str, kind: str, args: list[str]) -> bool:
    """Whether an operation takes arguments of these kinds, and gives this one."""
    if op in _SAME:
        count, kinds = _SAME[op]
        return kind in kinds and args == [kind] * count
    if op in _COMPARISONS:
        return kind == "b" and len(args) == 2 and args[0] == args[1]
    if op == "select":
        return args == ["b", kind, kind]
    if op == "cast":
        return len(args) == 1
    return op in _LEAVES and not args and (op in ("const", "load") or kind == "i64")


def _number(value: Any, kind: str) -> float:
    if kind in FLOATS:
        _require(type(value) in (int, float), "a constant is no number")
        return float(value)
    _require(_is_whole(value, _LOWEST[kind], _HIGHEST[kind]), f"a constant is no number of kind {kind}")
    return value


def _outputs(
    given: Any, program: Program, type_: str, file: str, line: int, components: int, contract: Contract
) -> dict[str, Output]:
    _require(isinstance(given, dict) and bool(given), f"{type_} gives nothing")
    made: dict[str, Output] = {}
    for name, own in given.items():
        _require(isinstance(own, list) and len(own) == 2 and isinstance(own[0], list), f"{type_} gives nothing")
        nodes, kind = own
        _require(kind in _ALL, f"{type_} gives no numbers")
        _require(all(_is_whole(node, 0, len(program.nodes) - 1) for node in nodes), f"{type_} gives what is not there")
        _require(all(program.nodes[node].kind == kind for node in nodes), f"{type_} gives numbers of another kind")
        made[name] = Output(nodes, kind)
    wanted = _wanted(type_, made, components, contract)
    most = KINDS[type_].untrusted_width
    if most and len(made[VALUE].nodes) > most:
        message = f"returned more than {most} numbers for one environment, untrusted code's limit"
        raise CandidateError(message, file, line, type_)
    for name, (size, floating) in wanted.items():
        _require(len(made[name].nodes) == size, f"{type_} gives {len(made[name].nodes)} numbers, not {size}")
        _require(not floating or made[name].kind in FLOATS, f"{type_} gives no floating-point numbers")
    return made


def most_live(program: Program) -> int:
    """The most numbers that are computed already and needed later, but for results, at any place of a program."""
    results = {node for output in program.outputs.values() for node in output.nodes}
    last: dict[int, int] = {}
    for place in reachable(program, list(results)):
        last.update(dict.fromkeys(program.nodes[place].args, place))
    change = [0] * (len(program.nodes) + 1)
    for node, place in last.items():
        if node not in results and program.nodes[node].op not in ("const", "load"):
            change[node] += 1
            change[place] -= 1
    return max(itertools.accumulate(change))


def _wanted(type_: str, made: Mapping[str, Output], components: int, contract: Contract) -> dict[str, tuple[int, bool]]:
    """The outputs of a function: how many numbers, and whether they must be floating point."""
    kind, parts = KINDS[type_], contract.parts[type_]
    if kind.shape is None:
        _require(set(made) <= set(parts), f"{type_} gives keys that there are not")
        parts = {key: parts[key] for key in made}
    elif parts[VALUE].shape == (ANY,):
        parts = {VALUE: Part((max(len(made[VALUE].nodes), 1) if VALUE in made else 1,), kind.floating)}
    names = [f"component{i}" for i in range(components)] if kind.components else []
    _require(set(made) == {*parts, *names}, f"{type_} gives other results than it should")
    wanted = {key: (math.prod(shape), floating) for key, (shape, floating) in parts.items()}
    return {**wanted, **dict.fromkeys(names, (1, False))}


_PARAMETERS = tuple(
    inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("state_dict", "action")
)


class _Call:
    """In place of a function: its program, interpreted, and its results as the function returned them."""

    def __init__(self, type_: str, program: Program, components: tuple[str, ...], contract: Contract) -> None:
        self._interpreter = Interpreter(program)
        self._parts, self._is_dict = contract.parts[type_], KINDS[type_].shape is None
        self._components = components if KINDS[type_].components else ()

    def __call__(self, state_dict: Mapping[str, Tensor], action: Tensor) -> object:
        with torch.no_grad():
            made = self._interpreter(state_dict, action)
        n = next(x.shape[0] for x in made.values())
        parts = {key: made[key].reshape(n, *part.shape) for key, part in self._parts.items() if key in made}
        if self._is_dict:
            return parts
        if not self._components:
            return parts[VALUE]
        return parts[VALUE], {name: made[f"component{i}"][:, 0] for i, name in enumerate(self._components)}
