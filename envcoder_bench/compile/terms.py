"""The terms of a recorded reward, and factors on them.

A component is a *term* if sums, differences, bounds, branches of ``torch.where`` and products with what has no
component lead from it to the reward. This is read from the operations, not concluded from values, so that it holds in
every state. A factor is a constant that multiplies a term where it enters the reward: the result is, bit by bit, that
of a function in which a person writes it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from envcoder_bench.compile.interpret import PARAMETERS, ProgramCall
from envcoder_bench.compile.program import FLOATS, Node, Output, Program, pruned, reachable
from envcoder_bench.compile.trace import Memo, trace
from envcoder_bench.core.errors import near_matches
from envcoder_bench.shaping.contract import CandidateError, Shaping
from envcoder_bench.shaping.kinds import KINDS, REWARD, VALUE
from envcoder_bench.shaping.variants import REWARD_FACTORS
from envcoder_bench.tasks.contract import TaskSnapshot

_STAGE = KINDS[REWARD].stage
_COMMUTE = ("add", "mul", "maximum", "minimum")
_LARGER = ("maximum", "minimum")
_MEET = {"mul": "multiplied by", "div": "divided by"}  # one of their arguments at most may have terms
_LEAD = ("add", "sub", "neg", "select", "cast", *_LARGER, *_MEET)  # operations that lead from terms to the reward


@dataclass(frozen=True)
class Terms:
    """What the components of a reward are.

    Attributes:
        weights: by term, its factor in the reward; None if it is not one number.
        others: by component that is not a term, what it is; completes "NAME ...".
        rests: lines of what the reward has beside terms and constants; None for an unknown line.
        places: by term, where it enters: operations, and positions of their arguments.
    """

    weights: Mapping[str, float | None]
    others: Mapping[str, str]
    rests: Sequence[int | None]
    places: Mapping[str, set[tuple[int, int]]]

    def __str__(self) -> str:
        """Describe the terms in a line."""
        words = [f"its terms are {', '.join(self.weights)}" if self.weights else "none of its components is a term"]
        lines = sorted({line for line in self.rests if line is not None})
        if self.rests:
            where = f" ({', '.join(f'line {line}' for line in lines)})" if lines else ""
            words.append(f"it has parts that are not components{where}")
        return "; ".join([*words, *(f"{name} {what}" for name, what in self.others.items())])


def recorded_reward(shaping: Shaping, task: TaskSnapshot) -> Program:
    """Return the program of a checked shaping's reward. Raises CandidateError if it cannot be recorded."""
    function = shaping.functions[_STAGE]
    recorded = shaping.programs.get(_STAGE, function.program)
    if recorded is not None:
        return recorded
    traced, refused = trace(shaping.with_functions({_STAGE: function}), task.state, task.constants, task, Memo())
    for obstacle in refused:
        raise CandidateError(f"cannot be recorded: it {obstacle.reason}", function.file, obstacle.line, function.type)
    return traced.programs[_STAGE]


def scaled(shaping: Shaping, factors: Mapping[str, float], task: TaskSnapshot) -> Shaping:
    """Return a checked shaping whose reward has factors on its terms, and reports them with their factors.

    Raises CandidateError if one of them is not a term of the reward, or if the reward cannot be recorded.
    """
    program, function = recorded_reward(shaping, task), shaping.functions[_STAGE]
    terms = find_terms(program, shaping.components)
    for name in factors:
        if name not in terms.weights:
            hint = near_matches(name, terms.weights)
            why = terms.others.get(name, f"is not a component of its reward{hint}; {terms}")
            raise CandidateError(f"{REWARD_FACTORS} has '{name}', which {why}", function.file, function.line)
    program = _with_factors(program, shaping.components, terms, factors)
    call = ProgramCall(KINDS[REWARD], program, KINDS[REWARD].parts(task), shaping.components)
    function = replace(function, call=call, parameters=PARAMETERS, program=program, module=None)
    shaping = shaping.with_functions({**shaping.functions, _STAGE: function})
    programs = {**shaping.programs, _STAGE: program} if _STAGE in shaping.programs else shaping.programs
    return replace(shaping, programs=programs)


