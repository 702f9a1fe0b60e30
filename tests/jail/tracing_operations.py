"""Nodes of every operation with arguments of every kind, most of them invalid."""

import itertools
from collections.abc import Iterator
from typing import Any

KINDS = ("f32", "f64", "i64", "i32", "u8", "b")
Nodes = list[list[Any]]


def every_node(op: str) -> Iterator[Nodes]:
    """Yield programs that end in a node of ``op``, with up to two arguments of all kinds, or three of a select."""
    for kind in KINDS:
        if op == "load":
            yield [[op, kind, [], 0, "progress_buf" if kind == "i64" else "dof_pos", 0]]
            continue
        for count in (3,) if op == "select" else range(3):
            for kinds in itertools.product(KINDS, repeat=count):
                if len(set(kinds)) > 2:
                    continue
                arguments: Nodes = [["const", own, [], 1, "", 0] for own in kinds]
                yield [*arguments, [op, kind, list(range(count)), 0, "", 0]]
