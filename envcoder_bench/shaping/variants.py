"""Variants of a candidate, made from its text: with other weights of its reward terms or other constants, or without
one of its functions.

The text of the file stays as it is; ``REWARD_FACTORS = {...}`` or a ``del`` follows it. Factors are constants of the
recorded reward, so that all variants share one kernel (``compile/terms.py``). A run notes in a file what its variants
are.
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
from envcoder_bench.shaping.contract import CandidateError
from envcoder_bench.shaping.discovery import MAX_NAME
from envcoder_bench.shaping.kinds import ACTION_TYPES, ALIASES, KINDS, REWARD
from envcoder_bench.shaping.scan import parse
from envcoder_bench.shaping.source import ACTION_DIM, REWARD_FACTORS, Source, UnsupportedCode, bound, loaded, unused

TERMS, SWEEP = "--terms", "--sweep"
TRAIN = "train."  # names of a sweep that are keys of the trainer's config
FACTORS = (0.0, 0.5, 2.0)  # --terms leaves each term out, halves and doubles it
MAX_FACTOR = 1e30
MOST_SHOWN = 20  # numbers in a message
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.comprehension)


@dataclass(frozen=True)
class Variant:
    """The change that makes a variant of its original.

    Attributes:
        original: the name of the candidate that it was made from.
        flag: TERMS or SWEEP.
        term, factor: a reward term that is scaled, and the factor.
        weight: the weight of this term in the original; 0 if it is not one number.
        function: the function that was left out.
        values, usual: the values of a sweep by name, and those of the original.
        points: the value of --sweep_points; 0 for the whole grid.
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

    @property
    def trainer_numbers(self) -> dict[str, float]:
        """The numbers of the trainer that are not the original's: its text does not have them."""
        return {name: x for name, x in self.values.items() if name.startswith(TRAIN) and x != self.usual.get(name)}


# the file in which a run notes its variants


def pack_variants(variants: Mapping[str, Variant]) -> str:
    """Return variants by name as JSON, without the fields that have their default."""
    defaults = asdict(Variant("", ""))
    notes = {}
    for name, variant in variants.items():
        notes[name] = {key: value for key, value in asdict(variant).items() if value != defaults[key]}
    return json.dumps(notes, indent=1)


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
    # the variants of one run have one flag, and each original is swept over the same names
    flags = {(variant.flag, variant.points) for variant in variants.values()}
    originals = {variant.original for variant in variants.values()}
    sweeps = {(variant.original, tuple(variant.values), tuple(variant.usual.items())) for variant in variants.values()}
    if len(flags) != 1 or len(sweeps) > len(originals):
        raise ValueError("its variants are not those of one run")
    for name, variant in variants.items():
        is_sweep = variant.values.keys() == variant.usual.keys() != set()
        has_one_change = [bool(variant.term), bool(variant.function), is_sweep].count(True) == 1
        flag_fits = variant.flag == (SWEEP if is_sweep else TERMS)
        in_run = name in overrides and variant.original in overrides and variant.original not in variants
        if not (has_one_change and flag_fits and in_run):
            raise ValueError(f"{name!r} is not a variant of a candidate of this run")
        if variant.trainer_numbers != dict(overrides[name]):
            raise ValueError(f"{name!r} has other values of the trainer's keys in config.yaml")
        words = (variant.term, variant.function, *variant.values)
        numbers = (variant.factor, variant.weight, *variant.values.values(), *variant.usual.values())
        if not all(map(str.isprintable, words)) or not all(map(math.isfinite, numbers)):
            raise ValueError(f"{name!r} has a name or a number that a run does not make")
    return variants


def with_settings(text: str, variant: Variant) -> str:
    """Return a text with a comment that names the trainer's numbers of a variant, which the text cannot set."""
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
    words = []
    for name, swept in values.items():
        words += [SWEEP, f"{name}={','.join(map(short, sorted(swept)))}"]
    points = max((variant.points for variant in variants.values()), default=0)
    return words + (["--sweep_points", str(points)] if points else [])


# texts


