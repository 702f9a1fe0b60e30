"""What changes and recombinations do to the numbers that functions return."""

import ast
from random import Random

import pytest
import torch

from envcoder_bench.run.prepare import baseline_sources
from envcoder_bench.search import expressions, mutate, mutate_reward, recombine
from envcoder_bench.search import terms as where
from envcoder_bench.search.genome import Genome, Unsuitable
from envcoder_bench.search.layout import WIDTH, to_source
from envcoder_bench.shaping.kinds import SHAPER_TYPES
from envcoder_bench.tasks.registry import task_names

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
    exec(made.source("It."), functions)
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


@pytest.mark.parametrize("source", REWARDS.values(), ids=REWARDS)
def test_the_terms_of_a_reward_are_found(source):
    made = genome(source)
    assert shares(call(made)) == [1.0, 1.0, 1.0]
    assert len(where.terms(made.function("compute_reward"))) == 3


def test_a_sum_that_is_subtracted_is_one_term():
    made = genome("def compute_reward(a, b, c):\n    return a - (3.0 * c - 2.0 * b)\n")
    found = where.terms(made.function("compute_reward"))
    assert [term.label for term in found] == ["a", "c"]
    expressions.scale(found[1].value, 2.0)
    assert shares(call(made)) == [1.0, 2.0, 2.0]


@pytest.mark.parametrize("source", REWARDS.values(), ids=REWARDS)
def test_dropping_a_term_takes_it_out_and_nothing_else(source):
    seen = set()
    for seed in range(12):
        made = genome(source)
        assert mutate_reward.drop_term(made, "compute_reward", Random(seed))
        made.prune()
        seen.add(tuple(shares(call(made))))
    assert seen == {(0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0)}


@pytest.mark.parametrize("source", REWARDS.values(), ids=REWARDS)
def test_reweighting_scales_one_term_and_keeps_its_sign(source):
    for seed in range(12):
        made = genome(source)
        told = mutate_reward.reweight_term(made, "compute_reward", Random(seed))
        changed = [share for share in shares(call(made)) if share != 1.0]
        assert len(changed) <= 1 and all(share >= 0.0 for share in changed)
        if changed:
            assert changed[0] == pytest.approx(float(told.split()[0]), rel=0.05, abs=0.011)


