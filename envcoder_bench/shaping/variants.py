"""Variants of a candidate, made from its text: with other weights of its reward terms or other constants, or without
one of its functions.

The text of the file stays as it is; a wrapper of ``compute_reward`` or a ``del`` follows it. Weights are constants, so
that all variants share one kernel. What a variant is, a run notes in a file of its own: no text says it.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.shaping.combination import EXPONENTIAL, PRODUCT, Combination
from envcoder_bench.shaping.discovery import MAX_NAME
from envcoder_bench.shaping.kinds import ACTION_TYPES, ALIASES, KINDS, REWARD
from envcoder_bench.shaping.source import ACTION_DIM, Source, UnsupportedCode, inlined, loaded, unused

TERMS, SWEEP = "--terms", "--sweep"
TRAIN = "train."  # names of a sweep that are keys of the trainer's config
FACTORS = (0.0, 0.5, 2.0)  # of --terms: left out, halved, doubled
LEAST = 1e-37  # least base of a power: its logarithm is finite, in single precision, too
MOST_SHOWN = 20  # numbers in a message
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.comprehension)


@dataclass(frozen=True)
class Variant:
    """What a variant is.

    Attributes:
        original: the name of the candidate that it was made from.
        flag: TERMS or SWEEP.
        term, factor: of a reward term that is scaled, its name and the factor.
        weight: the weight of this term in the original.
        function: the function that was left out.
        values, usual: of a sweep, the values by name, and those of the original.
        points: of a sweep, the value of --sweep_points; 0 for the whole grid.
        unseen: whether the term was 0 in all states on which the form of the reward was found.
    """

    original: str
    flag: str
    term: str = ""
    factor: float = 1.0
    weight: float = 1.0
    function: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    usual: Mapping[str, float] = field(default_factory=dict)
    points: int = 0
    unseen: bool = False

    @property
    def trainer_numbers(self) -> dict[str, float]:
        """The numbers of the trainer that are not the original's: its text does not have them."""
        return {name: x for name, x in self.values.items() if name.startswith(TRAIN) and x != self.usual.get(name)}


# the file in which a run notes its variants


def pack_variants(variants: Mapping[str, Variant]) -> str:
    """Return what variants are, by name, as JSON."""
    usual = asdict(Variant("", ""))
    contents = {name: asdict(variant) for name, variant in variants.items()}
    return json.dumps(
        {name: {key: x for key, x in one.items() if x != usual[key]} for name, one in contents.items()}, indent=1
    )


def read_variants(text: str, overrides: Mapping[str, Mapping[str, float]]) -> dict[str, Variant]:
    """Return the variants that a run has noted.

    Args:
        overrides: the values of the trainer's keys of each of its candidates, by name.

    Raises:
        ValueError: the file is not such a note, or does not fit the candidates.
    """
    try:
        variants = TypeAdapter(dict[str, Variant]).validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError(f"it is not a note of variants: {error.errors()[0]['msg']}") from None
    flags, points = ({getattr(one, key) for one in variants.values()} for key in ("flag", "points"))
    swept = {(one.original, tuple(one.values), tuple(one.usual.items())) for one in variants.values()}
    if len(flags) != 1 or len(points) != 1 or len(swept) > len({one.original for one in variants.values()}):
        raise ValueError("its variants are not those of one run")
    for name, one in variants.items():
        changes = [bool(one.term), bool(one.function), one.values.keys() == one.usual.keys() != set()]
        known = name in overrides and one.original in overrides and one.original not in variants
        if changes.count(True) != 1 or changes[2] != (one.flag == SWEEP) or one.flag not in (TERMS, SWEEP) or not known:
            raise ValueError(f"{name!r} is not a variant of a candidate of this run")
        if one.trainer_numbers != dict(overrides[name]):
            raise ValueError(f"{name!r} has other values of the trainer's keys in config.yaml")
        numbers = (one.factor, one.weight, *one.values.values(), *one.usual.values())
        if not all(map(str.isprintable, (one.term, one.function, *one.values))) or not all(map(math.isfinite, numbers)):
            raise ValueError(f"{name!r} has a name or a number that a run does not make")
    return variants


