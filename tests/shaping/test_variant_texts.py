"""Texts of variants: what they compute, their note, their names; declared numbers."""

import json
import math
import time
from pathlib import Path

import pytest
import torch

from envcoder_bench.core.errors import UserError
from envcoder_bench.shaping.contract import CandidateError
from envcoder_bench.shaping.discovery import refuse_clashes
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.shaping.variants import (
    SWEEP,
    TERMS,
    Variant,
    asking_words,
    numbers,
    pack_variants,
    parse_values,
    read_variants,
    resolve_name,
    term_factors,
    variant_name,
    with_factors,
    with_numbers,
    without_function,
)

FILE = """
def compute_reward(x, y):
    terms = {"x": x, "power": y}
    return terms["x"] + terms["power"], terms
"""
X = torch.linspace(-4.0, 4.0, 33)


def called(text, *args, **named):
    return load_candidate("c", text, "c.py").functions["compute_reward"].call(*args, **named)


def test_factors_follow_the_text_of_the_file_and_are_read_from_it():
    text = with_factors(FILE, {"x": 0.5, "power": 2})
    assert text.startswith(FILE.rstrip()) and term_factors(text) == {"x": 0.5, "power": 2.0}
    assert term_factors(with_factors(text, {"x": 0.5})) == {"x": 0.25, "power": 2.0}, "a variant of a variant"
    assert term_factors(FILE) == {} == term_factors(f"{FILE}# REWARD_FACTORS\n") == term_factors("REWARD_FACTORS =")
    left = without_function(text, ["compute_reward"])
    assert left.startswith(text.rstrip()) and term_factors(left) == {}


def test_factors_of_deeply_nested_code_are_read():
    assert term_factors(f"{FILE}x = {'+'.join(['1'] * 400)}\nREWARD_FACTORS = {{'x': 0}}\n") == {"x": 0.0}


@pytest.mark.parametrize("value", ["3", "{1: 2.0}", "{'x': '2'}", "{'x': True}", "{'x': 1e400}", "dict(x=1.0)", "X"])
def test_factors_that_are_not_numbers_by_name_are_refused(value):
    with pytest.raises(CandidateError, match=r"c\.py:5: REWARD_FACTORS must be a dict of numbers by"):
        term_factors(f"{FILE}REWARD_FACTORS = {value}\n", "c.py")


def test_function_that_is_left_out_is_not_defined():
    text = "ACTION_DIM = 2\ndef compute_torque(actions):\n    return actions\ndef compute_goal(x):\n    return {}\n"
    left = load_candidate("c", without_function(text, ["compute_torque"]), "c.py")
    assert list(left.functions) == ["compute_goal"] and left.action_dim is None


CALLS = """
def compute_reward(x, y):
    return x + compute_terminal(x).float(), {"x": x, "ends": compute_terminal(x).float()}


def compute_terminal(x):
    return compute_reward_of(x) > 1.0


def compute_reward_of(x):
    return x


def compute_goal(x):
    return {"x": compute_reward(x, x)[0]}
"""


def test_function_that_others_call_stays_their_helper():
    text = without_function(CALLS, ["compute_terminal", "compute_goal"])
    left = load_candidate("c", text, "c.py")
    assert list(left.functions) == ["compute_reward"]
    assert torch.equal(left.functions["compute_reward"].call(X, X)[0], called(CALLS, X, X)[0])


# the file in which a run notes its variants

NOTED = {
    "m.a": Variant("m", TERMS, 'a "quoted" term', 0.5, weight=2.0),
    "m.b": Variant("m", TERMS, function="compute_goal"),
}
SWEPT = {f"m.{x}": Variant("m", SWEEP, values={"a": x}, usual={"a": 3.0}, points=4) for x in (1e-9, 2.0)}
NO_OVERRIDES = {"m": {}, "m.a": {}, "m.b": {}}


