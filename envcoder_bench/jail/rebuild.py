"""Validate an answer of the jail and rebuild the candidate from it, with programs instead of code."""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from envcoder_bench.compile.interpret import PARAMETERS, ProgramCall
from envcoder_bench.compile.program import ACTION, COMPARISONS, FLOATS, OPERATIONS, Node, Output, Program, reachable
from envcoder_bench.compile.program import KINDS as NUMBERS
from envcoder_bench.core.plain_text import one_line
from envcoder_bench.jail import wire
from envcoder_bench.shaping.contract import MAX_ACTION_DIM, Candidate, CandidateError, CandidateFunction, Dicts
from envcoder_bench.shaping.dicts import valid_dict
from envcoder_bench.shaping.kinds import ACTION_TYPES, ALIASES, ANY, KINDS, SECTION_TYPES, SHAPER_TYPES, VALUE, Part
from envcoder_bench.tasks.contract import AnyTask

MAX_NODES = 10_000  # numbers that all functions of a file compute for one environment
MAX_LIVE = 1_000  # intermediate results at one time: a GPU reserves memory for them for every thread it can run
MAX_COMPONENTS = 64
MAX_MESSAGE = 600
MAX_COMPONENT_NAME = 64
# names of components become names of columns and curves
_SPECIAL = re.compile(r"[^A-Za-z0-9_ .:/+*()\[\],%^-]|^[^A-Za-z0-9_]")
# an absolute path of at least two parts, but not m/s or a URL
_PATH = re.compile(r"(?<![\w/.:])/(?:[^\s/'\"<>|:;,()]+/)+")

_MIN = {"i64": -(2**63), "i32": -(2**31), "u8": 0, "b": 0}
_MAX = {"i64": 2**63 - 1, "i32": 2**31 - 1, "u8": 255, "b": 1}

_KINDS = tuple(NUMBERS.values())
_FAULT_KINDS = ("invalid", "raised", "returned", "changed input", "not finite", "nothing asked")  # of a file
_LEAVES = ("const", "load", "lane", "rows", "seed", "step")


@dataclass(frozen=True)
class Contract:
    """The state that programs of a task may read, and the results that they must return.

    Attributes:
        reads: kind of number, and numbers per environment, by key of the state; without ``actions``.
        parts: the tensors that a function may return, by its name.
        action_dim: width of the action of files without an action function.
        types: names of the functions that are taken from the candidates.
        reads_dicts: whether files may have dicts such as ``rewards``.
    """

    reads: Mapping[str, tuple[str, int]]
    parts: Mapping[str, Mapping[str, Part]]
    action_dim: int
    types: tuple[str, ...] = SHAPER_TYPES
    reads_dicts: bool = False

    @classmethod
    def of(
        cls,
        task: AnyTask,
        state: Mapping[str, Tensor],
        action_dim: int,
        types: Sequence[str] | None = None,
        reads_dicts: bool = False,
    ) -> Contract:
        """Return the contract of a task; ``state`` as functions see it, ``types`` None for all functions."""
        reads = {key: (NUMBERS[x.dtype], math.prod(x.shape[1:])) for key, x in state.items() if x.dtype in NUMBERS}
        return cls(
            reads={key: kind for key, kind in reads.items() if key != "actions"},
            parts={name: KINDS[name].parts(task) for name in SHAPER_TYPES},
            action_dim=action_dim,
            types=SHAPER_TYPES if types is None else tuple(types),
            reads_dicts=reads_dicts,
        )


def rebuild(answer: bytes, name: str, file: str, source: str, contract: Contract) -> Candidate:
    """Return the candidate that an answer describes.

    Raises:
        CandidateError: the error that the answer reports, or a malformed answer.
    """
    try:
        value = wire.unpack(answer)
        _require(isinstance(value, dict), "neither a candidate nor an error")
        if set(value) == {"error"}:
            raise _error(value["error"], file, source)
        allowed = {"candidate", "dicts"} if contract.reads_dicts else {"candidate"}
        _require(bool(value) and set(value) <= allowed, "neither a candidate nor an error")
        dicts = _dicts(value["dicts"], source) if "dicts" in value else None
        if "candidate" not in value:
            return Candidate(name, file, source, {}, dicts=dicts)
        return replace(_candidate(value["candidate"], name, file, source, contract), dicts=dicts)
    except wire.Malformed as error:
        raise CandidateError(f"its answer from the jail was refused: {error}", file) from None


def clean(message: object, limit: int = MAX_MESSAGE) -> str:
    """Return a message on one line with visible characters only, and without the folders of absolute paths."""
    text = message if isinstance(message, str) else ""
    return one_line(_PATH.sub("", text[: 2 * limit]), limit)


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise wire.Malformed(reason)


