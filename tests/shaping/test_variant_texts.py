"""Texts of variants: what they compute, their note, their names; declared numbers."""

import json
import math
import time
from pathlib import Path

import pytest
import torch

from envcoder_bench.core.errors import UserError
from envcoder_bench.shaping.combination import EXPONENTIAL, PRODUCT, SUM, Combination
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
    variant_name,
    with_factors,
    with_numbers,
    without_function,
)

FILE = '''
"""A file that uses names of the wrapper: whole_reward, combined."""
combined = 3.0


def compute_reward(x, y, *, z: float = 2.0):
    # "power" is a term, and a name of the wrapper
    terms = {"x": x, "power": z * y, 7: 0.0 * x}
    total = torch.clamp(0.5 * terms["x"] - terms["power"] + combined, min=1.0)
    return torch.where(x > 2.0, -5.0, total), terms
'''
X, Y = torch.linspace(-4.0, 4.0, 33), torch.linspace(3.0, -3.0, 33)
HOW = Combination(SUM, {"x": 0.5, "power": -1.0, "7": 0.0}, 3.0, low=1.0, overrides=(-5.0,))


def called(text, *args, **named):
    return load_candidate("c", text, "c.py").functions["compute_reward"].call(*args, **named)


@pytest.mark.parametrize("factors", [{"x": 0.0}, {"power": 2.0}, {"x": 0.5, "power": 3.0}, {}])
def test_scaled_terms_are_those_of_a_reward_written_that_way(factors):
    reward, terms = called(with_factors(FILE, HOW, factors), X, Y)
    a, b = factors.get("x", 1.0), factors.get("power", 1.0)
    expected = torch.where(X > 2.0, -5.0, torch.clamp(0.5 * a * X - b * 2.0 * Y + 3.0, min=1.0))
    assert torch.allclose(reward, expected, atol=1e-6)
    assert torch.allclose(terms["x"], a * X) and torch.allclose(terms["power"], b * 2.0 * Y)
    assert set(terms) == {"x", "power", "7"}


def test_parameters_keep_their_names_kinds_and_defaults():
    text = with_factors(FILE, HOW, {"x": 0.0})
    before, after = (load_candidate("c", t, "c.py").functions["compute_reward"].parameters for t in (FILE, text))
    assert [(p.name, p.kind, p.default, p.annotation) for p in before] == [
        (p.name, p.kind, p.default, p.annotation) for p in after
    ]
    assert torch.allclose(called(text, X, Y, z=0.0)[1]["power"], 0.0 * Y)


def test_factors_of_a_product_are_powers():
    text = "def compute_reward(x, y):\n    return x * y**2, {'x': x, 'y': y}\n"
    how = Combination(PRODUCT, {"x": 1.0, "y": 2.0})
    x, y = torch.rand(9), torch.cat([torch.zeros(1), torch.rand(8)])
    for factor, expected in ((0.0, x), (0.5, x * y), (2.0, x * y**4)):
        assert torch.allclose(called(with_factors(text, how, {"y": factor}), x, y)[0], expected, atol=1e-6)

    tiny = "def compute_reward(x, y):\n    return 5.0 * x * y, {'x': x, 'y': y}\n"
    y = torch.full_like(x, 1e-18)
    reward, _ = called(with_factors(tiny, Combination(PRODUCT, {"x": 1.0, "y": 1.0}, math.log(5.0)), {"x": 0.0}), x, y)
    assert torch.allclose(reward, 5.0 * y, rtol=1e-4, atol=0.0)


def test_factors_in_an_exponent():
    text = "def compute_reward(x, y):\n    return torch.exp(0.5 * x - y - 1.0) * (1 + (y > 2)), {'x': x, 'y': y}\n"
    how = Combination(EXPONENTIAL, {"x": 0.5, "y": -1.0}, -1.0)
    reward, terms = called(with_factors(text, how, {"y": 2.0}), X, Y)
    expected = torch.exp(0.5 * X - 2.0 * Y - 1.0) * (1 + (Y > 2))  # what the terms do not explain stays
    assert torch.allclose(reward, expected) and torch.equal(terms["y"], 2.0 * Y)