def with_settings(text: str, variant: Variant) -> str:
    """Return a text with a comment for people on the trainer's numbers of a variant, which its text does not set."""
    words = setting_words(variant.trainer_numbers)
    note = f"\n\n# trained with {words}, by its run's config.yaml: a copy of this file does not set that"
    return f"{text.rstrip()}{note if words else ''}\n"


def setting_words(numbers: Mapping[str, float]) -> str:
    """Return numbers of a config as words of a command line."""
    return " ".join(f"{name}={short(value)}" for name, value in numbers.items())


def asking_words(variants: Mapping[str, Variant]) -> list[str]:
    """Return the words of a command line that asks for these variants; empty without any."""
    if any(variant.flag == TERMS for variant in variants.values()):
        return [TERMS]
    values: dict[str, set[float]] = {}
    for variant in variants.values():
        for name, value in variant.values.items():
            values.setdefault(name, set()).update((value, variant.usual.get(name, value)))
    words = [
        word for name, swept in values.items() for word in (SWEEP, f"{name}={','.join(map(short, sorted(swept)))}")
    ]
    points = max((variant.points for variant in variants.values()), default=0)
    return words + (["--sweep_points", str(points)] if points else [])


# texts


def with_factors(text: str, how: Combination, factors: Mapping[str, float]) -> str:
    """Return a file whose reward's terms are multiplied by factors, also in an exponent; those of a product are powers.

    What the terms do not explain, such as the price of a fall, stays as it is. The components that are returned are
    multiplied, too.

    Raises:
        UserError: the parameters of ``compute_reward`` cannot be read from the text.
    """
    source = _parsed(text)
    used = set(re.findall(r"\w+", text))
    whole, weights, factors_of, combined, power = (
        unused(name, used) for name in ("whole_reward", "TERM_WEIGHTS", "TERM_FACTORS", "combined", "power")
    )
    is_product = how.form == PRODUCT
    # the terms together, with factors of 1 or others
    part = "{0}(terms[name], {1}[name] * factors[name])" if is_product else "{1}[name] * factors[name] * terms[name]"
    part = part.format(power, weights)
    together = f"{part} for name in factors" + (f" if name != {how.after!r}" if how.after else "")
    total = f"math.prod({together})" if is_product else f"sum({together})"
    if how.offset:
        total = f"{math.exp(how.offset)!r} * {total}" if is_product else f"{total} + {how.offset!r}"
    bounds = [f"{key}={x!r}" for key, x in (("min", how.low), ("max", how.high)) if x is not None]
    total = f"torch.clamp({total}, {', '.join(bounds)})" if bounds else total
    total += f" + factors[{how.after!r}] * terms[{how.after!r}]" if how.after else ""
    # what they do not explain stays; at a bound, a fixed reward is one that the bound does not explain
    usual, changed = f"{combined}(terms, dict.fromkeys({factors_of}, 1.0))", f"{combined}(terms, {factors_of})"
    if how.form == EXPONENTIAL:
        changed = f"reward * torch.exp({changed} - {usual})"
    elif not is_product:
        changed = f"reward + ({changed} - {usual})"
    at_bound = {x: f" & ({usual} != {x!r})" for x in (how.low, how.high) if x is not None}
    kept = " | ".join(f"(reward == {x!r}){at_bound.get(x, '')}" for x in how.overrides)
    changed = f"torch.where({kept}, reward, {changed})" if kept else changed
    scaled = f"{power}(terms[name], factor)" if is_product else "factor * terms[name]"
    head, call = _signature(_parsed(inlined(text)))
    keep = f"{whole} = compute_reward\n"
    if REWARD in loaded(source):  # what calls the reward calls the file's
        text, keep = source.renamed({REWARD: whole}).text, ""
    powers = f"""

def {power}(base, exponent):
    return torch.exp(exponent * torch.log(torch.clamp(base, min={LEAST!r})))
"""
    return f"""{text.rstrip()}


{keep}{weights} = {{{_items({name: how.weights[name] for name in how.used})}}}
{factors_of} = {{{_items({name: float(factors.get(name, 1.0)) for name in how.used})}}}
{powers if is_product else ""}

def {combined}(terms, factors):
    return {total}


def compute_reward({head}):
    reward, terms = {whole}({call})
    terms = {{str(name): value for name, value in terms.items()}}
    changed = {changed}
    return changed, {{**terms, **{{name: {scaled} for name, factor in {factors_of}.items()}}}}
"""


