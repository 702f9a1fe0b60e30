"""Copies, near copies and constant rewards, read from the text."""

import pytest

from envcoder_bench.shaping import copies
from envcoder_bench.shaping.copies import Known, constant_reward

HUMAN = '''"""The baseline."""
import torch

SCALE = 2.0

def compute_reward(pole_angle, cart_vel):
    """Stay up."""
    upright = torch.cos(pole_angle)
    return SCALE * upright - 0.1 * cart_vel ** 2

def compute_terminal(pole_angle):
    return pole_angle > 1.0
'''
REWARD = HUMAN.split("def compute_terminal")[0]


def fault(text, types=None, **texts):
    return Known.of({"human": HUMAN, **texts}, HUMAN, types).fault("r1_00", text)


@pytest.mark.parametrize(
    "text",
    [
        HUMAN,
        REWARD,  # what it lacks is the baseline's
        REWARD.replace("upright", "height").replace('"""Stay up."""', '"""My own idea."""'),
        HUMAN.split("def ")[0] + "\n# mine\n" + "def " + HUMAN.split("def ")[2],
    ],
)
def test_copies_of_the_baseline_are_named(text):
    found = fault(text)
    assert (found.kind, found.twin) == ("duplicate", "human") and "is the same as human" in str(found)


@pytest.mark.parametrize(("number", "near"), [("0.112", True), ("0.119", True), ("0.13", False), ("-0.1", False)])
def test_numbers_within_a_fifth_make_a_near_copy(number, near):
    found = fault(REWARD.replace("0.1 *", f"{number} *"))
    assert (found is not None) == near
    assert not near or "but for numbers, which differ by 20 % at most" in str(found)


def test_other_code_is_no_copy():
    assert fault(REWARD.replace("cos", "sin")) is None
    assert fault(REWARD.replace("cart_vel", "cart_pos")) is None
    other = REWARD.replace("cos", "sin")
    assert fault(other.replace("0.1", "0.11"), r0_00=other).twin == "r0_00"
    assert fault("def compute_reward(:") is None  # the loader says what is wrong with it
    # another termination is no copy, unless the search asks for rewards alone
    stricter = HUMAN.replace("> 1.0", "> 0.5")
    assert fault(stricter) is None and fault(stricter, ["compute_reward"]).twin == "human"


def test_names_of_components_make_no_other_candidate():
    text = "def compute_reward(pole_angle, cart_pos):\n    up, rail = -pole_angle, -cart_pos\n"
    first = f"{text}    return up + rail, {{'up': up, 'rail': rail}}\n"
    renamed = first.replace("up", "height").replace("'rail'", "'edge'")
    assert fault(renamed, r0_00=first).twin == "r0_00"
    # entries that are read have a meaning, and so have those that other functions return
    weighted = f"{text}    w = {{'a': up, 'b': rail}}\n    return w['a'] - 2.0 * w['b']\n"
    swapped = weighted.replace("{'a': up, 'b'", "{'b': up, 'a'")
    assert swapped != weighted and fault(swapped, r0_00=weighted) is None
    by_name = f"{text}    w, t = {{'up': 1.0, 'rail': 0.1}}, {{'up': up, 'rail': rail}}\n"
    by_name += "    return sum(w[k] * t[k] for k in t)\n"
    swapped = by_name.replace("{'up': up, 'rail': rail}", "{'rail': up, 'up': rail}")
    assert swapped != by_name and fault(swapped, r0_00=by_name) is None
    start = "def compute_initial_state(dof_pos):\n    return {'dof_pos': dof_pos, 'dof_vel': 0.1 * dof_pos}\n"
    other = start.replace("'dof_pos': dof_pos, 'dof_vel'", "'dof_vel': dof_pos, 'dof_pos'")
    assert other != start and fault(other, r0_00=start) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cart_pos - 0.5 * dof_vel[:, 5] * up", "the same as"),  # the same sum in another order
        ("-(up * dof_vel[:, 5]) / 2 + cart_pos", "the same as"),
        ("1.1 * (cart_pos - 0.5 * up * dof_vel[:, 5])", "but for numbers"),
        ("1.1 * cart_pos - up * dof_vel[:, 5] * 0.5", "but for numbers"),
        ("2.0 * (cart_pos - 0.5 * up * dof_vel[:, 5])", ""),  # a scale decides where rewards are not normalized
        ("cart_pos + 0.5 * up * dof_vel[:, 5]", ""),
        ("cart_pos - 0.5 * up * dof_vel[:, 6]", ""),  # another joint
        ("cart_pos - 0.5 * up / dof_vel[:, 5]", ""),
        ("up - 0.5 * cart_pos * dof_vel[:, 5]", ""),
        ("(cart_pos - 0.5 * up) * dof_vel[:, 5]", ""),
        ("cart_pos - torch.exp(0.5 * up * dof_vel[:, 5])", ""),
    ],
)
def test_the_order_of_terms_and_a_factor_of_all_are_no_other_candidate(text, said):
    reward = "import torch\ndef compute_reward(cart_pos, up, dof_vel):\n    return {}\n"
    found = fault(reward.format(text), r0_00=reward.format("cart_pos - 0.5 * up * dof_vel[:, 5]"))
    assert said in str(found) if said else found is None
    # with a name, and beside components
    named = "import torch\ndef compute_reward(cart_pos, up, dof_vel):\n    r = {}\n    return {}, {{'r': r}}\n"
    assert fault(named.format("up + cart_pos", "r * 1.1"), r0_00=named.format("cart_pos + up", "r")).twin == "r0_00"