def test_fixed_reward_that_is_also_a_bound():
    """As of a sum at least 0 that a fall replaces by 0: where the sum is above 0, it is the fall; else the bound."""
    text = """def compute_reward(x, y):
    total = torch.clamp(x - y, min=0.0)
    return torch.where(y > 2.5, 0.0, total), {"x": x, "y": y}
"""
    how = Combination(SUM, {"x": 1.0, "y": -1.0}, low=0.0, overrides=(0.0,))
    x = X + 3.0
    reward, _ = called(with_factors(text, how, {"y": 0.0}), x, Y)
    expected = torch.where((Y > 2.5) & (x > Y), 0.0, torch.clamp(x, min=0.0))
    assert torch.allclose(reward, expected)


def test_text_of_the_file_is_kept_as_it_is():
    assert with_factors(FILE, HOW, {"x": 0.0}).startswith(FILE.rstrip())
    assert without_function(FILE, ["compute_reward"]).startswith(FILE.rstrip())


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
    assert torch.equal(left.functions["compute_reward"].call(X, Y)[0], called(CALLS, X, Y)[0])
    scaled = load_candidate("c", with_factors(CALLS, Combination(SUM, {"x": 1.0, "ends": 1.0}), {"x": 0.0}), "c.py")
    assert torch.allclose(scaled.functions["compute_reward"].call(X, Y)[0], (X > 1.0).float(), atol=1e-6)
    assert torch.equal(scaled.functions["compute_goal"].call(X)["x"], called(CALLS, X, X)[0]), "as without the factor"


def test_reward_that_is_no_def_at_the_top_level_is_refused():
    with pytest.raises(UserError, match="not defined by a def at the top level"):
        with_factors("def f(x):\n    return x, {'x': x}\ncompute_reward = f\n", HOW, {})


# the file in which a run notes its variants

NOTED = {
    "m.a": Variant("m", TERMS, 'a "quoted" term', 0.5, weight=2.0, unseen=True),
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
        ("powr", r"no term or number 'powr' \(did you mean power or f.power\?\); there are the terms x, power and the"),
        ("left", r"g.left is math.radians\(12\), not a number"),
        ("C", r"line 5: C is A \* 2, not a number that is written out"),
        ("D", "line 6: D is True, not a number"),
        ("z", r"line 3: WEIGHTS.z is 2 \* 3, not a number"),
        ("TWICE", "no term or number 'TWICE'"),
        ("shared", r"no term or number 'shared' \(did you mean f.shared or g.shared\?\)"),
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


def test_what_no_term_explains_stays_as_it_is():
    text = "def compute_reward(x, y):\n    return 2.0 * x + torch.where(y > 2.5, 100.0, 0.0), {'x': x}\n"
    how = Combination(SUM, {"x": 2.0})  # as it seems where y is small
    reward, _ = called(with_factors(text, how, {"x": 0.0}), X, Y)
    assert torch.allclose(reward, torch.where(Y > 2.5, 100.0, 0.0), atol=1e-5)


def test_what_is_added_after_a_bound_is_scaled_after_it():
    text = """def compute_reward(x, y):
    terms = {"x": x, "fall": -2.0 * (y > 0)}
    return torch.clamp(terms["x"], min=0.0) + terms["fall"], terms
"""
    how = Combination(SUM, {"x": 1.0, "fall": 1.0}, low=0.0, after="fall")
    for factors in ({"fall": 0.0}, {"x": 2.0}, {"x": 0.5, "fall": 3.0}):
        reward, terms = called(with_factors(text, how, factors), X, Y)
        fall = -2.0 * (Y > 0) * factors.get("fall", 1.0)
        assert torch.allclose(reward, torch.clamp(factors.get("x", 1.0) * X, min=0.0) + fall)
        assert torch.equal(terms["fall"], fall)