def _with_factors(program: Program, components: Sequence[str], terms: Terms, factors: Mapping[str, float]) -> Program:
    """Return the program with a factor on each term; all variants have the same operations, and share a kernel."""
    new = replace(program, nodes=[*program.nodes], outputs={}, lines=[*program.lines], verified=set(), codes={})
    term_of = {argument: name for name, places in terms.places.items() for argument in places}
    changed: dict[int, int] = {}  # nodes that depend on a factor, and their copies
    products: dict[tuple[str, int], int] = {}

    def add(node: Node, like: int) -> int:
        new.nodes.append(node)
        new.lines += [program.lines[like]] if program.lines else []
        return len(new.nodes) - 1

    def times(name: str, node: int) -> int:
        if (name, node) not in products:
            x = node if program.nodes[node].kind in FLOATS else add(Node("cast", "f32", (node,)), node)
            kind = new.nodes[x].kind
            factor = add(Node("const", kind, value=float(factors.get(name, 1.0))), node)
            products[name, node] = add(Node("mul", kind, (factor, x)), node)
        return products[name, node]

    (root,) = program.outputs[VALUE].nodes
    for node in reachable(program, [output.nodes[0] for output in program.outputs.values()]):
        before = program.nodes[node].args
        args = tuple(
            times(term_of[node, k], arg) if (node, k) in term_of else changed.get(arg, arg)
            for k, arg in enumerate(before)
        )
        if args != before:
            changed[node] = add(program.nodes[node]._replace(args=args), node)
    value = times(term_of[-1, 0], root) if (-1, 0) in term_of else changed.get(root, root)
    new.outputs[VALUE] = Output([value], new.nodes[value].kind)
    for k, name in enumerate(components):
        if f"component{k}" in program.outputs:
            (node,) = program.outputs[f"component{k}"].nodes
            node = times(name, node) if name in terms.weights else changed.get(node, node)
            new.outputs[f"component{k}"] = Output([node], new.nodes[node].kind)
    result = pruned(new)
    result.sized = program.sized
    return result


# which components are terms


def find_terms(program: Program, components: Sequence[str]) -> Terms:
    """Return what ``components`` are in a reward's program."""
    return _Search(program, components).terms()


