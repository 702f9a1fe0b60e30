"""Variants of the best candidate's reward terms as proposals, and what they tell models and evolve."""

from dataclasses import replace

import pytest
import torch

from envcoder_bench.search.archive import FAILED, Archive, Attempt, read_archive, write_archive
from envcoder_bench.search.evolve import EvolveProposer
from envcoder_bench.search.prompt.feedback import feedback
from envcoder_bench.search.terms import effects_text, reward_terms, scaled, tendencies, term_variants
from envcoder_bench.shaping.source import Source

REWARD = ["compute_reward"]
IN_DICT = """def compute_reward(x, y):
    terms = {"track": 0.5 * torch.exp(-x), "cost": -y**2}
    return torch.clamp(terms["track"] + terms["cost"], max=9.0), terms
"""
VARIABLES = """def compute_reward(x, y):
    track = 0.5 * torch.exp(-x)
    cost = -(y**2)
    total = track + cost
    return total, {"track": track, "cost": cost, "total": total}
"""
NOT_OF_THE_REWARD = """def compute_reward(x, y):
    track, speed = torch.exp(-x), x
    size = y**2
    return track - y**2, {"cost": -(y**2), "all": track * 2.0, "speed": speed, "size": size}
"""
SEEN = {"human": Attempt("human", 0, "", fitness=0.5, by_seed={1: 0.5, 2: 0.5, 3: 0.5})}


def values(source):
    functions = {"torch": torch}
    exec(source.text, functions)
    return functions["compute_reward"](torch.linspace(0, 2, 9), torch.linspace(-1, 1, 9))


@pytest.mark.parametrize("text", [IN_DICT, VARIABLES])
@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0, 1.37])
def test_factor_scales_one_term_in_the_reward_and_in_the_component(text, factor):
    source = Source(text)
    reward, terms = values(source)
    assert list(reward_terms(source)) == ["track", "cost"]
    for name in ("track", "cost"):
        changed, others = values(scaled(scaled(source, {name: 0.25}), {name: 4.0 * factor}))
        assert torch.allclose(changed, reward + (factor - 1.0) * terms[name], atol=1e-6)
        for other in ("track", "cost"):
            assert torch.allclose(others[other], terms[other] * (factor if other == name else 1.0), atol=1e-6)


def test_components_that_the_reward_is_not_made_of_are_no_terms():
    for text in (NOT_OF_THE_REWARD, "def compute_reward(x):\n    return x\n", "def f(x):\n    return x, {}\n"):
        assert not reward_terms(Source(text))
    assert list(reward_terms(scaled(Source(VARIABLES), {"track": 0.0}))) == ["cost"]  # what is left out stays so


def searched(count=4, rounds=3):
    """A search whose best is the first; ``cost`` does harm, and ``track`` hardly matters."""
    best = Attempt("r1_00", 1, VARIABLES, fitness=0.9, by_seed=dict.fromkeys((1, 2, 3, 4), 0.9))
    archive = Archive([best], SEEN)
    for number in range(2, rounds + 1):
        for k, p in enumerate(term_variants(archive, number, count, 2, REWARD)):
            effect = 0.01 * k if p.term == "track" else 0.4 * (min(p.factor, 1.0) - 1.0) - 0.3 * (p.factor > 1)
            one = Attempt(p.name, number, p.source, p.parents, p.origin, term=p.term, factor=p.factor)
            archive.attempts.append(one.measured_again({number: 0.88 + effect}))
    return archive


def test_variants_are_the_last_of_a_round_and_never_repeated(tmp_path):
    archive = searched(rounds=4)
    variants = archive.attempts[1:]
    assert [v.name for v in variants] == [f"r{k}_0{j}" for k in (2, 3, 4) for j in (2, 3)]
    assert {(v.term, v.factor) for v in variants} == {(t, f) for t in ("track", "cost") for f in (0.0, 0.5, 2.0)}
    assert len({v.source for v in variants}) == 6 and not term_variants(archive, 5, 4, 2, REWARD)
    write_archive(tmp_path / "archive.json", searched())
    read = read_archive(tmp_path / "archive.json")
    assert term_variants(read, 4, 4, 2, REWARD) == term_variants(searched(), 4, 4, 2, REWARD) != []
    assert [p.name for p in term_variants(searched(rounds=1), 2, 3, 9, REWARD)] == ["r2_00", "r2_01", "r2_02"]
    for text in ("print(1)\n", "def compute_reward(:", "", "def compute_reward(x):\n    return x\n"):
        assert not term_variants(Archive([Attempt("r1_00", 1, text, fitness=1.0)]), 2, 4, 2, REWARD)


def test_prompt_has_the_effects_of_the_best():
    archive = searched(rounds=4)
    assert "cost: left out -0.42 (one seed), halved" in effects_text(archive.attempts[0], archive)
    again = [
        archive.attempts[0],
        *(v.measured_again({1: v.by_seed[max(v.by_seed)] + 0.01}) for v in archive.attempts[1:]),
    ]
    assert "cost: left out -0.415 ± 0.0" in effects_text(again[0], Archive(again, SEEN))
    assert effects_text(archive.attempts[0], archive) in feedback(archive, 9_000)
    assert not effects_text(archive.attempts[1], archive) and not tendencies(searched(rounds=1))
    # a variant that failed or was stopped, or that shares no seed, was not compared
    for change in ({"status": FAILED}, {"stopped_at": 3}, {"by_seed": {9: 0.9}}):
        unknown = [archive.attempts[0], *(replace(v, **change) for v in archive.attempts[1:])]
        assert not tendencies(Archive(unknown, SEEN))


def test_evolve_scales_terms_of_large_effects_the_way_they_point_to():
    archive = searched(rounds=4)
    assert tendencies(archive)["cost"].size > 10 * tendencies(archive)["track"].size
    plain = Archive([replace(a, term="", factor=1.0) for a in archive.attempts], SEEN)

    def origins(searched, selection=True):
        proposals = EvolveProposer(REWARD, selection=selection).propose(searched, 5, 60)
        return [change for p in proposals for change in p.origin.split(": ", 1)[1].split("; ")]

    changes = [c for c in origins(archive) if " times '" in c]
    factors = {name: [float(c.split()[0]) for c in changes if f"'{name}'" in c] for name in ("track", "cost")}
    assert len(factors["cost"]) > 8 * len(factors["track"]) and len(factors["cost"]) > 20
    assert sum(f > 1.0 for f in factors["cost"]) > 0.6 * len(factors["cost"])
    # without measured effects, or without selection, nothing is drawn for them
    assert not any(" times '" in c for c in origins(plain))
    assert origins(archive, selection=False) == origins(plain, selection=False)
