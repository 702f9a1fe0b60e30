"""The effect of mutations and recombinations on the values of functions."""

import ast
from random import Random

import pytest
import torch

from envcoder_bench.search import vary
from envcoder_bench.search.genome import Genome, UnsupportedCode
from envcoder_bench.search.pieces import pieces
from envcoder_bench.shaping.kinds import SHAPER_TYPES

STATE = {name: torch.linspace(-1.0, 2.0, 7).roll(k) for k, name in enumerate("abcd")}

# one and the same reward, a + 2 b - 3 c, in the forms that people write
REWARDS = {
    "chain": "def compute_reward(a, b, c):\n    return a + 2.0 * b - 3.0 * c\n",
    "difference": "def compute_reward(a, b, c):\n    return a - 3.0 * c + 2.0 * b\n",
    "names": (
        "def compute_reward(a, b, c):\n    one = a\n    two = 2.0 * b\n    three = 3.0 * c\n"
        "    total = one + two - three\n"
        "    return torch.clamp(total, -1e6, 1e6), {'one': one, 'two': two, 'three': three}\n"
    ),
    "sum": (
        "def compute_reward(state_dict):\n    a, b = state_dict['a'], state_dict['b']\n"
        "    parts = {'one': a, 'two': 2.0 * b, 'three': -3.0 * state_dict['c']}\n"
        "    return sum(parts.values()), parts\n"
    ),
    "scaled sum": (
        "def compute_reward(state_dict):\n    a, b = state_dict['a'], state_dict['b']\n"
        "    parts = {'one': 2.0 * a, 'two': 4.0 * b, 'three': -6.0 * state_dict['c']}\n"
        "    parts = {name: 0.5 * value for name, value in parts.items()}\n"
        "    return sum(list(parts.values())), parts\n"
    ),
    "keys": (
        "def compute_reward(a, b, c):\n    parts = {'one': a, 'two': 2.0 * b, 'three': -3.0 * c}\n"
        "    total = parts['one'] + parts['two'] + parts['three']\n    return total.clamp(min=-1e6), parts\n"
    ),
    "where": (
        "def compute_reward(a, b, c):\n    reward = a + 2.0 * b - 3.0 * c\n    bad = a > 1000.0\n"
        "    return torch.where(bad, torch.full_like(reward, -2.0), reward)\n"
    ),
    "product": "def compute_reward(a, b, c):\n    return (a + 2.0 * b - 3.0 * c) * 1.0\n",
}
TERMS = [STATE["a"], 2.0 * STATE["b"], -3.0 * STATE["c"]]


def genome(source):
    return Genome(source, SHAPER_TYPES)


def call(made, name="compute_reward", **more):
    """Run a function of a genome's text, its parameters bound by name."""
    functions = {"torch": torch}
    exec(made.with_docstring("It."), functions)
    function = functions[name]
    state = {**STATE, **more}
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    value = function(**{n: state if n == "state_dict" else state[n] for n in names})
    return value[0] if isinstance(value, tuple) else value


def shares(reward):
    """Weights of the three terms in a reward that is linear in them."""
    system = torch.stack([torch.as_tensor(t, dtype=torch.float64) for t in TERMS], dim=1)
    solution = torch.linalg.lstsq(system, reward.double().unsqueeze(1)).solution
    assert torch.allclose(system @ solution, reward.double().unsqueeze(1), atol=1e-4)
    return [round(x, 2) for x in solution.flatten().tolist()]


def changed(mutation, made, seed, name="compute_reward"):
    """The genome after a mutation, and what this did; the same genome where it does not apply."""
    after, told = mutation(made, name, Random(seed)) or (made, "")
    return after.pruned(made), told


@pytest.mark.parametrize("source", REWARDS.values(), ids=REWARDS)
def test_reward_terms_are_found(source):
    made = genome(source)
    assert shares(call(made)) == [1.0, 1.0, 1.0]
    assert len(pieces(made, "compute_reward")) == 3


def test_subtracted_sum_is_one_term():
    made = genome("def compute_reward(a, b, c):\n    return a - (3.0 * c - 2.0 * b)\n")
    assert [piece.label for piece in pieces(made, "compute_reward")] == ["a", "c"]
    for seed in range(10):
        found = shares(call(changed(vary.reweight, made, seed)[0]))
        assert found[1] == pytest.approx(found[2], abs=0.02)