class _Search:
    """The operations that lead from components to a reward.

    Attributes:
        same: a number for each node; nodes of equal operations on equal numbers have the same.
        outputs: the nodes of the components by name.
        names: names and constant factors of components, by the number of what the factor multiplies.
        joined: how components meet others, by that number.
        parts, whole, ways: for each node the components that it is made of, whether it is made of nothing else, and
            the positions of the arguments that lead to them.
    """

    def __init__(self, program: Program, components: Sequence[str]) -> None:
        self.program, self.nodes, self.same = program, program.nodes, _numbered(program)
        (self.root,) = program.outputs[VALUE].nodes
        self.outputs: dict[str, int] = {}
        self.names: dict[int, list[tuple[str, float]]] = {}
        for k, name in enumerate(components):
            if f"component{k}" in program.outputs:
                (self.outputs[name],) = program.outputs[f"component{k}"].nodes
                core, scale = self.core(self.outputs[name])
                self.names.setdefault(core, []).append((name, scale))
        self.joined: dict[int, str] = {}
        self.parts: list[frozenset[int]] = []
        self.whole: list[bool] = []
        self.ways: list[tuple[int, ...]] = []
        for node in range(len(self.nodes)):
            self._look_at(node)

    def line(self, node: int) -> int | None:
        return self.program.lines[node] if self.program.lines else None

    def core(self, node: int) -> tuple[int, float]:
        """Return the number of a node without constant factors, and their product."""
        scale = 1.0
        while (factor := self._factor(node)) is not None:
            scale, node = scale * factor[0], factor[1]
        return self.same[node], scale

    def _factor(self, node: int) -> tuple[float, int] | None:
        """Return the constant by which a node multiplies or divides, and what; None for other operations."""
        op, args = self.nodes[node].op, self.nodes[node].args
        if op == "neg" or (op == "cast" and self.nodes[node].kind in FLOATS):
            return -1.0 if op == "neg" else 1.0, args[0]
        for constant, other in {"mul": (args, args[::-1]), "div": (args[::-1],)}.get(op, ()):
            x = self.nodes[constant]
            if x.op == "const" and x.value:
                return float(x.value) if op == "mul" else 1.0 / float(x.value), other
        return None

    def _look_at(self, node: int) -> None:
        """Find what a node is made of. Its arguments come before it."""
        op, kind, args, *_ = self.nodes[node]
        ways = ((1, 2) if op == "select" else tuple(range(len(args)))) if op in _LEAD and kind in FLOATS else ()
        if op in _MEET or op in _LARGER:
            ways = tuple(k for k in ways if self.parts[args[k]] and self.nodes[args[k]].op != "const")
            if op in _MEET and (len(ways) == 2 or (op == "div" and 1 in ways)):
                met, at = frozenset[int]().union(*(self.parts[arg] for arg in args)), self.line(node)
                other = "another component" if len(met) > 1 else "itself"
                for core in met:
                    self.joined[core] = f"is {_MEET[op]} {other}{'' if at is None else f' (line {at})'}"
                ways = ()
        parts = frozenset[int]().union(*(self.parts[args[k]] for k in ways))
        whole = op == "const" or (bool(ways) and all(self.whole[args[k]] for k in ways))
        core, _ = self.core(node)
        # a component that is a sum of others is not a term, and neither is the reward itself
        others = parts - {core}
        is_zero = op == "const" and not self.nodes[node].value  # with which sum() begins
        if core in self.names and not is_zero and not (others and (node == self.root or (whole and len(others) > 1))):
            parts, whole, ways = frozenset([core]), True, ()
        self.parts.append(parts)
        self.whole.append(whole)
        self.ways.append(ways)

    def terms(self) -> Terms:
        """Follow the ways from the reward to its terms."""
        weights: dict[int, float | None] = {}
        places: dict[int, set[tuple[int, int]]] = {}
        rests: dict[int | None, None] = {}
        todo: list[tuple[tuple[int, int], int, float | None]] = [((-1, 0), self.root, 1.0)]
        seen: set[int] = set()
        while todo:
            argument, node, weight = todo.pop()
            if not self.ways[node] and self.parts[node]:
                core, scale = self.core(node)
                at = places.setdefault(core, set())
                weights[core] = None if at or weight is None else weight * scale
                at.add(argument)
            elif not self.ways[node] and self.nodes[node].op != "const":
                rests[self.line(node)] = None
            elif node not in seen:
                seen.add(node)
                op, args = self.nodes[node].op, self.nodes[node].args
                factor = self._factor(node) if op in ("mul", "div", "neg") else (1.0, node)
                below = None if weight is None or factor is None else weight * factor[0]
                for k in reversed(self.ways[node]):
                    negative = op == "sub" and k == 1 and below is not None
                    todo.append(((node, k), args[k], -below if negative else below))  # type: ignore[operator]
        return self._named(weights, places, list(rests))

    def _named(
        self, weights: Mapping[int, float | None], places: Mapping[int, set[tuple[int, int]]], rests: list[int | None]
    ) -> Terms:
        terms: dict[str, float | None] = {}
        others: dict[str, str] = {}
        used = {self.core(node)[0] for node in reachable(self.program, [self.root])}
        for name, node in self.outputs.items():
            core, scale = self.core(node)
            weight, alike = weights.get(core), self.names[core]
            # of several names of a term, the one that is added as it is
            first, scale_of_first = next((pair for pair in alike if pair[1] == weight), alike[0])
            if self.nodes[node].op == "const" and core not in places:
                others[name] = f"is {self.nodes[node].value:.6g} in all states, which the reward does not add"
            elif name != first:
                ratio = scale / scale_of_first
                others[name] = f"equals {first}" if ratio == 1.0 else f"is {ratio:.6g} times {first}"
            elif core in places:
                terms[name] = None if weight is None else float(f"{weight / scale:.7g}")
            elif core in self.joined:
                others[name] = self.joined[core]
            elif core in used:
                made_of = self.parts[node] - {core}
                total = "is the reward" if core == self.core(self.root)[0] else "is a sum of other components"
                others[name] = total if made_of else "is used by the reward, but not added"
            else:
                others[name] = "is not used by the reward"
        of_core = {self.core(self.outputs[name])[0]: name for name in terms}
        return Terms(terms, others, rests, {of_core[core]: where for core, where in places.items()})


def _numbered(program: Program) -> list[int]:
    """Return a number for each node; nodes of equal operations on equal numbers have the same."""
    numbers: list[int] = []
    first: dict[object, int] = {}
    for k, node in enumerate(program.nodes):
        args = tuple(numbers[arg] for arg in node.args)
        key = node._replace(args=tuple(sorted(args)) if node.op in _COMMUTE else args)
        numbers.append(k if node.op == "unknown" else first.setdefault(key, k))
    return numbers