@pytest.mark.parametrize(
    ("number", "near"),
    [("1.11 * {} + 1.10 * {}", True), ("1.10 * {} + 0.95 * {}", True), ("1.4 * {} + 1.1 * {}", False)],
)
def test_terms_that_differ_in_numbers_alone_are_paired_as_they_are_written(number, near):
    reward = "import torch\ndef compute_reward(a):\n    return {}\n"
    terms = "torch.exp(-a / 0.3)", "torch.exp(-a / 0.9)"
    found = fault(reward.format(number.format(*terms)), r0_00=reward.format("1.00 * {} + 1.10 * {}".format(*terms)))
    assert ("but for numbers" in str(found)) if near else found is None


def test_the_order_counts_where_lists_may_be_added():
    text = "import torch\ndef compute_{}(dof_pos, dof_vel):\n    return torch.cat({}, -1)\n"
    joined, other = "[dof_pos] + [dof_vel]", "[dof_vel] + [dof_pos]"
    for function in ("observation", "reward"):
        first = text.format(function, joined)
        assert fault(text.format(function, other), r0_00=first) is None
        assert fault(first, r0_00=first).twin == "r0_00"
    names = "{}\n    return torch.cat({}, -1)\n"
    text = "import torch\ndef compute_{}(dof_pos, dof_vel):\n    " + names
    for function in ("observation", "reward"):
        for bound in ("x, y = [dof_pos], [dof_vel]", "z = [dof_pos]\n    x = y = z", "y, *x = dof_pos"):
            first = text.format(function, bound, "x + y")
            assert fault(text.format(function, bound, "y + x"), r0_00=first) is None
    first = text.format("reward", "x, y = dof_pos, dof_vel", "(x + y)")
    assert fault(first.replace("x + y", "y + x"), r0_00=first).twin == "r0_00"
    text = "import torch\nA, B = [1.0], 2 * [2.0]\ndef pair(x): return [x]\ndef compute_reward(dof_pos, dof_vel):\n"
    text += "    return (dof_pos * torch.tensor({})).sum(-1) + A[0] + B[0]\n"
    for one, other in (
        ("[1.0]*3 + [2.0]*3", "[2.0]*3 + [1.0]*3"),
        ("[1.0]*2 + [2.0]*4", "[2.0]*4 + [1.0]*2"),
        ("3*[1.0] + 3*[2.0]", "3*[2.0] + 3*[1.0]"),
        ("A + B", "B + A"),
        ("pair(dof_pos) + pair(dof_vel)", "pair(dof_vel) + pair(dof_pos)"),
        ("tuple(dof_pos) + tuple(dof_vel)", "tuple(dof_vel) + tuple(dof_pos)"),
    ):
        assert fault(text.format(other), r0_00=text.format(one)) is None
        # sums of what is made of lists have no order
        swapped = text.replace(")).sum(-1) + A[0]", ") + dof_vel).sum(-1) + A[0]").format(one)
        other_way = text.replace("dof_pos * torch.tensor({})", "dof_vel + torch.tensor({}) * dof_pos").format(one)
        assert fault(other_way, r0_00=swapped).twin == "r0_00"


@pytest.mark.parametrize(
    ("body", "constant"),
    [
        ("return torch.ones_like(pole_angle)", True),
        ("n = pole_angle.shape[0]\n    return torch.full((n,), 2.0, device=pole_angle.device)", True),
        ("alive = torch.full_like(pole_angle, 0.5)\n    return alive, {'alive': alive}", True),
        ("return 0 * pole_angle + 1.0", True),
        ("return pole_angle * 0.0 + 0 * pole_angle", True),
        ("return torch.ones_like(pole_angle) - 0.1 * pole_angle", False),
        ("return 0 * pole_angle + pole_angle", False),
        ("return torch.full_like(pole_angle, 1.0) * (pole_angle > 0)", False),
        ("return torch.randn_like(pole_angle)", False),
    ],
)
def test_constant_rewards_are_found(body, constant):
    text = f"import torch\n\n\ndef compute_reward(pole_angle):\n    {body}\n"
    assert constant_reward(text) == (4 if constant else 0)
    found = fault(text)
    assert (found is not None) == constant
    assert not constant or str(found).startswith("r1_00.py:4: in compute_reward: the reward is the same in every state")


def test_a_text_that_was_read_too_deep_in_the_stack_is_read_again(monkeypatch):
    def too_deep(text, types):
        raise RecursionError

    text = f"{HUMAN}# read twice\n"
    with monkeypatch.context() as patch:
        patch.setattr(copies, "shaping_source", too_deep)
        assert fault(text) is None
    assert fault(text).twin == "human"