def test_difference_of_two_inputs_is_one_term():
    for value in ("a - b", "state_dict['a'] - state_dict['b']"):
        made = genome(f"def compute_reward(state_dict, a, b):\n    return {value}\n")
        assert len(pieces(made, "compute_reward")) == 1
        assert changed(vary.drop, made, 0)[1] == changed(vary.reweight, made, 0)[1] == ""
        made = genome(f"def compute_reward(state_dict, a, b, c):\n    return {value} - 2.0 * c\n")
        kept = {tuple(call(changed(vary.drop, made, seed)[0]).tolist()) for seed in range(10)}
        assert kept == {tuple((STATE["a"] - STATE["b"]).tolist()), tuple((-2.0 * STATE["c"]).tolist())}
    # names that the function computes are terms of their own
    made = genome("def compute_reward(a, b):\n    gain = 2.0 * a\n    cost = 3.0 * b\n    return gain - cost\n")
    assert len(pieces(made, "compute_reward")) == 2


@pytest.mark.parametrize("source", REWARDS.values(), ids=REWARDS)
def test_drop_removes_only_one_term(source):
    seen = {tuple(shares(call(changed(vary.drop, genome(source), seed)[0]))) for seed in range(20)}
    assert seen == {(0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0)}


@pytest.mark.parametrize("source", REWARDS.values(), ids=REWARDS)
def test_reweighting_scales_one_term_and_keeps_its_sign(source):
    for seed in range(12):
        made, told = changed(vary.reweight, genome(source), seed)
        different = [share for share in shares(call(made)) if share != 1.0]
        assert len(different) <= 1 and all(share >= 0.0 for share in different)
        if different:
            assert different[0] == pytest.approx(float(told.split()[0]), rel=0.05, abs=0.011)


def test_term_used_by_name_is_not_dropped():
    for seed in range(10):
        made = genome(
            "def compute_reward(a, b, c):\n    parts = {'one': a, 'two': 2.0 * b, 'three': -3.0 * c}\n"
            "    return sum(parts.values()), {'seen': parts['two']}\n"
        )
        assert shares(call(changed(vary.drop, made, seed)[0]))[1] == 1.0


@pytest.mark.parametrize("host", REWARDS)
@pytest.mark.parametrize("donor", REWARDS)
def test_grafted_term_adds_the_donors_value(host, donor):
    other = REWARDS[donor].replace("* c", "* c * torch.cos(b)")
    other = genome(other.replace("state_dict['c']", "state_dict['c'] * torch.cos(state_dict['b'])"))
    for seed in range(6):
        made, _ = vary.graft(genome(REWARDS[host]), other, "donor", Random(seed))
        added = call(made) - call(genome(REWARDS[host]))
        terms = [STATE["a"], STATE["b"], -STATE["c"] * torch.cos(STATE["b"])]
        ratios = [added[t.abs() > 0.01] / t[t.abs() > 0.01] for t in terms]
        fitting = [r for r in ratios if torch.allclose(r, r[0].expand_as(r), atol=1e-3)]
        assert fitting and fitting[0][0] > 0, made.source


def test_grafted_term_includes_the_statements_it_depends_on():
    donor = "def compute_reward(b):\n    x = torch.cos(b)\n    y = torch.zeros(7)\n    y[:] = x * x\n"
    host = genome("def compute_reward(a):\n    return a + 0.0\n")
    host, _ = vary.graft(host, genome(donor + "    z = y + y\n    b = 0.0\n    return z\n"), "donor", Random(1))
    added = (call(host) - STATE["a"]) / torch.cos(STATE["b"]) ** 2
    assert added[0].abs() > 0.01 and torch.allclose(added, added[0].expand_as(added), atol=1e-5)
    assert "b = 0.0" not in host.source


def test_grafted_term_includes_its_helpers_without_replacing_the_hosts():
    host = genome("K = 2.0\n\n\ndef f(x):\n    return K * x\n\n\ndef compute_reward(a):\n    return f(a) + 0.0 * a\n")
    donor = genome("K = 5.0\n\n\ndef f(x):\n    return K + x\n\n\ndef compute_reward(b):\n    return f(b) + f(b)\n")
    before = call(host)
    host, _ = vary.graft(host, donor, "donor", Random(3))
    weight = (call(host) - before) / (5.0 + STATE["b"])
    assert weight[0].abs() > 0.01
    assert torch.allclose(weight, weight[0].expand_as(weight))


def test_imports_are_merged_and_conflicts_refused():
    host = genome("from math import cos\n\n\ndef compute_reward(a):\n    return a + cos(1.0)\n")
    donor = "def compute_reward(b):\n    return torch.exp(-b) * {0}(1.0) + b * {0}(1.0)\n"
    made, _ = vary.graft(host, genome("from math import cos, sin\n\n\n" + donor.format("sin")), "donor", Random(0))
    assert "import cos, sin" in made.source and (call(made) != call(host)).any()
    for other in ("from cmath import cosh as cos\n\n\n", "def cos(x):\n    return 2.0 * x\n\n\n"):
        with pytest.raises(UnsupportedCode):
            vary.graft(host, genome(other + donor.format("cos")), "donor", Random(0))


