"""What goes over the pipes: JSON with its length in front, read as data from nobody one trusts."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

MAX_ANSWER = 6 << 20  # bytes: a program of 10,000 numbers takes 400 KiB
_LENGTH = struct.Struct("!I")
_MOST_DIGITS = 40


class Malformed(ValueError):
    """An answer that no honest process gives; the message says why."""


def pack(value: Any) -> bytes:
    """JSON with its length in front."""
    text = json.dumps(value, separators=(",", ":")).encode("ascii")
    return _LENGTH.pack(len(text)) + text


def write_all(fd: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


def read_to_end(fd: int) -> bytes:
    parts = []
    while True:
        parts.append(os.read(fd, 1 << 16))
        if not parts[-1]:
            return b"".join(parts)


def unpack(content: bytes) -> Any:
    """The value of ``pack``.

    Raises:
        Malformed: it is none, or has numbers that nobody needs.
    """
    if len(content) < _LENGTH.size or _LENGTH.unpack_from(content)[0] != len(content) - _LENGTH.size:
        raise Malformed("its length is not what it says")
    if len(content) > MAX_ANSWER:
        raise Malformed(f"it has more than {MAX_ANSWER} bytes")
    try:
        text = content[_LENGTH.size :].decode("ascii")
        return json.loads(text, parse_int=_whole, parse_float=_real)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"it is no JSON: {type(error).__name__}") from None


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError("too many digits")
    return int(digits)


def _real(digits: str) -> float:
    if len(digits) > _MOST_DIGITS:
        raise ValueError("too many digits")
    return float(digits)
