"""Terms of recorded rewards, and factors on them: bit by bit the reward that a person would write."""

import pytest
import torch
from shaping_fakes import FakeTask, shaping

from envcoder_bench.compile.c_code import write_c
from envcoder_bench.compile.terms import find_terms, recorded_reward, scaled
from envcoder_bench.compile.trace import trace
from envcoder_bench.shaping.contract import CandidateError
from envcoder_bench.shaping.state import StateDict, bind

HEAD = """def compute_reward(dof_pos, dof_vel, progress_buf):
    H, C = {h} * (dof_pos[:, 0].cos() + 0.1), {c} * -dof_vel[:, 1].abs()
    x = dof_vel[:, 2]
"""
# rewards, in which H and C are the terms h and c
REWARDS = {
    "sum": "return H + C, {'h': H, 'c': C}",
    "of a dict": "t = {'h': H, 'c': C}\n    return sum(t.values()), t",
    "stacked": "t = {'h': H, 'c': C}\n    return torch.stack(list(t.values())).sum(0), t",
    "weighted": "return 2.0 * H - C / 4.0 + 0.3, {'h': H, 'c': C}",
    "logged with its weight": "return 2.0 * H + C, {'h': 2.0 * H, 'c': C}",
    "with a rest": "return H + x * x + C, {'h': H, 'c': C}",
    "bounded": "return torch.clamp(H + C, min=0.4, max=0.9) + 0.1, {'h': H, 'c': C}",
    "added after a bound": "return torch.clamp(H, min=0.9) + C, {'h': H, 'c': C}",
    "replaced in some states": "return torch.where(x > 0.1, -2.0, H + C), {'h': H, 'c': C}",
    "gate": "return (x > 0.2).float() * H + C, {'h': H, 'c': C}",
    "weight that a place changes": "return torch.where(x.abs() > 0.45, 0.5, 1.0) * H + C, {'h': H, 'c': C}",
    "weight that changes late": "return torch.where(progress_buf > 245, 5.0, 1.0) * H + C, {'h': H, 'c': C}",
    "larger of two sums": "return torch.maximum(H + C, 0.7 - x * C), {'h': H, 'c': C}",
    "soft bound": "t = H + C\n    return torch.where(t < 0.8, 0.1 * t, t), {'h': H, 'c': C}",
    "logged total": "t = H + C\n    return t, {'total': t, 'h': H, 'c': C}",
    "logged copy": "return H + C, {'h': H, 'h_again': H, 'twice': 2.0 * H, 'c': C}",
}
FACTORS = ({"h": 0.0}, {"c": 0.0}, {"h": 0.5}, {"h": 2.0, "c": 0.25})


def made(body, h="1.0", c="1.0"):
    task = FakeTask(40)
    task.state["progress_buf"] = 10 * torch.arange(40)
    return shaping(HEAD.format(h=h, c=c) + f"    {body}\n", task=task, n=40), task


def paid(one, task):
    reward, terms = bind(one.functions["reward"], StateDict({**task.state, "actions": torch.zeros(40, 3)}))()
    return reward, terms


def terms_of(body):
    one, task = made(body)
    return find_terms(recorded_reward(one, task), one.components)


@pytest.mark.parametrize("name", list(REWARDS))
def test_factor_pays_what_a_person_would_write(name):
    one, task = made(REWARDS[name])
    for factors in FACTORS:
        reward, terms = paid(scaled(one, factors, task), task)
        expected, logged = paid(made(REWARDS[name], *(repr(factors.get(key, 1.0)) for key in "hc"))[0], task)
        assert torch.equal(reward, expected) and all(torch.equal(terms[key], logged[key]) for key in "hc")
    before, _ = paid(one, task)
    assert torch.equal(paid(scaled(one, {}, task), task)[0], before)
    varied = [not torch.equal(paid(scaled(one, factors, task), task)[0], before) for factors in FACTORS]
    assert all(varied), "the states tell factors apart"