def test_taken_function_includes_its_action_dim():
    torque = "ACTION_DIM = 1\n\n\ndef compute_torque(actions):\n    return actions\n"
    host = genome(torque + "\n\ndef compute_reward(a):\n    return a\n")
    donor = genome("ACTION_DIM = 3\n\n\ndef compute_dof_target(action):\n    return 2.0 * action\n")
    made, told = vary.take_function(host, donor, "donor", Random(0))
    assert told == "compute_dof_target of donor"
    text = made.pruned(host).source
    assert "ACTION_DIM = 3" in text and "compute_torque" not in text and "compute_reward" in text


@pytest.mark.parametrize("name", ["compute_goal", "compute_initial_state"])
def test_entries_are_dropped_and_grafted(name):
    host = genome(f"def {name}(a, b):\n    return {{'one': a, 'two': b}}\n")
    donor = genome(f"def {name}(c):\n    return {{'three': c}}\n")
    for seed in range(6):
        assert set(call(changed(vary.drop, host, seed, name)[0], name)) in ({"one"}, {"two"})
        made, _ = vary.graft(host, donor, "donor", Random(seed))
        assert set(call(made, name)) == {"one", "two", "three"} and torch.equal(call(made, name)["three"], STATE["c"])
        assert vary.graft(made, donor, "donor", Random(seed)) is None


def test_conditions_are_dropped_and_grafted():
    host = genome("def compute_terminal(a, b):\n    return (a > 1.0) | (b < 0.0)\n")
    donor = genome("def compute_terminal(c):\n    return c > 1.5\n")
    name = "compute_terminal"
    seen = {tuple(call(changed(vary.drop, host, seed, name)[0], name).tolist()) for seed in range(10)}
    assert seen == {tuple((STATE["a"] > 1.0).tolist()), tuple((STATE["b"] < 0.0).tolist())}
    made, _ = vary.graft(host, donor, "donor", Random(0))
    assert torch.equal(call(made, name), call(host, name) | (STATE["c"] > 1.5))


PARTS = {
    "stack": "def compute_observation(a, b):\n    return torch.stack((a, 2.0 * b), dim=-1)\n",
    "cat": (
        "def compute_observation(state_dict):\n    c = state_dict['c'].unsqueeze(-1)\n"
        "    d = state_dict['d'].unsqueeze(-1)\n    parts = [c, torch.cat((d, c), dim=-1)]\n"
        "    return torch.clamp(torch.cat(parts, dim=-1), -9.0, 9.0)\n"
    ),
    "other stack": "def compute_observation(c, d):\n    return torch.stack([c, d - 1.0], -1)\n",
}


@pytest.mark.parametrize("host, donor", [("stack", "other stack"), ("cat", "stack"), ("cat", "other stack")])
def test_grafted_observation_part_is_appended(host, donor):
    for seed in range(4):
        made = genome(PARTS[host])
        before, other = (call(genome(PARTS[x]), "compute_observation") for x in (host, donor))
        made, _ = vary.graft(made, genome(PARTS[donor]), "donor", Random(seed))
        after = call(made, "compute_observation")
        assert torch.equal(after[:, : before.shape[1]], before)
        assert any(torch.equal(after[:, before.shape[1]], column) for column in other.unbind(-1))


@pytest.mark.parametrize("source", PARTS.values(), ids=PARTS)
def test_parts_of_an_observation_are_dropped(source):
    before = call(genome(source), "compute_observation")
    for seed in range(4):
        made = changed(vary.drop, genome(source), seed, "compute_observation")[0]
        after = call(made, "compute_observation")
        assert 0 < after.shape[1] < before.shape[1]
        assert all(any(torch.equal(x, y) for y in before.unbind(-1)) for x in after.unbind(-1))


def numbers_of(source):
    return [
        x.value for x in ast.walk(ast.parse(source)) if isinstance(x, ast.Constant) and not isinstance(x.value, str)
    ]


def test_sizes_indices_and_exponents_are_not_scaled():
    source = (
        "ACTION_DIM = 4\n\n\ndef compute_torque(actions, dof_pos):\n"
        "    x = dof_pos[:, 3:7].reshape(-1, 2, 2) ** 2\n    y = torch.norm(x, p=2, dim=1) / 2\n"
        "    z = torch.zeros(dof_pos.shape[0] * 2, 1) + 3 * y[..., 1]\n"
        "    return torch.clamp(y - 0.5 * z * actions[:, 0:1], min=0.0) > 1\n"
    )
    made = genome(source)
    found = {node.value: is_int for node, is_int, _ in vary.numbers(made.function("compute_torque"))}
    assert found == {0.5: False, 1: False, 2: False, 3: True}
    for seed in range(200):
        after = changed(vary.scale_number, made, seed, "compute_torque")[0].source
        different = [(x, y) for x, y in zip(numbers_of(source), numbers_of(after)) if x != y]
        assert len(different) == 1
        (x, y), divides = different[0], " / 2" not in after
        assert x in (0.5, 1, 2, 3) and y >= 0 and (y > 0 or not divides)
        assert x != 3 or isinstance(y, int)


