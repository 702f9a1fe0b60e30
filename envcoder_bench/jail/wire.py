"""The format of answers: JSON preceded by its length, read as untrusted data."""

import json
import os
import struct
from typing import Any

MAX_CHARACTERS = 100_000  # longest file
MAX_ANSWER = 6 << 20  # bytes: a program of 10,000 numbers takes 400 KiB
_LENGTH = struct.Struct("!I")
_MAX_DIGITS = 40


class Malformed(ValueError):
    """An answer that the examiner would not give; the message is the reason."""


def pack(value: Any) -> bytes:
    """Return a value as JSON, preceded by its length."""
    text = json.dumps(value, separators=(",", ":")).encode("ascii")
    return _LENGTH.pack(len(text)) + text


def write_all(fd: int, content: bytes) -> None:
    """Write all bytes to a descriptor."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_to_end(fd: int) -> bytes:
    """Read a descriptor until its end."""
    chunks = []
    while True:
        chunks.append(os.read(fd, 1 << 16))
        if not chunks[-1]:
            return b"".join(chunks)


def unpack(content: bytes) -> Any:
    """Return the value that was given to ``pack``.

    Raises:
        Malformed: if the content is not valid or has numbers of more than 40 digits.
    """
    if len(content) < _LENGTH.size or _LENGTH.unpack_from(content)[0] != len(content) - _LENGTH.size:
        raise Malformed("wrong length")
    if len(content) > MAX_ANSWER:
        raise Malformed(f"more than {MAX_ANSWER} bytes")
    try:
        text = content[_LENGTH.size :].decode("ascii")
        return json.loads(text, parse_int=_int, parse_float=_float)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not valid JSON: {type(error).__name__}") from None


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("too many digits")
    return int(digits)


def _float(digits: str) -> float:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("too many digits")
    return float(digits)