@pytest.mark.parametrize("source", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize("change", [mutate_reward.double_term, mutate_reward.reshape_term])
def test_new_shapes_change_what_they_should(source, change):
    """A copy or another shape of one term depends on that term alone: differences of the others are as before."""
    for seed in range(10):
        made = genome(source)
        assert change(made, "compute_reward", Random(seed))
        alone = []
        for name in "abc":  # does the change stay the same where only other terms change?
            others = {x: torch.rand(7) - 0.5 for x in "abc" if x != name}
            moved = call(made, **others) - call(genome(source), **others)
            alone.append(torch.allclose(moved, call(made) - call(genome(source)), atol=1e-4))
        assert sum(alone) == 1, made.source("")


@pytest.mark.parametrize("change", [mutate_reward.double_term, mutate_reward.reshape_term])
def test_kernels_keep_the_direction_of_a_term(change):
    """More of what costs still costs more, and more of what earns earns more."""
    told = set()
    for seed in range(300):
        made = genome("def compute_reward(a, b):\n    return 0.5 * a - 2.0 * torch.abs(b)\n")
        told.add(change(made, "compute_reward", Random(seed)))
        lines = torch.linspace(0.1, 3.0, 20)
        rising = call(made, a=lines, b=torch.zeros(20))
        falling = call(made, a=torch.zeros(20), b=lines)
        assert (rising.diff() > -1e-6).all() and (falling.diff() < 1e-6).all(), made.source("")
    assert any("bonus" in words for words in told)


def test_a_term_that_is_asked_for_by_its_name_is_not_dropped():
    for seed in range(10):
        made = genome(
            "def compute_reward(a, b, c):\n    parts = {'one': a, 'two': 2.0 * b, 'three': -3.0 * c}\n"
            "    return sum(parts.values()), {'seen': parts['two']}\n"
        )
        assert mutate_reward.drop_term(made, "compute_reward", Random(seed)) != "without the term 'two'"
        assert shares(call(made))[1] == 1.0


@pytest.mark.parametrize("host", REWARDS)
@pytest.mark.parametrize("donor", REWARDS)
def test_a_grafted_term_adds_the_donors_value(host, donor):
    other = REWARDS[donor].replace("* c", "* c * torch.cos(b)")
    other = genome(other.replace("state_dict['c']", "state_dict['c'] * torch.cos(state_dict['b'])"))
    for seed in range(6):
        made = genome(REWARDS[host])
        assert recombine.graft_term(made, other, "donor", Random(seed))
        added = call(made) - call(genome(REWARDS[host]))
        terms = [STATE["a"], STATE["b"], -STATE["c"] * torch.cos(STATE["b"])]
        ratios = [added[t.abs() > 0.01] / t[t.abs() > 0.01] for t in terms]
        fitting = [r for r in ratios if torch.allclose(r, r[0].expand_as(r), atol=1e-3)]
        assert fitting and fitting[0][0] > 0, made.source("")


def test_a_grafted_term_brings_all_the_steps_that_lead_to_it():
    donor = "def compute_reward(b):\n    x = torch.cos(b)\n    y = torch.zeros(7)\n    y[:] = x * x\n"
    host = genome("def compute_reward(a):\n    return a + 0.0\n")
    assert recombine.graft_term(host, genome(donor + "    z = y + y\n    b = 0.0\n    return z\n"), "donor", Random(1))
    added = (call(host) - STATE["a"]) / torch.cos(STATE["b"]) ** 2
    assert added[0].abs() > 0.01 and torch.allclose(added, added[0].expand_as(added), atol=1e-5)
    assert "b = 0.0" not in host.source("")


def test_a_grafted_term_brings_its_helpers_without_taking_the_hosts():
    host = genome("K = 2.0\n\n\ndef f(x):\n    return K * x\n\n\ndef compute_reward(a):\n    return f(a) + 0.0 * a\n")
    donor = genome("K = 5.0\n\n\ndef f(x):\n    return K + x\n\n\ndef compute_reward(b):\n    return f(b) + f(b)\n")
    before = call(host)
    assert recombine.graft_term(host, donor, "donor", Random(3))
    added = call(host) - before
    weight = added / (5.0 + STATE["b"])
    assert weight[0].abs() > 0.01
    assert torch.allclose(weight, weight[0].expand_as(weight))


def test_a_whole_function_comes_with_its_action_width():
    torque = "ACTION_DIM = 1\n\n\ndef compute_torque(actions):\n    return actions\n"
    host = genome(torque + "\n\ndef compute_reward(a):\n    return a\n")
    donor = genome("ACTION_DIM = 3\n\n\ndef compute_dof_target(action):\n    return 2.0 * action\n")
    assert recombine.take_function(host, donor, "donor", Random(0)) == "compute_dof_target of donor"
    host.prune()
    text = host.source("")
    assert "ACTION_DIM = 3" in text and "compute_torque" not in text and "compute_reward" in text


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
def test_a_grafted_part_is_appended(host, donor):
    for seed in range(4):
        made = genome(PARTS[host])
        before, other = (call(genome(PARTS[x]), "compute_observation") for x in (host, donor))
        assert recombine.graft_part(made, genome(PARTS[donor]), "donor", Random(seed))
        after = call(made, "compute_observation")
        assert torch.equal(after[:, : before.shape[1]], before)
        assert any(torch.equal(after[:, before.shape[1]], column) for column in other.unbind(-1))


@pytest.mark.parametrize("source", PARTS.values(), ids=PARTS)
def test_parts_of_an_observation_are_dropped_and_added(source):
    before = call(genome(source), "compute_observation")
    for seed in range(4):
        made = genome(source)
        assert mutate.drop_part(made, "compute_observation", Random(seed))
        made.prune()
        after = call(made, "compute_observation")
        assert 0 < after.shape[1] < before.shape[1]
        assert all(any(torch.equal(x, y) for y in before.unbind(-1)) for x in after.unbind(-1))
        made = genome(source)
        assert mutate.add_part(made, "compute_observation", Random(seed))
        assert torch.equal(call(made, "compute_observation")[:, : before.shape[1]], before)


def numbers_of(source):
    return [
        x.value for x in ast.walk(ast.parse(source)) if isinstance(x, ast.Constant) and not isinstance(x.value, str)
    ]


def test_sizes_indices_and_exponents_are_left_alone():
    source = (
        "ACTION_DIM = 4\n\n\ndef compute_torque(actions, dof_pos):\n"
        "    x = dof_pos[:, 3:7].reshape(-1, 2, 2) ** 2\n    y = torch.norm(x, p=2, dim=1) / 2\n"
        "    z = torch.zeros(dof_pos.shape[0] * 2, 1) + 3 * y[..., 1]\n"
        "    return torch.clamp(y - 0.5 * z * actions[:, 0:1], min=0.0) > 1\n"
    )
    made = genome(source)
    found = {slot.node.value for slot, *_ in where.constants(made.function("compute_torque"))}
    assert sorted(found, key=str) == [0.5, 1, 2, 3]
    keep_int = [slot.node.value for slot, is_int, _ in where.constants(made.function("compute_torque")) if is_int]
    assert keep_int == [3]
    for seed in range(200):
        changed = genome(source)
        mutate.scale_constant(changed, "compute_torque", Random(seed))
        before, after = numbers_of(source), numbers_of(changed.source(""))
        different = [(x, y) for x, y in zip(before, after) if x != y]
        assert len(before) == len(after) and len(different) == 1
        (x, y), divides = different[0], " / 2" not in changed.source("")
        assert x in (0.5, 1, 2, 3) and y >= 0 and (y > 0 or not divides)
        assert x != 3 or isinstance(y, int)


def test_signs_of_constants_stay():
    for seed in range(50):
        made = genome("def compute_reward(a):\n    return -0.3 * a\n")
        mutate.scale_constant(made, "compute_reward", Random(seed))
        assert (call(made) * STATE["a"] <= 0.0).all()


def test_what_changed_no_longer_says_what_it_was():
    made = genome('def compute_reward(a):\n    """Two times a."""\n    return 2.0 * a\n')
    mutate.scale_constant(made, "compute_reward", Random(0))
    assert "Two times" not in made.source("")


def test_what_nothing_reads_goes():
    made = genome(
        "import math\nimport torch\nUNUSED = 1\n\n\ndef helper(x):\n    return x\n\n\ndef compute_reward(a, b):\n"
        "    x = helper(b)\n    y, z = x, x\n    k = 1\n    k += 1\n    return torch.abs(a)\n"
    )
    assert made.source("It.") == (
        '"""It."""\nimport torch\n\n\ndef compute_reward(a, b):\n    k = 1\n    k += 1\n    return torch.abs(a)\n'
    )


def test_the_docstring_can_hold_anything():
    for words in ('a "quoted" end"', 'three """ of them', "back\\slash", "x" * 300, "line\nbreak"):
        assert ast.get_docstring(ast.parse(genome(REWARDS["chain"]).source(words)))


@pytest.mark.parametrize("source", ["for x in y:\n    pass", "def f(:", "a.b()", "\x00"])
def test_what_is_no_list_of_definitions_is_refused(source):
    with pytest.raises(Unsuitable):
        genome(source)


@pytest.mark.parametrize("task", task_names())
def test_layout_changes_no_meaning(task):
    for baseline in baseline_sources(task):
        for statement in ast.parse(baseline.source).body:
            text = to_source(statement)
            assert ast.dump(ast.parse(text).body[0]) == ast.dump(statement), text
            assert to_source(ast.parse(text).body[0]) == text
    long = f"x = {{'a': f({'a' * 30}, 'it, is', [1, 2, (3,)]), **k}} | g({'b' * 20} * {'c' * 20})\n"
    text = to_source(ast.parse(long).body[0])
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(long)) and max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.parametrize(
    "statement",
    [
        "x = (y := 3)",
        "x = (1,)",
        "return_ = (a, b)",
        "x = (yield_ for yield_ in z)",
        "s = 'it\\'s, \"so\", (or [not'",
        "def f(a, b=(1, 2), *c, d: 'Dict[str, int]'=None, **e) -> 'Tuple[Tensor, ...]':\n    return (a, b)",
        f"x = -({'a' * 40} * ({'b' * 40} - {'c' * 40}) ** 2 + 1e-05) if {'d' * 20} <= 3 else {'e' * 20}[:, 0:3]",
        f"x = f'{{{'a' * 60}}}, {{{'b' * 60}}} (' + {'c' * 30}",
        f"assert {'a' * 60} or {'b' * 60}, {'c' * 20}(1, 2)",
    ],
)
def test_any_statement_is_laid_out(statement):
    tree = ast.parse(statement).body[0]
    assert ast.dump(ast.parse(to_source(tree)).body[0]) == ast.dump(tree), to_source(tree)