@pytest.mark.parametrize("variants", [NOTED, SWEPT])
def test_noted_variants_are_read_back(variants):
    assert read_variants(pack_variants(variants), {"m": {}, **{name: {} for name in variants}}) == variants


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", "{}", "{" * 100_000, {"m.a": {}}, {"m.a": {"original": 3, "flag": TERMS}},
     {"m.a": {"original": "m", "flag": TERMS}},  # changes nothing
     {"m.a": {"original": "m", "flag": TERMS, "term": "x", "function": "compute_goal"}},
     {"m.a": {"original": "m", "flag": "--else", "term": "x"}},
     {"m.a": {"original": "m", "flag": TERMS, "term": "\x1b[31m"}},
     {"m.a": {"original": "m", "flag": TERMS, "term": "x\n1 m 0.9"}},
     {"m.a": {"original": "m", "flag": TERMS, "term": "x", "factor": math.inf}},
     {"m.a": {"original": "m", "flag": SWEEP, "values": {"x": 1.0}}},  # without the original's
     {"m.a": {"original": "m", "flag": SWEEP, "values": {"x": []}, "usual": {"x": 1.0}}},
     {"m.a": {"original": "m", "flag": SWEEP, "values": {"train.x": 1.0}, "usual": {"train.x": 2.0}}},  # no override
     {"m.a": {"original": "other", "flag": TERMS, "term": "x"}}, {"m": {"original": "m", "flag": TERMS, "term": "x"}},
     {"other": {"original": "m", "flag": TERMS, "term": "x"}},
     {"m.a": {"original": "m", "flag": TERMS, "term": "x"}, "m.b": {"original": "m.a", "flag": TERMS, "term": "x"}},
     {"m.a": {"original": "m", "flag": TERMS, "term": "x"},
      "m.b": {"original": "m", "flag": SWEEP, "values": {"x": 1.0}, "usual": {"x": 2.0}}},
     {"m.a": {"original": "m", "flag": SWEEP, "values": {"y": 1.0}, "usual": {"y": 2.0}},
      "m.b": {"original": "m", "flag": SWEEP, "values": {"x": 1.0}, "usual": {"x": 2.0}}}],
)  # fmt: skip
def test_note_that_a_run_does_not_make_is_refused(content):
    with pytest.raises(ValueError):
        read_variants(content if isinstance(content, str) else json.dumps(content), NO_OVERRIDES)


def test_words_that_ask_for_variants_again():
    swept = {f"m{k}": Variant("m", SWEEP, values={"a": k, "b": 1.0}, usual={"a": 2.0, "b": 1.0}) for k in (0.0, 0.5)}
    assert asking_words(swept) == ["--sweep", "a=0,0.5,2", "--sweep", "b=1"]
    assert asking_words({"m": Variant("m", TERMS, "a", 0.0)}) == ["--terms"] and asking_words({}) == []


def test_names_are_valid_and_unique():
    taken = set()
    names = []
    for what in ("lin vel (xy)_x0", "LIN_VEL_xy_x0", "é" * 300, "é" * 300, "..", "x" * 300):
        names.append(variant_name("m", what, taken))
        taken.add(names[-1].casefold())
    assert names[0] == "m.lin_vel_xy_x0" and names[1] == "m.LIN_VEL_xy_x0_2"
    assert len({name.casefold() for name in names}) == len(names)
    refuse_clashes([Path(f"{name}.py") for name in names])


# declared numbers

DECLARED = '''A = 1.0
B: float = -2
WEIGHTS = {"x": 0.5, "y": -1e-3, "z": 2 * 3, 4: 1.0}
NESTED = {"x": {"params": {"std": 0.25}}}
C = A * 2
D = True
TWICE = 1
TWICE = 2
"""é"""; E = 3  # a comment
FIRST, (SECOND, THIRD) = 11, (2, 3)
SAME = ALSO = 4
LIST = [0.1, (5.0, x)]
GAINS = dict(p=60.0, d=2.0)


@dataclass
class Config:
    sigma: float = 0.75

    def scaled(self, by=1.5):
        return by * self.sigma


def f(x, p=1.0, *, q: float = 6):
    temp, other, power = 0.5, 2.0, 1.0
    scale: float = 0.5
    shared = -1
    twice = 1.0
    twice += x
    p = 2.0 * p
    return scale * x


def g(x):
    shared = torch.tensor(2.0, device=x.device)
    left = math.radians(12)

    def inner(y):
        deep = 8.0
        return deep * y

    return shared * x
'''


def test_declared_numbers_are_found_and_changed_in_place():
    parts = {"WEIGHTS.x": 0.5, "WEIGHTS.y": -0.001, "NESTED.x.params.std": 0.25, "LIST.0": 0.1, "LIST.1.0": 5.0}
    parts |= {"GAINS.p": 60.0, "GAINS.d": 2.0, "Config.sigma": 0.75, "Config.scaled.by": 1.5}
    local = {"f.q": 6.0, "f.temp": 0.5, "f.other": 2.0, "f.power": 1.0, "f.scale": 0.5, "f.shared": -1.0}
    local |= {"g.shared": 2.0, "g.inner.deep": 8.0}
    assert numbers(DECLARED) == {"A": 1.0, "B": -2.0, "E": 3.0, "FIRST": 11.0, **parts, **local}
    values = {"A": "3", "B": "-4.5", "WEIGHTS.y": "7e2", "E": "9", "f.scale": "-3", "f.shared": "4", "g.shared": "1e2"}
    values |= {"FIRST": "5", "GAINS.p": "70", "f.q": "7", "Config.sigma": "0.8", "g.inner.deep": "-9"}
    expected = DECLARED.replace("A = 1.0", "A = 3").replace("-2", "(-4.5)").replace("-1e-3", "7e2")
    expected = expected.replace("E = 3", "E = 9").replace("float = 0.5", "float = (-3.0)").replace("= 11,", "= 5,")
    expected = expected.replace("p=60.0", "p=70").replace("float = 6", "float = 7").replace("0.75", "0.8")
    expected = expected.replace("= 8.0", "= (-9.0)").replace("d = -1", "d = 4").replace("r(2.0", "r(1e2")
    assert with_numbers(DECLARED, values) == expected