def _is_int(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _error(value: Any, file: str, source: str) -> CandidateError:
    keys = {"message", "line", "function", "kind", "remedy"}
    _require(isinstance(value, dict) and set(value) == keys, "incomplete error")
    message, line, function = clean(value["message"]), value["line"], value["function"]
    _require(bool(message), "error without a message")
    _require(value["kind"] in _FAULT_KINDS, "unexpected kind of error")
    if not _is_int(line, 1, source.count("\n") + 1):
        line = None
    function = function if function in SHAPER_TYPES else ""
    return CandidateError(message, file, line, function, value["kind"], clean(value["remedy"]))


def _candidate(value: Any, name: str, file: str, source: str, contract: Contract) -> Candidate:
    _require(isinstance(value, dict) and set(value) == {"functions", "action_dim", "components"}, "missing parts")
    # the set of functions, and the width of the action that they read
    functions, components = value["functions"], value["components"]
    _require(isinstance(functions, dict) and bool(functions), "no functions")
    _require(all(type_ in contract.types for type_ in functions), "unexpected function")
    actions = [type_ for type_ in ACTION_TYPES if type_ in functions]
    _require(len(actions) < 2, "two action functions")
    _require(_is_int(value["action_dim"], 1, MAX_ACTION_DIM), "invalid action width")
    action_dim = value["action_dim"] if actions else contract.action_dim
    # programs with valid nodes that read entries of the state, within the limits of a file
    names = _components(components, file)
    rebuilt: dict[str, CandidateFunction] = {}
    budget = MAX_NODES
    for type_, entry in functions.items():
        _require(isinstance(entry, dict) and set(entry) == {"line", "nodes", "outputs"}, f"{type_} is incomplete")
        line = entry["line"] if _is_int(entry["line"], 1, source.count("\n") + 1) else 1
        _require(isinstance(entry["nodes"], list), f"{type_} has no nodes")
        budget -= len(entry["nodes"])
        if budget < 0:
            message = f"computes more than {MAX_NODES} numbers for one environment, untrusted code's limit"
            raise CandidateError(message, file, line, type_)
        reads = {**contract.reads, "actions": ("f32", action_dim)}
        if KINDS[type_].acts:
            reads[ACTION] = ("f32", action_dim)
        program = Program(_nodes(entry["nodes"], reads))
        program.outputs.update(_outputs(entry["outputs"], program, type_, file, line, len(components), contract))
        if most_live(program) > MAX_LIVE:
            message = f"keeps more than {MAX_LIVE} numbers of one environment at once, untrusted code's limit"
            raise CandidateError(message, file, line, type_)
        rebuilt[type_] = CandidateFunction(
            type=type_,
            file=file,
            line=line,
            call=ProgramCall(KINDS[type_], program, contract.parts[type_], names),
            parameters=PARAMETERS,
            action_dim=action_dim if KINDS[type_].acts else None,
            draws=any(node.op == "lane" for node in program.nodes),
            program=program,
        )
    return Candidate(name, file, source, rebuilt, action_dim if actions else None)


def _dicts(value: Any, source: str) -> Dicts:
    _require(isinstance(value, dict) and set(value) == {"values", "lines", "functions"}, "incomplete dicts")
    values, lines, functions = value["values"], value["lines"], value["functions"]
    _require(isinstance(values, dict) and bool(values) and set(values) <= set(SECTION_TYPES), "unexpected dicts")
    _require(all(isinstance(x, dict) and valid_dict(x) for x in values.values()), "a dict is not of names and numbers")
    _require(isinstance(lines, dict) and set(lines) == set(values), "incomplete lines")
    for key_lines in lines.values():
        _require(isinstance(key_lines, dict) and "" in key_lines, "incomplete lines")
        _require(all(_is_int(line, 1, source.count("\n") + 1) for line in key_lines.values()), "invalid lines")
    names = (*SHAPER_TYPES, *ALIASES)
    _require(isinstance(functions, list) and all(x in names for x in functions), "unexpected function")
    return Dicts(_with_tuples(values), lines, tuple(functions))


def _with_tuples(value: Any) -> Any:
    """Return JSON's lists as tuples, as ranges are usually written."""
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _components(value: Any, file: str) -> tuple[str, ...]:
    """Return unique names of the components, without special characters."""
    _require(isinstance(value, list) and all(isinstance(name, str) for name in value), "invalid component names")
    if len(value) > MAX_COMPONENTS:
        raise CandidateError(f"returns more than {MAX_COMPONENTS} components, untrusted code's limit", file)
    _require(len(set(value)) == len(value), "two components have the same name")
    names: list[str] = []
    for name in value:
        if not name or not name[:MAX_COMPONENT_NAME].isprintable():
            remedy = f"use up to {MAX_COMPONENT_NAME} printable characters"
            raise CandidateError(f"names a component {clean(name, 70)!r}", file, remedy=remedy)
        names.append(_plain_name(name, names))
    return tuple(names)


def _plain_name(original: str, taken: Sequence[str]) -> str:
    """Replace the special characters of a name: ``v² → x`` becomes ``v2 _ x``."""
    text = unicodedata.normalize("NFKD", original[:MAX_COMPONENT_NAME])
    text = "".join(c for c in text if not unicodedata.combining(c))
    plain = name = _SPECIAL.sub("_", text)[:MAX_COMPONENT_NAME]
    for number in itertools.count(2):
        if name not in taken:
            return name
        name = f"{plain[: MAX_COMPONENT_NAME - 4]} {number}"
    raise AssertionError


def _nodes(entries: list[Any], reads: Mapping[str, tuple[str, int]]) -> list[Node]:
    nodes: list[Node] = []
    for entry in entries:
        _require(isinstance(entry, list) and len(entry) == 6, "incomplete node")
        # check everything in an entry: its types, its operation, and that it reads only earlier nodes
        op, kind, args, value, name, column = entry
        _require(isinstance(op, str) and kind in _KINDS and isinstance(args, list), "invalid node")
        _require(all(_is_int(arg, 0, len(nodes) - 1) for arg in args), "a node depends on a later one")
        kinds = [nodes[arg].kind for arg in args]
        _require(_accepts(op, kind, kinds), f"{clean(op, 20)!r} does not take these kinds")
        _require(op == "const" or value == 0, f"{op} has a value")
        _require(op == "load" or (name == "" and column == 0), f"{op} has a name")
        # numbers and names of the state
        if op == "const":
            value = _number(value, kind)
        elif op == "load":
            _require(isinstance(name, str) and name in reads, "reads an unknown key of the state")
            _require(reads[name][0] == kind, f"reads {name} as another kind of number")
            _require(_is_int(column, 0, reads[name][1] - 1), f"reads beyond {name}")
        nodes.append(Node(op, kind, tuple(args), value if op == "const" else 0, name, column))
    return nodes


def _accepts(op: str, kind: str, args: list[str]) -> bool:
    """Return whether an operation takes arguments of these kinds and returns this kind."""
    if op in OPERATIONS:
        count, kinds = OPERATIONS[op]
        return kind in kinds and args == [kind] * count
    if op in COMPARISONS:
        return kind == "b" and len(args) == 2 and args[0] == args[1]
    if op == "select":
        return args == ["b", kind, kind]
    if op == "cast":
        return len(args) == 1
    return op in _LEAVES and not args and (op in ("const", "load") or kind == "i64")


def _number(value: Any, kind: str) -> float:
    if kind in FLOATS:
        _require(type(value) in (int, float), "a constant is not a number")
        return float(value)
    _require(_is_int(value, _MIN[kind], _MAX[kind]), f"a constant is not a number of kind {kind}")
    return value


def _outputs(
    value: Any, program: Program, type_: str, file: str, line: int, components: int, contract: Contract
) -> dict[str, Output]:
    _require(isinstance(value, dict) and bool(value), f"{type_} returns nothing")
    outputs: dict[str, Output] = {}
    # the nodes must exist and be of the claimed kind
    for name, entry in value.items():
        _require(isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list), f"{type_} returns nothing")
        nodes, kind = entry
        _require(kind in _KINDS, f"{type_} does not return numbers")
        _require(all(_is_int(node, 0, len(program.nodes) - 1) for node in nodes), f"{type_} returns an unknown node")
        _require(all(program.nodes[node].kind == kind for node in nodes), f"{type_} returns another kind of number")
        outputs[name] = Output(nodes, kind)
    # the function must return as many numbers as expected
    expected = _expected_outputs(type_, outputs, components, contract)
    limit = KINDS[type_].untrusted_width
    if limit and len(outputs[VALUE].nodes) > limit:
        message = f"returned more than {limit} numbers for one environment, untrusted code's limit"
        raise CandidateError(message, file, line, type_)
    for name, (size, floating) in expected.items():
        _require(len(outputs[name].nodes) == size, f"{type_} returns {len(outputs[name].nodes)} numbers, not {size}")
        _require(not floating or outputs[name].kind in FLOATS, f"{type_} does not return floating-point numbers")
    return outputs


