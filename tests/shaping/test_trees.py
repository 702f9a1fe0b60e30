"""Walks of syntax trees, against those of Python's ast."""

import ast
from pathlib import Path

import pytest

from envcoder_bench.shaping import trees

MARKS = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
FILES = sorted(Path(trees.__file__).parent.glob("*.py"))
TRICKY = """
x: int = -1 if not 1 + 2 < 3 else None
async def f(a, /, b=[*"c"], *args, d=..., **kw) -> "g":
    async with open(b"1") as (y, z[0]), q: del y.k
    match a:
        case {"u": [1.5, *_]} | str() as w: yield (lambda: 2j)(), f"{a!r:>{b}}"
class C(B, metaclass=M):
    @property
    def p(self): nonlocal_ = {**{1: {2}}}; return [i for i in range(3) if i and i or not i]
"""


@pytest.mark.parametrize(
    "text", [*(file.read_text() for file in FILES), TRICKY, ""], ids=[*map(str, range(len(FILES))), "tricky", "empty"]
)
def test_walk_is_that_of_ast_without_marks(text):
    tree = ast.parse(text)
    assert trees.walk(tree) == [node for node in ast.walk(tree) if not isinstance(node, MARKS)]
    for node in trees.walk(tree):
        assert trees.children(node) == [x for x in ast.iter_child_nodes(node) if not isinstance(x, MARKS)]