def with_factors(text: str, factors: Mapping[str, float]) -> str:
    """Return a file whose reward has these factors on its terms, beside those that it already has."""
    before = term_factors(text)
    product = {**before, **{name: before.get(name, 1.0) * float(x) for name, x in factors.items()}}
    items = ", ".join(f"{name!r}: {x!r}" for name, x in product.items())
    return f"{text.rstrip()}\n\n{REWARD_FACTORS} = {{{items}}}\n"


def term_factors(text: str, file: str = "") -> dict[str, float]:
    """Return the factors that a file declares for its reward's terms; the text is not run.

    Raises CandidateError if they are not written out as a dict of finite numbers by name.
    """
    if REWARD_FACTORS not in text:
        return {}
    try:
        statements = [statement for statement in parse(text).body if REWARD_FACTORS in _names(statement)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # its check says why
        return {}
    if not statements or isinstance(statements[-1], ast.Delete):
        return {}
    statement = statements[-1]
    try:
        factors = ast.literal_eval(getattr(statement, "value", None) or "")
    except (ValueError, SyntaxError, TypeError):
        factors = None
    if not isinstance(factors, dict) or not all(isinstance(k, str) and _is_factor(x) for k, x in factors.items()):
        message = f"{REWARD_FACTORS} must be a dict of numbers by the names of terms, e.g. {{'effort': 0.5}}"
        raise CandidateError(message, file, statement.lineno)
    return {name: float(x) for name, x in factors.items()}


def _names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement binds or deletes."""
    deleted = statement.targets if isinstance(statement, ast.Delete) else ()
    return [*bound(statement), *(x.id for x in deleted if isinstance(x, ast.Name))]


def _is_factor(value: object) -> bool:
    return type(value) in (int, float) and abs(value) <= MAX_FACTOR  # type: ignore[arg-type]


def without_function(text: str, functions: Iterable[str]) -> str:
    """Return a file without the functions of these names; the baseline's replace them."""
    names, source = [*functions], _parsed(text)
    if any(name in ACTION_TYPES for name in names) and ACTION_DIM in source.definitions:
        names.append(ACTION_DIM)
    if REWARD in names and REWARD_FACTORS in source.definitions:
        names.append(REWARD_FACTORS)
    called = [name for name in names if name in loaded(source)]
    if called:  # the others call it: it stays, under another name
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
        is_typed = source.function(name.partition(".")[0]) or text.encode()[: source.span(node)[0]].endswith(b"tensor(")
        if is_typed and isinstance(getattr(operand, "value", None), float) and value.lstrip("-").isdigit():
            value += ".0"  # an integer would change the type in TorchScript and in torch.tensor
        edits.append((*source.span(node), f"({value})" if value.startswith("-") else value))
    return source.edited(*edits).text


def numbers(text: str) -> dict[str, float]:
    """Return the numbers that a file declares: constants by name, ``DICT.key``, ``CLASS.NAME``, ``FUNCTION.NAME``."""
    nodes = _nodes(_parsed(text).body)
    return {name: value for name, node in nodes.items() if (value := _number(node)) is not None}


def _nodes(body: Sequence[ast.stmt], scope: str = "") -> dict[str, ast.expr]:
    """Return the values of constants that are assigned once, and those in dicts, lists and calls, by dotted names.

    Constants of a class or a function are ``CLASS.NAME`` and ``FUNCTION.NAME``; a parameter's default is one, too.
    """
    nodes = {f"{scope}{name}": node for name, node in _constants(body)}
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            nodes.update(_nodes(statement.body, f"{scope}{statement.name}."))
        elif isinstance(statement, ast.FunctionDef):
            nodes.update(_function_nodes(statement, f"{scope}{statement.name}."))
    return nodes


def _function_nodes(function: ast.FunctionDef, scope: str) -> dict[str, ast.expr]:
    """Return the values of a function's defaults and constants by dotted names that begin with ``scope``."""
    defaults = _defaults(function)
    nodes = {f"{scope}{name}": node for name, node in defaults.items()}
    nodes.update(_nodes(function.body, scope))
    # a name that is stored again, in a loop or by +=, is not a constant
    stores = Counter(defaults.keys())
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores[node.id] += 1
    constants = {}
    for dotted, node in nodes.items():
        name = dotted.removeprefix(scope).partition(".")[0]
        if stores[name] <= 1:
            constants[dotted] = node
    return constants


def _defaults(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return the defaults of a function's parameters."""
    parameters = function.args
    positional = [*parameters.posonlyargs, *parameters.args]
    pairs = [*zip(positional[::-1], parameters.defaults[::-1]), *zip(parameters.kwonlyargs, parameters.kw_defaults)]
    return {parameter.arg: default for parameter, default in pairs if default is not None}


def _why_unused(source: Source, default: ast.expr, state: Container[str]) -> str:
    """Return why a parameter's default is never used: every call passes the parameter. Empty if it may be used."""
    nodes = [node for statement in source.body for node in ast.walk(statement)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    parameters = [(function, name) for function in functions for name, x in _defaults(function).items() if x is default]
    if not parameters:
        return ""
    function, name = parameters[0]
    # some calls are unknown if the function is a method or passed on, or if another function has its name
    methods = [statement for node in nodes if isinstance(node, ast.ClassDef) for statement in node.body]
    namesakes = [node for node in functions if node.name == function.name]
    calls = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") == function.name]
    reads = [node for node in nodes if isinstance(node, ast.Name) and node.id == function.name]
    if function in methods or len(namesakes) > 1 or len(reads) > len(calls):
        return ""
    positional = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    index = positional.index(name) if name in positional else math.inf
    if not all(_passes(call, name, index) for call in calls):
        return ""
    if function in source.body and ALIASES.get(function.name, function.name) in KINDS:
        return f"it is a key of the state, which {function.name} is given" if name in state else ""
    return f"every call of {function.name} passes {name}" if calls else ""


def _passes(call: ast.Call, name: str, index: float) -> bool:
    """Return whether a call certainly passes the parameter ``name``, the ``index``-th positional one."""
    keywords = [keyword.arg for keyword in call.keywords]
    if None in keywords or any(isinstance(argument, ast.Starred) for argument in call.args):
        return False  # it unpacks unknown arguments
    return len(call.args) > index or name in keywords


def _constants(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the values of names that statements assign once, and the parts of such a value by dotted names."""
    body = [*body]
    stores = Counter(_stores(body))
    for name, value, single_target in _bindings(body):
        if stores[name] != 1 or not single_target:
            continue
        parts = [*_parts(name, value)]
        if not parts:
            yield name, value
        for dotted, node in parts:
            # WEIGHTS["a"] = 2.0 changes this part
            if not any(prefix in stores for prefix in _prefixes(dotted, name)):
                yield dotted, node


def _prefixes(dotted: str, name: str) -> Iterator[str]:
    """Yield a dotted name and its prefixes that are longer than ``name``: ``a.b.c`` and ``a.b`` for ``a``."""
    while len(dotted) > len(name):
        yield dotted
        dotted = dotted.rpartition(".")[0]


def _stores(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that code stores or deletes, ``NAME.KEY`` for parts, except in functions and other scopes."""
    for node in nodes:
        if isinstance(node, _SCOPES) or (isinstance(node, ast.AnnAssign) and node.value is None):
            continue
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            keys: list[str] = []
            root: ast.AST = node
            while isinstance(root, (ast.Subscript, ast.Attribute)):
                key = root.attr if isinstance(root, ast.Attribute) else getattr(root.slice, "value", None)
                keys = [] if key is None else [str(key), *keys]  # an unknown key stands for all entries
                root = root.value
            if isinstance(root, ast.Name):
                yield ".".join([root.id, *keys])
        yield from _stores(ast.iter_child_nodes(node))


def _parts(name: str, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the values of a dict, a list or the keywords of a call, and of those in it, by dotted keys."""
    pairs: Iterable[tuple[Any, ast.expr]] = ()
    if isinstance(value, ast.Dict):
        pairs = ((getattr(key, "value", None), item) for key, item in zip(value.keys, value.values))
        pairs = (pair for pair in pairs if isinstance(pair[0], str))
    elif isinstance(value, (ast.List, ast.Tuple)):
        pairs = enumerate(value.elts)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):  # not torch.sum(x, dim=1)
        pairs = ((keyword.arg, keyword.value) for keyword in value.keywords if keyword.arg)
    for key, item in pairs:
        yield f"{name}.{key}", item
        yield from _parts(f"{name}.{key}", item)


def _bindings(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr, bool]]:
    """Yield the names that statements assign, with their values, and whether the statement has a single target.

    The value of ``torch.tensor(0.5)`` is its number. ``A, B = 1, 2`` has a single target, ``A = B = 1`` has two.
    """
    for statement in body:
        value = getattr(statement, "value", None)
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            pairs = [(target, value) for target in targets]
            if isinstance(targets[0], ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = [*zip(targets[0].elts, value.elts)]
            for target, assigned in pairs:
                if isinstance(assigned, ast.Call) and assigned.args and ast.unparse(assigned.func) == "torch.tensor":
                    assigned = assigned.args[0] if _number(assigned.args[0]) is not None else assigned
                if isinstance(target, ast.Name):
                    yield target.id, assigned, len(targets) == 1


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
    """Return a name for a variant that is valid on every system and not in ``taken``, names in small letters."""
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
            valid = math.isfinite(float(word)) and ast.literal_eval(word) is not None  # Python cannot read 007
        except (ValueError, SyntaxError):
            valid = False
        if not valid:
            raise UserError(f"{SWEEP} {name}={','.join(words)}: {word or 'an empty value'} is not a number")
    if len({float(word) for word in words}) < len(words):
        raise UserError(f"{SWEEP} {name}={','.join(words)}: a value is given twice")
    return words


def label(name: str) -> str:
    """Return the name of a sweep's number in tables; a key of the trainer's config without the words before it."""
    return name.rpartition(".")[2] if name.startswith(TRAIN) else name


def resolve_name(
    name: str, text: str, terms: Sequence[str], keys: Iterable[str] = (), state: Container[str] = ()
) -> tuple[str, bool]:
    """Return the declared number or the term that a sweep's name means, and whether it is a term.

    A declared number comes first: a constant, ``DICT.key``, or a key of ``WEIGHTS`` by itself. Then comes the end of a
    dotted name, if only one ends so, then a term. ``keys`` are other names that may have been meant, ``state`` the keys
    of the state.

    Raises:
        UserError: the name is unknown, and the message has near matches; or its value is not a number that is written
            out, or it is a default that is never used.
    """
    source = _parsed(text)
    nodes, values = _nodes(source.body), numbers(text)
    # a declared number
    ends = [dotted for dotted in nodes if dotted.endswith(f".{name}")]
    unique_end = ends if len(ends) == 1 and name not in terms else []
    for dotted in (name, f"WEIGHTS.{name}", *unique_end):
        if dotted not in nodes:
            continue
        node = nodes[dotted]
        if dotted not in values:
            raise UserError(f"line {node.lineno}: {dotted} is {source.code(node)}, not a number that is written out")
        why = _why_unused(source, node, state)
        if why:
            raise UserError(f"line {node.lineno}: {dotted} is a default that is never used: {why}")
        return dotted, False
    if name in terms:
        return name, True
    # an unknown name: near matches are among all names that it could have been
    possible = dict.fromkeys([*terms, *values, *keys])
    possible.update(dict.fromkeys(dotted.partition(".")[2] for dotted in values if dotted.startswith("WEIGHTS.")))
    choices = [f"the terms {', '.join(terms)}"] if terms else []
    if values:
        first = [*values][:MOST_SHOWN] + ["..."] * (len(values) > MOST_SHOWN)
        choices.append(f"the numbers {', '.join(first)}")
    has = f"; there are {' and '.join(choices)}" if choices else "; it has neither terms nor declared numbers"
    raise UserError(f"unknown term or number {name!r}{near_matches(name, possible)}{has}")