def test_time_to_find_declared_numbers_grows_with_the_file():
    def seconds(text):
        began = time.process_time()
        numbers(text)
        return time.process_time() - began

    many = "\n".join(f"A{k} = {k}" for k in range(7_000))
    in_function = "def f():\n" + "".join(f"    A{k} = {k}\n" for k in range(5_000))
    chained = " = ".join(f"A{k}" for k in range(4_000)) + f" = [{'1,' * 20_000}]"
    for text in (many, in_function, chained):
        assert seconds(text) < 2.0
    assert numbers("A = B = {'x': 1.0}\nC = {'x': 1.0}") == {"C.x": 1.0}


@pytest.mark.parametrize(
    "change",
    ["W *= 2", "if A:\n    W = 2", "for W in range(2):\n    pass", "D['a'] = 2.0", "D['a'] += 1", "del D['a']"],
)
def test_numbers_that_are_changed_after_they_are_declared_are_none(change):
    text = f"A: float\nA = 1.0\nW = 1.0\nD = {{'a': 1.0, 'b': 3.0}}\n{change}\nX = [W for W in D]\n"
    assert set(numbers(text)) == {"A", "D.b", *({"D.a"} if "W" in change else {"W"})}
    assert not numbers("D = {'a': 1.0}\nfor key in D:\n    D[key] = 2.0\n")
    assert set(numbers("D = f(a=f(b=1, c=2), d=3, e=4)\nD.a.b = 2\nD.d, D['x'] = 3, 4\n")) == {"D.a.c", "D.e"}
    assert not numbers("D = {'a': {'b': 1.0}}\nD[key]['b'] = 2.0\n")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        *(("A", ("A", False)), ("x", ("WEIGHTS.x", False)), ("WEIGHTS.x", ("WEIGHTS.x", False))),
        *(("power", ("power", True)), ("scale", ("f.scale", False)), ("g.shared", ("g.shared", False))),
        *(("sigma", ("Config.sigma", False)), ("deep", ("g.inner.deep", False))),
    ],
)
def test_names_of_a_sweep(name, answer):
    assert resolve_name(name, DECLARED, ["x", "power"]) == answer


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("powr", r"term or number 'powr' \(did you mean power or f.power\?\); there are the terms x, power and the"),
        ("left", r"g.left is math.radians\(12\), not a number"),
        ("C", r"line 5: C is A \* 2, not a number that is written out"),
        ("D", "line 6: D is True, not a number"),
        ("z", r"line 3: WEIGHTS.z is 2 \* 3, not a number"),
        ("TWICE", "unknown term or number 'TWICE'"),
        ("shared", r"unknown term or number 'shared' \(did you mean f.shared or g.shared\?\)"),
    ],
)
def test_names_of_a_sweep_that_cannot_be_used(name, message):
    with pytest.raises(UserError, match=message):
        resolve_name(name, DECLARED, ["x", "power"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("gauss(x, 0.25) + gauss(x, s=1)", r"line 1: gauss.s is a default that is never used: every call of gauss"),
        *((call, "") for call in ("gauss(x, 0.25) + gauss(x)", "gauss(*x)", "gauss(x, **x)", "f(gauss) + gauss(x, 1)")),
        ("gauss.f(x)", ""),
    ],
)
def test_default_that_every_call_passes_is_no_number_to_sweep(call, message):
    text = f"def gauss(e, s=0.5):\n    return e / s\ndef compute_reward(x, y=0.5):\n    return {call}\n"
    if message:
        with pytest.raises(UserError, match=message):
            resolve_name("gauss.s", text, [])
    else:
        assert resolve_name("s", text, []) == ("gauss.s", False)
    assert resolve_name("y", text, []) == ("compute_reward.y", False)
    with pytest.raises(UserError, match=r"line 3: .* is a key of the state, which compute_reward is given"):
        resolve_name("y", text, [], state={"x", "y"})
    again = f"{text}def compute_goal(x):\n    return compute_reward(x)\n"
    assert resolve_name("y", again, [], state={"x", "y"}) == ("compute_reward.y", False)


def test_values_of_a_sweep():
    assert parse_values("a", " 0, 1e-3,-2,+.5") == ["0", "1e-3", "-2", "+.5"] and parse_values("a", [1, 0.5]) == [
        "1",
        "0.5",
    ]
    wrongs = [("1,,2", "an empty value"), ("1,x", "x is not"), ("nan", "nan is not"), ("1,1.0", "twice")]
    for wrong, message in (*wrongs, ("007,2", "007 is not a number")):
        with pytest.raises(UserError, match=message):
            parse_values("a", wrong)
