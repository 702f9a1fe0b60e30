"""Dicts in untrusted files, such as ``rewards = {"upright": 2.0}``: plain data, which is read and never run.

The text is parsed in the jail (``read_dicts``); the trainer gets numbers, which it checks once more (``valid_dict``).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from envcoder_bench.shaping.contract import Candidate, CandidateError, Dicts, sections_of, with_patches
from envcoder_bench.shaping.kinds import ALIASES, OBSERVATION, REWARD, SECTION_TYPES, SHAPER_TYPES, TERMINAL
from envcoder_bench.shaping.loading import Complete, load_candidate, parse
from envcoder_bench.shaping.source import Source, UnsupportedCode, bound

MAX_NUMBER = 1e6
MAX_INT = 64  # largest integer of an attribute or parameter, some of which are lengths of buffers
MAX_KEY = 64  # characters
MAX_NESTED = 8  # depth of dicts and lists within each other


def read_dicts(source: str, file: str) -> Dicts | None:
    """Return the dicts of a file, which is not run; None if it has none.

    Raises:
        CandidateError: the file does not parse, a dict is not plain data, or something else changes it.
    """
    tree = parse(source, file)
    try:
        parsed = Source(source)
    except UnsupportedCode as error:
        raise CandidateError(str(error), file) from None
    sections = [name for name in SECTION_TYPES if name in parsed.definitions]
    if not sections:
        return None
    statements = [s for s in parsed.body if not set(sections).isdisjoint(bound(s))]
    assigned = {id(s.targets[0]) for s in statements if isinstance(s, ast.Assign)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in sections and id(node) not in assigned:
            message, remedy = f"untrusted code may not use {node.id}", "write all of it in the dict"
            raise CandidateError(message, file, node.lineno, remedy=remedy)
    values: dict[str, Any] = {}
    lines: dict[str, dict[str, int]] = {}
    for statement in statements:
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if not isinstance(target, ast.Name) or target.id not in SECTION_TYPES:
            name = next((name for name in bound(statement) if name in SECTION_TYPES), "a dict")
            raise CandidateError(f"untrusted code must bind {name} as {name} = {{...}}", file, statement.lineno)
        lines[target.id] = {"": statement.lineno}
        node = statement.value  # type: ignore[attr-defined]
        values[target.id] = _value(node, target.id, (), file, lines[target.id])
    functions = tuple(name for name in (*SHAPER_TYPES, *ALIASES) if name in parsed.definitions)
    return Dicts(values, lines, functions)


def _value(node: ast.expr, section: str, keys: tuple[str, ...], file: str, lines: dict[str, int]) -> Any:
    """Return the value of an expression in a dict; note the lines of keys. Raises CandidateError."""
    where = section + "".join(f"[{key!r}]" for key in keys)
    if len(keys) > MAX_NESTED:
        raise CandidateError(f"untrusted code: {section} has dicts in dicts, more than {MAX_NESTED}", file, node.lineno)
    if isinstance(node, ast.Dict):
        value: dict[str, Any] = {}
        for key, item in zip(node.keys, node.values):
            name = key.value if isinstance(key, ast.Constant) else None
            if key is None or not isinstance(name, str) or not _is_key(name):
                message = f"the keys of {section} must be names in quotes, of up to {MAX_KEY} printable characters"
                raise CandidateError(message, file, node.lineno)
            lines.setdefault(name, key.lineno)
            value[name] = _value(item, section, (*keys, name), file, lines)
        return value
    # a list of numbers, such as a range
    if isinstance(node, (ast.Tuple, ast.List)) and len(keys) > 1:
        return tuple(_value(item, section, (*keys, str(k)), file, lines) for k, item in enumerate(node.elts))
    # a number, perhaps with a sign
    sign = node.op if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)) else None
    number = node.operand if isinstance(node, ast.UnaryOp) and sign is not None else node
    content: Any = number.value if isinstance(number, ast.Constant) else ""
    if not keys or not (isinstance(content, (int, float)) or (content is None and sign is None)):
        takes = "a number, None or a dict of numbers" if keys else "a dict"
        function = SECTION_TYPES[section]
        new = function in (REWARD, OBSERVATION, TERMINAL)
        remedy = f"write a new term in {function}(state_dict)" if new else ""
        raise CandidateError(f"untrusted code: {where} must be {takes}", file, node.lineno, remedy=remedy)
    if not _is_number(content, len(keys)):
        message = f"untrusted code: {where} must be at most {_limit(content, len(keys)):,.0f}, not {content}"
        raise CandidateError(message, file, node.lineno)
    return content if content is None or not isinstance(sign, ast.USub) else -content


def valid_dict(value: object, depth: int = 0) -> bool:
    """Return whether a section's dict in an answer is what ``read_dicts`` returns, with lists for tuples."""
    if depth > MAX_NESTED:
        return False
    if isinstance(value, dict):
        return all(_is_key(key) and valid_dict(item, depth + 1) for key, item in value.items())
    if isinstance(value, list):
        return depth > 1 and all(valid_dict(item, depth + 1) for item in value)
    return depth > 0 and type(value) in (bool, int, float, type(None)) and _is_number(value, depth)


def _is_key(key: object) -> bool:
    return isinstance(key, str) and 0 < len(key) <= MAX_KEY and key.isprintable()


def _limit(value: Any, depth: int) -> float:
    return MAX_INT if isinstance(value, int) and depth > 1 else MAX_NUMBER


def _is_number(value: Any, depth: int) -> bool:
    """Return whether a value is None, or finite and within the limit of its kind."""
    return value is None or -_limit(value, depth) <= value <= _limit(value, depth)


def with_dicts(candidate: Candidate, complete: Complete, seed: int) -> Candidate:
    """Return a candidate of the jail with the functions and patches that a task makes of its dicts.

    Args:
        complete: the task's, see ``load_candidate``.

    Raises:
        CandidateError: a dict does not fit the task.
    """
    dicts, file = candidate.dicts, candidate.file
    if dicts is None:
        return candidate
    module: Mapping[str, Any] = {**dicts.values, **dict.fromkeys(dicts.functions)}
    first = min(lines[""] for lines in dicts.lines.values())
    try:
        added = load_candidate(candidate.name, "", file, seed, complete=lambda *_: complete(module, candidate.source))
    except CandidateError as error:
        section, key = (str(getattr(error.__cause__, name, "")) for name in ("section", "key"))
        lines = dicts.lines.get(section, {})
        line = lines.get(key, lines.get("", first))
        raise CandidateError.of(replace(error.fault, file=file, line=line)) from error
    functions = {name: replace(function, line=first) for name, function in added.functions.items()}
    functions.update(candidate.functions)
    sections = sections_of(added.definitions)
    return replace(candidate, definitions=with_patches(functions, sections, lambda name: dicts.lines[name][""], file))