def test_scaling_keeps_signs():
    for seed in range(50):
        made = changed(vary.scale_number, genome("def compute_reward(a):\n    return -0.3 * a\n"), seed)[0]
        assert (call(made) * STATE["a"] <= 0.0).all()


def test_layout_and_comments_are_preserved():
    source = (
        "import torch\n\nWIDTH = (\n    0.5  # m, \u00fcber alles\n)\n\n\ndef compute_reward(a, b):\n    # what earns\n"
        "    first = torch.exp(\n        -a / WIDTH  # near\n    )\n    return first - 0.1 * b  # what costs\n"
    )
    assert genome(source).source == source
    for seed in range(20):
        made, _ = changed(vary.scale_number, genome(source), seed)
        old, new = source.splitlines(), made.source.splitlines()
        assert len(old) == len(new) and sum(x != y for x, y in zip(old, new)) == 1
        assert made.with_docstring("It.").startswith('"""It."""\n\nimport torch\n') and "\u00fcber" in made.source


def test_changed_functions_lose_their_docstring():
    source = 'def f(x):\n    """Says x."""\n    return x\n\n\n'
    source += 'def compute_reward(a):\n    """Two a."""\n    return 2.0 * f(a)\n'
    made = changed(vary.scale_number, genome(source), 0)[0]
    assert "Two a" not in made.source and "Says x" in made.source


def test_unused_code_is_removed():
    made = genome(
        "import math\nimport torch\nUNUSED = 1\n\n\ndef helper(x):\n    return x\n\n\ndef compute_reward(a, b):\n"
        "    x = helper(b)\n    y, z = x, x\n    k = 1\n    k += 1\n    return torch.abs(a)\n"
    )
    assert made.with_docstring("It.") == (
        '"""It."""\n\nimport torch\n\n\ndef compute_reward(a, b):\n    k = 1\n    k += 1\n    return torch.abs(a)\n'
    )


def test_docstring_may_have_any_text():
    for words in ('a "quoted" end"', 'three """ of them', "back\\slash", "x" * 300, "line\nbreak"):
        assert ast.get_docstring(ast.parse(genome(REWARDS["chain"]).with_docstring(words)))


@pytest.mark.parametrize("source", ["for x in y:\n    pass", "def f(:", "a.b()", "\x00"])
def test_other_top_level_statements_are_refused(source):
    with pytest.raises(UnsupportedCode):
        genome(source)


@pytest.mark.parametrize("body", ["x = a; y = a; return y", "x = a; y = a\n    return y"])
def test_several_statements_on_a_line_are_refused(body):
    with pytest.raises(UnsupportedCode, match="line 2: several statements in a line"):
        genome(f"def compute_reward(a):\n    {body}\n")


def test_aliases_and_torchscript_are_normalized():
    made = genome("@torch.jit.script\ndef compute_done(a):\n    return a > 1.0\n")
    assert made.source == "\ndef compute_terminal(a):\n    return a > 1.0\n"


FOUND = "from envcoder_bench.tasks.{}.unshaped import compute_goal, compute_observation as observe, compute_done\n"
KEPT = f"{FOUND.format('Arm')}import torch\ncompute_observation = observe\n{REWARDS['chain']}"


def test_functions_that_are_imported_or_assigned_are_kept():
    made = genome(KEPT)
    assert FOUND.format("Arm") in made.source and "compute_observation = observe\n" in made.source
    assert [function.name for function in made.shapers()] == ["compute_reward"]
    assert made.fingerprint() != genome(REWARDS["chain"]).fingerprint()
    assert made.fingerprint() != genome(KEPT.replace("Arm", "Leg")).fingerprint()
    assert made.fingerprint() == genome(KEPT.replace("import torch\n", "")).fingerprint()
    assert "import" not in Genome(KEPT, ["compute_reward"]).source


def test_taken_function_replaces_an_imported_one():
    donor = genome("def compute_goal(a):\n    return {'a': a}\ndef compute_terminal(a):\n    return a > 0\n")
    found = {}
    for seed in range(20):
        after, told = vary.take_function(genome(KEPT), donor, "x", Random(seed))
        found[told] = after.source.partition("\n")[0]
    start = "from envcoder_bench.tasks.Arm.unshaped import "
    assert found == {
        "compute_goal of x": f"{start}compute_observation as observe, compute_done",
        "compute_terminal of x": f"{start}compute_goal, compute_observation as observe",  # the alias means the same
    }
