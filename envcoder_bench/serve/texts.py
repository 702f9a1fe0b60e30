"""Answers as short JSON: numbers with few digits, long texts cut, and what does not fit left out."""

import json
import math
from collections.abc import Mapping
from typing import Any

from envcoder_bench.core.errors import causes
from envcoder_bench.core.plain_text import one_line
from envcoder_bench.shaping.contract import Fault

LIMIT = 2000  # bytes of an answer
LONGEST = (400, 200, 100, 60)  # characters of a text, the first that fits
FEWEST_NAMES = 8  # of a list that gives way first


def fault_text(fault: Fault) -> dict[str, Any]:
    """Return a fault as data: message, file, line, advice, without those that are not known."""
    values = {"message": fault.message, "file": fault.file, "line": fault.line, "advice": fault.remedy}
    return {key: value for key, value in values.items() if value}


def error_text(error: BaseException) -> dict[str, Any]:
    """Return an error as data, see ``fault_text``."""
    fault = next((cause.fault for cause in causes(error) if isinstance(getattr(cause, "fault", None), Fault)), None)  # pyright: ignore[reportAttributeAccessIssue]
    if fault is not None:
        return fault_text(fault)
    reason = getattr(error, "reason", "") or one_line(error) or type(error).__name__
    values = {"message": one_line(reason), "file": str(getattr(error, "file", None) or "")}
    values["advice"] = getattr(error, "advice", "")
    return {key: value for key, value in values.items() if value}


def short_json(answer: Mapping[str, Any]) -> str:
    """Return an answer as JSON of at most LIMIT bytes.

    Names give way first, then the ends of texts, then the last entries of the longest list; paths are never cut.
    """
    left = {key: list(value) if isinstance(value, (list, tuple)) else value for key, value in answer.items()}
    names = [value for value in left.values() if isinstance(value, list) and all(isinstance(x, str) for x in value)]
    dropped, text = 0, _dump(left, LONGEST[0])
    while len(text.encode()) > LIMIT and (most := max(names, key=len, default=[]))[FEWEST_NAMES:]:
        most.pop()
        dropped += 1
        text = _dump({**left, "left_out": dropped}, LONGEST[0])
    more = {"left_out": dropped} if dropped else {}
    for longest in LONGEST:
        text = _dump({**left, **more}, longest)
        if len(text.encode()) <= LIMIT:
            return text
    while len(text.encode()) > LIMIT:
        lists = [value for value in left.values() if isinstance(value, list) and value]
        if not lists:
            return json.dumps({"message": "the answer is too long", "more": answer.get("more", "")})[:LIMIT]
        max(lists, key=lambda value: len(_dump(value, LONGEST[-1]))).pop()
        dropped += 1
        text = _dump({**left, "left_out": dropped}, LONGEST[-1])
    return text


def _dump(value: Any, longest: int) -> str:
    return json.dumps(_plain(value, longest), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: Any, longest: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.3g}") if math.isfinite(value) else None
    if isinstance(value, str):
        text = one_line(value)
        longest = LONGEST[0] if text.startswith("/") and " " not in text else longest
        return text if len(text) <= longest else f"{text[: longest - 3]}..."
    if isinstance(value, Mapping):
        return {str(key): _plain(each, longest) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, longest) for each in value]
    return value if value is None or isinstance(value, (bool, int)) else one_line(value)[:longest]
