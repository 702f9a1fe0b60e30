"""Candidate files and replies that are odd in one way each; a run or a search treats each as one casualty at most."""

BIG = "9" * 400


def reward(value="0.5 * x[:, 0]", head="", before=""):
    """Return a file whose reward has two terms: ``head`` runs at import, ``before`` in the function."""
    return f"""{head}
def compute_reward(state_dict):
    x = state_dict["dof_pos"]
    {before}
    a = {value}
    b = 0.5 * x[:, 1]
    terms = {{"a": a, "b": b}}
    return sum(terms.values()), terms
"""


def _nested(keyword, levels, body):
    return "".join(f"{' ' * k}{keyword}\n" for k in range(levels)) + " " * levels + body


# texts that are hard to read: numbers, depth, characters, names
TEXTS = {
    "number of 400 digits": reward(f"{BIG} * x[:, 0]"),
    "ratio of numbers beyond float": reward(f"{BIG} / {BIG[1:]} * x[:, 0]"),
    "hex of 4,300 digits": reward(f"0x{'f' * 4300} / 0x{'e' * 4300} * x[:, 0]"),
    "number of 5,000 digits": reward(f"{'9' * 5000} * x[:, 0]"),
    "float beyond float": reward("1e999 * x[:, 0]"),
    "declared number of 400 digits": reward("W * x[:, 0]", f"W = {BIG}"),
    "default of 400 digits": f"def compute_reward(dof_pos, w={BIG}):\n    return w * dof_pos[:, 0]\n",
    "chain of 1,300 numbers": reward(" + ".join(["1.0"] * 1300) + " + x[:, 0]"),
    "sum of 2,500 terms": reward(" + ".join(["x[:, 0]"] * 2500)),
    "chain of 5,000 numbers": reward("W * x[:, 0]", "W = " + " + ".join(["1"] * 5000)),
    "5,000 signs": reward("-" * 5000 + "x[:, 0]"),
    "2,800 elif": reward(before="if 0:\n        pass\n" + "    elif 1 == 2:\n        pass\n" * 2800),
    "2,800 elif above": reward(head="if 0:\n    A = 1.0\n" + "elif 1 == 2:\n    A = 2.0\n" * 2800),
    "nested brackets": reward("(" * 150 + "x[:, 0]" + ")" * 150),
    "too many brackets": reward("[" * 500 + "x[:, 0]" + "]" * 500),
    "nested dicts": reward(head="W = " + "{'a': " * 150 + "1" + "}" * 150),
    "1,000 lambdas": reward("lambda: " * 1000 + "x[:, 0]"),
    "nested blocks": reward() + _nested("if x:", 95, "y = 1\n"),
    "many bindings of a name": reward() + "a = 1.0\n" * 400,
    "long f-string": reward() + f"S = f'{'{a} ' * 500}'\n",
    "null byte": reward() + "\0",
    "null byte first": "\0" + reward(),
    "byte order marks": "\ufeff\ufeff" + reward(),
    "form feeds": "\f" + reward().replace("\n", "\n\f"),
    "carriage returns": reward().replace("\n", "\r"),
    "CRLF": reward().replace("\n", "\r\n"),
    "tabs and spaces": reward().replace("    b", "\tb"),
    "lone surrogate": reward() + "# \ud800\n",
    "only a surrogate": "\ud800",
    "other encoding": "# coding: utf-7\n" + reward(),
    "bidirectional": reward() + "# \u202e\n",
    "too long": reward() + "# x\n" * 50_000,
    "much too long": reward() + "#" * (2 << 20),
    "empty": "",
    "full-width name": reward() + reward().replace("compute_reward", "\uff43ompute_torque"),
    "full-width letters at the end": reward() + reward().replace("compute_reward", "compute_torqu\uff45"),
    "name of another style": reward() + reward().replace("compute_reward", "\U0001d484ompute_goal"),
    "full-width name that is called": reward().replace("compute_reward", "\uff43ompute_torque")
    + "\n\ndef compute_reward(state_dict):\n    return \uff43ompute_torque(state_dict)\n",
    "name after a backslash": reward() + "def \\\n  compute_torque(action, state_dict):\n    return action\n",
    "soft keywords": "match = case = type = _ = 1.0\n" + reward("type * x[:, 0]"),
    "keyword": "def compute_reward(class):\n    return 1\n",
    "twice": reward() + reward(),
    "coroutine": "async def compute_reward(state_dict):\n    return 1\n",
    "lambda": "compute_reward = lambda dof_pos: dof_pos[:, 0]\n",
    "class": "class compute_reward:\n    pass\n",
    "stars": "def compute_reward(*a, **k):\n    return k['dof_pos'][:, 0]\n",
    "decorator that returns nothing": "@(lambda f: None)\n" + reward().lstrip(),
    "return at the top": reward() + "return 1\n",
    "late future import": reward() + "from __future__ import annotations\n",
    "import of everything": "from torch import *\n" + reward(),
    "deep relative import": "from .................... import x\n" + reward(),
    "shipped baseline that is not there": "from envcoder_bench.tasks.nowhere.human import compute_reward\n",
    "dict of a class": "rewards = {'upright': {'__class__': 1}}\n",
    "dict with a number of 400 digits": f"rewards = {{'upright': {BIG}}}\n",
}