def _items(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name!r}: {value!r}" for name, value in values.items())


def _signature(source: Source) -> tuple[str, str]:
    """Return the parameters of ``compute_reward`` as they are written, and the arguments that pass them on."""
    function = source.function(REWARD)
    if function is None:
        raise UserError(f"its terms cannot be scaled: {REWARD} is not defined by a def at the top level of the file")
    x = function.args
    words = [one.arg for one in (*x.posonlyargs, *x.args)]
    words += [f"*{x.vararg.arg}"] if x.vararg else []
    words += [f"{one.arg}={one.arg}" for one in x.kwonlyargs]
    words += [f"**{x.kwarg.arg}"] if x.kwarg else []
    return ast.unparse(x), ", ".join(words)


def without_function(text: str, functions: Iterable[str]) -> str:
    """Return a file without functions, given by their names in it; the baseline's take their place."""
    names, source = [*functions], _parsed(text)
    if any(name in ACTION_TYPES for name in names) and ACTION_DIM in source.definitions:
        names.append(ACTION_DIM)
    called = [name for name in names if name in loaded(source)]
    if called:  # it stays a helper of the others
        used = set(re.findall(r"\w+", text))
        text = source.renamed({name: unused(f"own_{name}", used) for name in called}).text
        names = [name for name in names if name not in called]
    if not names:
        return f"{text.rstrip()}\n"
    return f"{text.rstrip()}\n\ndel {', '.join(names)}\n"


def with_numbers(text: str, values: Mapping[str, str]) -> str:
    """Return a file in which declared numbers, as ``numbers`` names them, have other values, given as text."""
    source = _parsed(text)
    nodes = _nodes(source.body)
    edits = []
    for name, value in values.items():
        node = nodes[name]
        operand = node.operand if isinstance(node, ast.UnaryOp) else node
        typed = source.function(name.partition(".")[0]) or text.encode()[: source.span(node)[0]].endswith(b"tensor(")
        if typed and isinstance(getattr(operand, "value", None), float) and value.lstrip("-").isdigit():
            value += ".0"  # TorchScript and torch.tensor tell int from float
        edits.append((*source.span(nodes[name]), f"({value})" if value.startswith("-") else value))
    return source.edited(*edits).text


def numbers(text: str) -> dict[str, float]:
    """Return the numbers that a file declares: constants by name, ``DICT.key``, ``CLASS.NAME``, ``FUNCTION.NAME``."""
    nodes = _nodes(_parsed(text).body)
    return {name: value for name, node in nodes.items() if (value := _number(node)) is not None}


