"""Dicts in untrusted files, such as ``rewards = {"upright": 2.0}``: plain data, which is read and never run."""

from __future__ import annotations

import ast
import math
from dataclasses import replace

from envcoder_bench.shaping.contract import Candidate, CandidateError
from envcoder_bench.shaping.kinds import ALIASES, OBSERVATION, REWARD, SECTION_TYPES, SHAPER_TYPES, TERMINAL
from envcoder_bench.shaping.loading import Complete, load_candidate
from envcoder_bench.shaping.source import Source, UnsupportedCode, bound

MAX_NUMBER = 1e6
MAX_INT = 64  # of attributes and parameters, some of which are lengths of buffers


Loaded = Candidate | CandidateError


def load_dicts(name: str, source: str, file: str, seed: int, complete: Complete | None) -> Loaded | None:
    """Load the dicts of an untrusted file, without its functions.

    Args:
        complete: the task's, see ``load_candidate``.

    Returns:
        A candidate, or what is wrong with a dict; None if the file has no dicts, does not parse or fits no such task.
    """
    if complete is None:
        return None
    try:
        text, functions = dicts_alone(source, file), dict.fromkeys(functions_in(source))
        if not text:
            return None
        return load_candidate(name, text, file, seed, complete=lambda own, _: complete({**own, **functions}, source))
    except CandidateError as error:
        return error
    except UnsupportedCode:  # its check in the jail says why
        return None


def needs_jail(dicts: Loaded | None, source: str) -> bool:
    """Return whether an untrusted file has code beside its dicts, or in place of them."""
    return dicts is None or (isinstance(dicts, Candidate) and bool(functions_in(source)))


def joined(dicts: Loaded | None, examined: Loaded | None, source: str) -> Loaded:
    """Return a candidate with the dicts of a file and the functions that the jail examined; or the first fault."""
    if isinstance(dicts, Candidate) and isinstance(examined, Candidate):
        functions = {**dicts.functions, **examined.functions}
        return replace(examined, functions=functions, patches=dicts.patches)
    result = dicts if examined is None else examined
    assert result is not None
    return replace(result, source=source) if isinstance(result, Candidate) else result


def functions_in(source: str) -> list[str]:
    """Return the names of the shaping functions that a file defines."""
    definitions = Source(source).definitions
    return [name for name in (*SHAPER_TYPES, *ALIASES) if name in definitions]


def dicts_alone(source: str, file: str) -> str:
    """Return a file with blank lines in place of all but its dicts, which are literals; empty if it has none.

    Raises:
        CandidateError: a dict is not plain data, or something else changes it.
        UnsupportedCode: the file does not parse.
    """
    parsed = Source(source)
    sections = [name for name in SECTION_TYPES if name in parsed.definitions]
    if not sections:
        return ""
    statements = [s for s in parsed.body if not set(sections).isdisjoint(bound(s))]
    assigned = {id(s.targets[0]) for s in statements if isinstance(s, ast.Assign)}
    for node in ast.walk(ast.Module(parsed.body, [])):
        if isinstance(node, ast.Name) and node.id in sections and id(node) not in assigned:
            message = f"untrusted code may not use {node.id}: write all of it in the dict"
            raise CandidateError(message, file, node.lineno)
    text = ""
    for statement in statements:
        _check(statement, file)
        text += "\n" * (statement.lineno - 1 - text.count("\n")) + parsed.code(statement) + "\n"
    for statement in Source(text).body:  # what is run, whatever the lines above have cut out
        _check(statement, file)
    return text


def _check(statement: ast.stmt, file: str) -> None:
    """Raise CandidateError unless a statement binds one section to a literal dict."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if not isinstance(target, ast.Name) or target.id not in SECTION_TYPES:
        name = next((name for name in bound(statement) if name in SECTION_TYPES), "a dict")
        raise CandidateError(f"untrusted code must bind {name} as {name} = {{...}}", file, statement.lineno)
    _check_value(statement.value, target.id, (), file)  # type: ignore[attr-defined]


def _check_value(node: ast.expr, section: str, keys: tuple[str, ...], file: str) -> None:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                raise CandidateError(f"the keys of {section} must be names in quotes", file, node.lineno)
            _check_value(value, section, (*keys, key.value), file)
        return
    # a list of numbers, such as a range
    if isinstance(node, (ast.Tuple, ast.List)) and len(keys) > 1:
        for value in node.elts:
            _check_value(value, section, keys, file)
        return
    # a number, perhaps with a sign
    number = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)) else node
    value = number.value if isinstance(number, ast.Constant) else ""
    where = section + "".join(f"[{key!r}]" for key in keys)
    if not keys or not (isinstance(value, (int, float)) or (value is None and number is node)):
        takes = "a number, None or a dict of numbers" if keys else "a dict"
        function = SECTION_TYPES[section]
        new = function in (REWARD, OBSERVATION, TERMINAL)
        remedy = f"; write a new term in {function}(state_dict)" if new else ""
        raise CandidateError(f"untrusted code: {where} must be {takes}{remedy}", file, node.lineno)
    # finite, and within the limit of its kind
    limit = MAX_INT if isinstance(value, int) and len(keys) > 1 else MAX_NUMBER
    if value is not None and not (math.isfinite(value) and abs(value) <= limit):
        raise CandidateError(f"untrusted code: {where} must be at most {limit:,.0f}, not {value}", file, node.lineno)