_BAD_TEXT = "type('E', (Exception,), {'__str__': lambda self: 1 / 0})()"
# by name, a statement that misbehaves where it runs
STATEMENTS = {
    "SystemExit": "raise SystemExit",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "GeneratorExit": "raise GeneratorExit",
    "an exception of no kind": "raise type('Mine', (BaseException,), {})('x')",
    "group": "raise BaseExceptionGroup('g', [KeyboardInterrupt()])",
    "exception without a text": f"raise {_BAD_TEXT}",
    "exception whose text exits": f"raise {_BAD_TEXT}".replace("1 / 0", "exit()"),
    "exception with bad args": "raise type('E', (KeyError,), {'args': property(lambda self: 1 / 0)})('x')",
    "name that is no text": "raise NameError('x', name=3)",
    "syntax error without a line": "raise SyntaxError('x', ('f', 10**30, 1, 'y'))",
    "message of surrogates and escapes": "raise ValueError('\\ud800 \\x1b[2J b\\0')",
    "message of a megabyte": "raise ValueError('y' * (1 << 20))",
    "cycle of causes": "e = ValueError('c'); e.__cause__ = e; raise e",
    "recursion": "(lambda f: f(f))(lambda f: f(f))",
    "recursion limit": "import sys; sys.setrecursionlimit(90)",
    "limit of digits": "import sys; sys.set_int_max_str_digits(640)",
    "memory": "bytearray(1 << 60)",
    "integer of 5,000 digits": "str(10**5000)",
    "number beyond float": "float(10**400)",
    "cancelled": "import asyncio; raise asyncio.CancelledError",
    "error of another file": "from envcoder_bench.shaping.contract import CandidateError as E; raise E('m', 'f', -5)",
}
# values of a module that misbehave when they are looked at
MODULES = {
    "getattr of the module": "def __getattr__(name):\n    raise SystemExit\n" + reward(),
    "torch is deleted": reward(head="del torch") + "    torch.zeros(1)\n",
    "annotation": (
        "class D:\n    __hash__ = None\n    def __eq__(self, other):\n        raise SystemExit\n\n\n"
        "def compute_reward(dof_pos: D()):\n    return dof_pos[:, 0]\n"
    ),
    "default that raises": "def compute_reward(dof_pos, y=1 / 0):\n    return 1\n",
    "class that raises": "class A:\n    raise SystemExit\n" + reward(),
    "object that raises": (
        "class C:\n    def __getattr__(self, name):\n        raise KeyboardInterrupt\n"
        "    def __call__(self, dof_pos):\n        return dof_pos[:, 0]\n\n\ncompute_reward = C()\n"
    ),
    "width that cannot be written": "ACTION_DIM = 10**5000\n\n\ndef compute_torque(action):\n    return action\n",
    "signature": "def compute_reward(dof_pos):\n    return dof_pos[:, 0]\n\n\ncompute_reward.__signature__ = 3\n",
    "wraps itself": "def compute_reward(dof_pos):\n    return 1\n\n\ncompute_reward.__wrapped__ = compute_reward\n",
    "term without a name": reward().replace('"a": a', "type('K', (), {'__str__': lambda self: 1 / 0})(): a"),
    "term of surrogates": reward().replace('"a": a', "'\\ud800': a"),
    "term of escapes": reward().replace('"a": a', "'\\x1b[2J': a"),
    "term of 1,000 characters": reward().replace('"a": a', "'a' * 1000: a"),
    "term beyond float": reward().replace('"a": a', "'a': 10**400"),
}
FILES = {
    **TEXTS,
    **MODULES,
    **{f"{name}, at import": reward(head=statement) for name, statement in STATEMENTS.items()},
    **{f"{name}, in the function": reward(before=statement) for name, statement in STATEMENTS.items()},
}