@pytest.mark.parametrize(
    ("body", "weights", "others"),
    [
        (REWARDS["weighted"], {"h": 2.0, "c": -0.25}, {}),
        (REWARDS["logged with its weight"], {"h": 1.0, "c": 1.0}, {}),
        (REWARDS["gate"], {"h": None, "c": 1.0}, {}),
        ("return H + C, {'h': H, 'h_again': H, 'c': C}", {"h": 1.0, "c": 1.0}, {"h_again": "equals h"}),
        ("return H + C, {'h': H, 'c': C, 'alike': dof_pos[:, 0].cos() + 0.1}", {"h": 1.0, "c": 1.0}, {}),
        (REWARDS["logged copy"], {"h": 1.0, "c": 1.0}, {"h_again": "equals h", "twice": "is 2 times h"}),
        ("return 2.0 * H + C, {'h': H, 'twice': 2.0 * H, 'c': C}", {"twice": 1.0, "c": 1.0},
         {"h": "is 0.5 times twice"}),
        (REWARDS["logged total"], {"h": 1.0, "c": 1.0}, {"total": "is the reward"}),
        ("t = H + C\n    return t.clamp(min=0.0), {'total': t, 'h': H, 'c': C}", {"h": 1.0, "c": 1.0},
         {"total": "is a sum of other components"}),
        ("t = H + C\n    return t, {'total': t}", {"total": 1.0}, {}),
        ("t = H + C\n    return t, {'total': t, 'h': H}", {"h": 1.0}, {"total": "is the reward"}),
        ("return H * C, {'h': H, 'c': C}", {}, dict.fromkeys("hc", "is multiplied by another component (line 4)")),
        ("return H.clamp(max=0.5), {'h': H, 'half': 0.5}", {"h": 1.0},
         {"half": "is 0.5 in all states, which the reward does not add"}),
        ("return torch.exp(H + C), {'h': H, 'c': C}", {}, dict.fromkeys("hc", "is used by the reward, but not added")),
        ("return H + C * C, {'h': H, 'c': C}", {"h": 1.0}, {"c": "is multiplied by itself (line 4)"}),
        ("return H, {'h': H, 'speed': x}", {"h": 1.0}, {"speed": "is not used by the reward"}),
        ("return H + 1.0, {'h': H, 'alive': 1.0}", {"h": 1.0, "alive": 1.0}, {}),
        ("return H, {'h': H, 'alive': 1.0}", {"h": 1.0},
         {"alive": "is 1 in all states, which the reward does not add"}),
        ("return 0.5 * H, {'h': H, 'half': 0.5}", {"h": 0.5},
         {"half": "is 0.5 in all states, which the reward does not add"}),
        ("up = H > 0.9\n    return 3.0 * up - C, {'up': up, 'c': C}", {"up": 3.0, "c": -1.0}, {}),
    ],
)  # fmt: skip
def test_terms_and_what_other_components_are(body, weights, others):
    terms = terms_of(body)
    assert terms.weights == weights
    assert {name: what for name, what in terms.others.items() if name in others} == others
    assert not set(terms.weights) & set(terms.others)


def test_what_is_not_a_component_is_named_by_its_line():
    assert str(terms_of(REWARDS["with a rest"])) == "its terms are h, c; it has parts that are not components (line 4)"
    assert str(terms_of("return x, {'h': H}")).startswith("none of its components is a term; ")


@pytest.mark.parametrize(
    ("body", "factors", "message"),
    [
        ("return H * C, {'h': H, 'c': C}", {"h": 2.0}, "'h', which is multiplied by another component"),
        ("return H + C, {'h': H, 'c': C}", {"hh": 2.0}, "'hh', which is not a component of its reward .did you mean h"),
        ("return H + C - H.mean(), {'h': H, 'c': C}", {"h": 2.0}, r"cannot be recorded: it joins the environments"),
    ],
)
def test_factor_on_what_is_not_a_term_is_refused(body, factors, message):
    with pytest.raises(CandidateError, match=message):
        scaled(*made(body)[:1], factors, made(body)[1])


def test_variants_share_their_code_and_constants_differ():
    one, task = made(REWARDS["bounded"])
    one, _ = trace(one, task.state, task.constants, task)
    variants = [scaled(one, {name: factor}, task) for name in "hc" for factor in (0.0, 0.5, 2.0)]
    programs = [variant.programs["reward"] for variant in variants]
    codes = [write_c(program, dict.fromkeys(program.outputs, "O = {value};")) for program in programs]
    assert len({code.statements for code in codes}) == 1 and len({code.constants for code in codes}) == 6