def _nodes(body: Sequence[ast.stmt], scope: str = "") -> dict[str, ast.expr]:
    """Return the values of constants that are assigned once, and those in dicts, lists and calls, by dotted names.

    What a class or a function assigns once is ``CLASS.NAME`` or ``FUNCTION.NAME``, as a parameter's default is.
    """
    nodes = {f"{scope}{name}": node for name, node in _constants(body)}
    for part in body:
        if isinstance(part, ast.ClassDef):
            nodes.update(_nodes(part.body, f"{scope}{part.name}."))
        elif isinstance(part, ast.FunctionDef):
            inner, defaults = f"{scope}{part.name}.", _defaults(part)
            local = {**{f"{inner}{name}": node for name, node in defaults.items()}, **_nodes(part.body, inner)}
            # a name that is stored again, in a loop or by +=, is no constant
            names = [one.id for one in ast.walk(part) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
            stores = Counter([*names, *defaults])
            first = {full: full.removeprefix(inner).partition(".")[0] for full in local}
            nodes.update({full: node for full, node in local.items() if stores[first[full]] <= 1})
    return nodes


def _defaults(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return the defaults of a function's parameters."""
    x = function.args
    pairs = [*zip([*x.posonlyargs, *x.args][::-1], x.defaults[::-1]), *zip(x.kwonlyargs, x.kw_defaults)]
    return {one.arg: node for one, node in pairs if node is not None}


def _why_unused(source: Source, default: ast.expr, state: Container[str]) -> str:
    """Return why a default of a parameter is never used: all who call the function pass it; empty if it is no such."""
    nodes = [node for statement in source.body for node in ast.walk(statement)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    pairs = [(one, name) for one in functions for name, node in _defaults(one).items() if node is default]
    if not pairs:
        return ""
    function, name = pairs[0]
    places = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    methods = [one for node in nodes if isinstance(node, ast.ClassDef) for one in node.body]
    calls = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") == function.name]
    reads = [node for node in nodes if isinstance(node, ast.Name) and node.id == function.name]
    # who calls it is not known if it is passed on, or if its name is not its alone
    if function in methods or len(reads) > len(calls) or [one.name for one in functions].count(function.name) > 1:
        return ""
    index = places.index(name) if name in places else math.inf
    for call in calls:
        unpacks = any(isinstance(one, ast.Starred) for one in call.args) or any(
            one.arg is None for one in call.keywords
        )
        if unpacks or not (len(call.args) > index or any(one.arg == name for one in call.keywords)):
            return ""
    if function in source.body and ALIASES.get(function.name, function.name) in KINDS:
        return f"it is a key of the state, which {function.name} is given" if name in state else ""
    return f"every call of {function.name} passes {name}" if calls else ""


def _constants(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the values of names that statements assign once, and the parts of such a value by dotted names."""
    body = [*body]
    stores = Counter(_stores(body))
    for name, value, alone in _bindings(body):
        if stores[name] == 1 and alone:
            parts = [*_parts(name, value)]
            # WEIGHTS["a"] = 2.0 changes this part
            kept = [(full, node) for full, node in parts if not any(one in stores for one in _above(full, name))]
            yield from kept if parts else [(name, value)]


def _above(full: str, name: str) -> Iterator[str]:
    """Yield a dotted name and those that it begins with, as far as ``name``, which is left out."""
    while len(full) > len(name):
        yield full
        full = full.rpartition(".")[0]


def _stores(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that code stores or deletes, ``NAME.KEY`` for parts, without what has a scope of its own."""
    for node in nodes:
        if isinstance(node, _SCOPES) or (isinstance(node, ast.AnnAssign) and node.value is None):
            continue
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            keys: list[str] = []
            root: ast.AST = node
            while isinstance(root, (ast.Subscript, ast.Attribute)):
                key = root.attr if isinstance(root, ast.Attribute) else getattr(root.slice, "value", None)
                keys = [] if key is None else [str(key), *keys]  # of a key that is not known, all entries
                root = root.value
            if isinstance(root, ast.Name):
                yield ".".join([root.id, *keys])
        yield from _stores(ast.iter_child_nodes(node))


def _parts(name: str, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the values of a dict, a list or the keywords of a call, and of those in it, by dotted keys."""
    pairs: Iterable[tuple[Any, ast.expr]] = ()
    if isinstance(value, ast.Dict):
        pairs = ((getattr(key, "value", None), one) for key, one in zip(value.keys, value.values))
        pairs = (pair for pair in pairs if isinstance(pair[0], str))
    elif isinstance(value, (ast.List, ast.Tuple)):
        pairs = enumerate(value.elts)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):  # not torch.sum(x, dim=1)
        pairs = ((one.arg, one.value) for one in value.keywords if one.arg)
    for key, one in pairs:
        yield f"{name}.{key}", one
        yield from _parts(f"{name}.{key}", one)


def _bindings(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr, bool]]:
    """Yield the names that statements assign, the value of each, and whether the statement assigns no other to it.

    The value of ``torch.tensor(0.5)`` is its number; ``A, B = 1, 2`` assigns two.
    """
    for statement in body:
        value = getattr(statement, "value", None)
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            pairs = [(target, value) for target in targets]
            if isinstance(targets[0], ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = [*zip(targets[0].elts, value.elts)]
            for target, one in pairs:
                if isinstance(one, ast.Call) and one.args and ast.unparse(one.func) == "torch.tensor":
                    one = one.args[0] if _number(one.args[0]) is not None else one
                if isinstance(target, ast.Name):
                    yield target.id, one, len(targets) == 1


def _number(node: ast.expr) -> float | None:
    """Return the number that an expression writes out; None for any other expression, and for a bool."""
    sign = -1.0 if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else 1.0
    operand = node.operand if isinstance(node, ast.UnaryOp) else node
    value = operand.value if isinstance(operand, ast.Constant) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return sign * float(value) if abs(value) < 1e300 else None
    return None


def _parsed(text: str) -> Source:
    try:
        return Source(text)
    except UnsupportedCode as error:
        raise UserError(f"it {error}") from None


# names


def variant_name(original: str, what: str, taken: Container[str]) -> str:
    """Return a name for a variant that is valid on every system and not taken, in small letters, yet."""
    plain = re.sub(r"_*[^\w.+=-]+_*", "_", what, flags=re.ASCII).strip("_.") or "variant"
    room = MAX_NAME - len(original.encode()) - 8
    plain = plain[: max(room, 12)].rstrip(".")
    name, count = f"{original}.{plain}", 1
    while name.casefold() in taken:
        count += 1
        name = f"{original}.{plain}_{count}"
    return name


def short(value: float) -> str:
    """Return a number for a name: ``0``, ``0.5``, ``1e-05``."""
    return f"{value:.10g}"


# sweeps


def parse_values(name: str, text: Any) -> list[str]:
    """Return the values of ``--sweep NAME=VALUES`` as text. Raises UserError for one that is not a finite number."""
    values = text.split(",") if isinstance(text, str) else text if isinstance(text, Iterable) else [text]
    words = [str(value).strip() for value in values]
    for word in words:
        try:
            valid = math.isfinite(float(word)) and ast.literal_eval(word) is not None  # 007 is no number of a file
        except (ValueError, SyntaxError):
            valid = False
        if not valid:
            raise UserError(f"{SWEEP} {name}={','.join(words)}: {word or 'an empty value'} is not a number")
    if len({float(word) for word in words}) < len(words):
        raise UserError(f"{SWEEP} {name}={','.join(words)}: a value is given twice")
    return words


def label(name: str) -> str:
    """Return the name of a sweep's number in tables: of a key of the trainer's config, the last part."""
    return name.rpartition(".")[2] if name.startswith(TRAIN) else name


def resolve_name(
    name: str, text: str, terms: Sequence[str], keys: Iterable[str] = (), state: Container[str] = ()
) -> tuple[str, bool]:
    """Return the declared number or the term that a sweep's name means, and whether it is a term.

    A declared number comes first: a constant, ``DICT.key``, or a key of ``WEIGHTS`` by itself; the last part of a
    single dotted name comes last. ``keys`` are other names that may have been meant, ``state`` the keys of the state.

    Raises:
        UserError: there is none, and the message names near matches; or it is no number that is written out, or a
            default that is never used.
    """
    source = _parsed(text)
    written, plain = _nodes(source.body), numbers(text)
    # a declared number, or the reason why it is none
    ends = [full for full in written if full.endswith(f".{name}")]
    one = ends if len(ends) == 1 and name not in terms else []
    for full in (name, f"WEIGHTS.{name}", *one):
        if full in written and full not in plain:
            node = written[full]
            raise UserError(f"line {node.lineno}: {full} is {source.code(node)}, not a number that is written out")
        if full in plain:
            why = _why_unused(source, written[full], state)
            if why:
                raise UserError(f"line {written[full].lineno}: {full} is a default that is never used: {why}")
            return full, False
    if name in terms:
        return name, True
    # neither: near matches are among all names that it could have been
    every = dict.fromkeys([*terms, *plain, *keys])
    every.update(dict.fromkeys(full.partition(".")[2] for full in plain if full.startswith("WEIGHTS.")))
    shown = [*plain][:MOST_SHOWN] + ["..."] * (len(plain) > MOST_SHOWN)
    listed = [f"the terms {', '.join(terms)}"] * bool(terms) + [f"the numbers {', '.join(shown)}"] * bool(plain)
    has = f"; there are {' and '.join(listed)}" if listed else "; it has neither terms nor declared numbers"
    raise UserError(f"there is no term or number {name!r}{near_matches(name, every)}{has}")