def most_live(program: Program) -> int:
    """Return the largest number of intermediate results, other than outputs, that must be kept at one time."""
    results = {node for output in program.outputs.values() for node in output.nodes}
    last_use: dict[int, int] = {}
    for index in reachable(program, list(results)):
        last_use.update(dict.fromkeys(program.nodes[index].args, index))
    change = [0] * (len(program.nodes) + 1)
    for node, index in last_use.items():
        if node not in results and program.nodes[node].op not in ("const", "load"):
            change[node] += 1
            change[index] -= 1
    return max(itertools.accumulate(change))


def _expected_outputs(
    type_: str, outputs: Mapping[str, Output], components: int, contract: Contract
) -> dict[str, tuple[int, bool]]:
    """Return how many numbers each output of a function must have, and whether they must be floating point."""
    kind, parts = KINDS[type_], contract.parts[type_]
    if kind.shape is None:
        _require(set(outputs) <= set(parts), f"{type_} returns unknown keys")
        parts = {key: parts[key] for key in outputs}
    elif parts[VALUE].shape == (ANY,):
        parts = {VALUE: Part((max(len(outputs[VALUE].nodes), 1) if VALUE in outputs else 1,), kind.floating)}
    names = [f"component{i}" for i in range(components)] if kind.components else []
    _require(set(outputs) == {*parts, *names}, f"{type_} returns unexpected results")
    expected = {key: (math.prod(shape), floating) for key, (shape, floating) in parts.items()}
    return {**expected, **dict.fromkeys(names, (1, False))}
