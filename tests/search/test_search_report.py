"""The report of a search: its content, and that untrusted text is escaped."""

import json
import re
import struct

import numpy as np
import pytest
from page_fakes import HtmlPage

from envcoder_bench.report.figures import spread
from envcoder_bench.report.page.shell import visible
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.search.archive import Archive, Attempt
from envcoder_bench.search.llm import Usage
from envcoder_bench.search.report import SearchFacts, ancestry, family, write_report
from envcoder_bench.shaping.contract import Fault

# what an earlier test of this process left open is not the picture's fault
NO_WARNINGS = pytest.mark.filterwarnings(
    "error", "default::ResourceWarning", "default::pytest.PytestUnraisableExceptionWarning"
)

HUMAN = '''"""Human."""


def compute_reward(pole_angle):
    """Upright."""
    return 1.0 - pole_angle**2


def compute_terminal(pole_angle):
    return pole_angle > 1.0
'''
CHILD = HUMAN[: HUMAN.index("\n\ndef compute_terminal")].replace("1.0 -", "2.0 -")


def archive(*attempts, human=0.5):
    baselines = {
        "human": Attempt("human", 0, HUMAN, fitness=human),
        "unshaped": Attempt("unshaped", 0, "", fitness=human and 0.1),
    }
    return Archive(list(attempts), baselines)


RAISED = Fault("raised", "f.py", 3, "compute_reward")


def failed(name, round, fault=RAISED, parents=("human",)):
    return Attempt(name, round, "def f(", parents, status="failed at load", fault=fault)


def read(folder):
    page = HtmlPage((folder / "report.html").read_text(encoding="utf-8"))
    return page, " ".join("".join(page.text).split())


@NO_WARNINGS
def test_report_has_best_usage_final_evaluation_and_sources(tmp_path):
    best = Attempt("r2_00", 2, CHILD, ("r1_00", "human"), "r1_00 and human: doubled", fitness=0.9)
    first = Attempt("r1_00", 1, HUMAN, ("human",), "human: nothing", fitness=0.6, by_seed={0: 0.6})
    facts = SearchFacts(
        task="Cartpole",
        task_description="stay up",
        fitness_meaning="fraction upright",
        llm="gpt-x",
        shaper_types=["compute_reward"],
        rounds_planned=3,
        stopped="out of money",
        usage={1: Usage(2, 1000, 234, 0.25), 2: Usage(2, 1, 1, 0.5)},
        final=[
            Ranked(1, "r2_00", "ok", 0.85, 0.8, 0.9, episodes=1280, seeds=(5, 6, 7, 8, 9)),
            Ranked(None, "human", "failed"),
        ],
        final_note="clear of chance",
    )
    paths = write_report(tmp_path, archive(first, failed("r1_01", 1), best), facts)
    assert paths == [tmp_path / "report.html", tmp_path / "fitness.png"]
    shown, words = read(tmp_path)
    for expected in (
        "3, 1 of them failed",
        "clear of chance", "stay up", "fraction upright", "gpt-x", "2 of 3", "3, 1 of them failed", "1,236", "$0.75",
        "out of money", "0.850 ± 0.050", "1,280", "human (0.500) → r1_00 (0.600) → r2_00 (0.900)",
        "r1_00 and human: doubled", "return 2.0 - pole_angle**2", "What it changes of r1_00",
        "f.py:3: in compute_reward: raised", "failed at load",
    ):  # fmt: skip
        assert expected in words, expected
    sizes = [struct.unpack(">II", (tmp_path / "fitness.png").read_bytes()[16:24])]
    assert sizes == [(1500, 1230)]
    assert any(name == "src" and value.startswith("data:image/png;base64,") for name, value in shown.attributes)


def seeded(name, by_seed, round=0, source=HUMAN, parents=()):
    return Attempt(name, round, source, parents, fitness=sum(by_seed.values()) / len(by_seed), by_seed=by_seed)


@NO_WARNINGS
def test_report_ranks_by_the_difference_to_the_baseline(tmp_path):
    luck = {0: 0.043, 1: 0.095, 2: 0.247}
    first = seeded("r1_00", {0: 0.206}, 1, CHILD, ("human",))
    last = seeded("r3_00", {2: 0.2471}, 3, CHILD, ("r1_00",))
    made = Archive(
        [first, seeded("r2_00", {1: 0.1}, 2), last],
        {"human": seeded("human", luck), "unshaped": seeded("unshaped", dict.fromkeys(luck, 0.02))},
        seeds={1: (0,), 2: (1,), 3: (2,)},
    )
    write_report(tmp_path, made, SearchFacts("Cartpole", llm="replay:/home/me/s1", final_note="see /a/b/c.py: no"))
    _, words = read(tmp_path)
    for expected in (
        "The best: r1_00", "human (0.128) → r1_00 (0.206, +0.163)", "└─ r3_00 0.247, +0.000",
        "roundcandidatesfailedhumanbestfitnessvs humanmedian", "1100.043r1_000.206+0.1630.206",
        "3100.247r3_000.247+0.0000.247", "replay:s1", "see c.py: no",
    ):  # fmt: skip
        assert expected in words, expected
    table = words[words.index("n/m seeds: the others failed") :]  # the rows of the ranking
    assert words.index("score By") < words.index("fitness Mean over the seeds") < words.index("vs human Mean")
    assert table.index("r1_00") < table.index("r3_00") < table.index("unshaped")
    assert struct.unpack(">II", (tmp_path / "fitness.png").read_bytes()[16:24]) == (1500, 1230)  # two panels


def hostile_search(attack):
    best = Attempt(f"r1_{attack}", 1, f"x = '''{attack}'''", (attack,), attack, fitness=1.0)
    bad = Attempt("r1_01", 1, attack, ("human",), attack, "failed", None, Fault(attack))
    names = ("task", "task_description", "fitness_meaning", "llm", "stopped", "final_note")
    final = [Ranked(1, attack, "ok", 1.0, 0.9, 1.1, episodes=5, seeds=(1,))]
    return archive(best, bad), SearchFacts(**dict.fromkeys(names, attack), shaper_types=[attack], final=final)


def test_untrusted_text_is_escaped(tmp_path):
    attack = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'>&lt;\x00\x1b[31m\u202e\udc80{{x}}"
    write_report(tmp_path, *hostile_search(attack))
    shown, words = read(tmp_path)
    (tmp_path / "plain").mkdir()
    write_report(tmp_path / "plain", *hostile_search("x"))
    plain, _ = read(tmp_path / "plain")
    tags = [[tag for tag, _ in page.tags if tag != "span"] for page in (shown, plain)]
    assert tags[0] == tags[1]
    assert not [name for name, _ in shown.attributes if name.startswith("on")]
    sources = [value for name, value in shown.attributes if name == "src"]
    assert len(sources) == 1 and sources[0].startswith("data:image/png")
    assert words.count("<script>alert(1)</script>") > 8  # readable, all the same
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search("[\x00-\x08\x1b\u202e]", page)
    assert "\\u202e" in page and "\\udc80" in page
    policy = next(value for name, value in shown.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and tags[0].count("script") == 2


def test_each_candidate_has_its_source_and_a_diff_to_its_parent(tmp_path):
    child = Attempt("r2_00", 2, CHILD.replace("2.0", "3.0"), ("r1_00",), "r1_00: more", fitness=0.9, by_seed={1: 0.9})
    first = Attempt("r1_00", 1, CHILD, ("human",), "human: doubled", fitness=0.6, by_seed={0: 0.6})
    rounds = tmp_path / "rounds" / "1" / "run"
    rounds.mkdir(parents=True)
    header = "iteration,env_steps,candidate,seed,fitness,shaped_return,kl,learning_rate,entropy,value_loss\n"
    (rounds / "curves.csv").write_text(header + "1,64,r1_00,0,0.5,1,0.1,0.1,1,1\n2,128,r1_00,0,0.6,1,0.1,0.1,1,1\n")
    bad = failed("r2_01", 2, Fault("raised", "r2_01.py", 1, "f"))
    write_report(tmp_path, archive(first, child, bad), SearchFacts("Cartpole"))
    shown, words = read(tmp_path)
    for title in ("The search", "Ranking", "Learning curves", "Parents and variants", "Candidates"):
        assert title in words, title
    assert "Differences to r1_00" in words and "- return 2.0 - pole_angle**2" in words
    assert "+ return 3.0 - pole_angle**2" in words
    assert "def compute_terminal" not in words.split("Differences to human")[1].split("Source")[0]  # not its concern
    data = json.loads(shown.scripts[0])
    assert data["curves"]["metrics"]["fitness"] == {"r1_00": {"mean": [0.5, 0.6]}}
    assert ("class", "hll") in shown.attributes


def test_invisible_characters_are_shown_as_codes():
    assert visible("a\u200bb\x07\n\t<&>\U000e0041") == "a\\u200bb\\u0007\n\t<&>\\U000e0041"


@pytest.mark.slow
@NO_WARNINGS
@pytest.mark.parametrize(
    "rounds, count, kind",
    [
        (0, 0, "equal"), (1, 1, "equal"), (1, 10, "long"), (3, 5, "spread"), (3, 5, "failed"), (10, 16, "long"),
        (40, 2, "spread"),
    ],
)  # fmt: skip
def test_plots_are_drawn_for_any_number_of_rounds(tmp_path, rounds, count, kind):
    attempts = []
    for k in range(rounds * count):
        number = k // count + 1
        name = f"r{number}_{k:02d}" + ("_$_{$" * 30 if kind == "long" else "")
        if kind == "failed" or (kind == "spread" and k % 3 == 1):
            attempts.append(failed(name, number, Fault("e" * 5000)))
        else:
            fitness = 0.5 if kind == "equal" else -3.0 + 1000.0 * k
            attempts.append(Attempt(name, number, HUMAN, ("human",), fitness=fitness))
    write_report(tmp_path, archive(*attempts, human=None if kind == "failed" else 0.5), SearchFacts())
    assert (tmp_path / "fitness.png").read_bytes().startswith(b"\x89PNG")
    _, words = read(tmp_path)
    if kind == "failed" or not attempts:
        assert "No candidate has a fitness yet." in words
    else:
        assert "What it changes of human" in words


def test_ancestry_ends_at_unknown_or_repeated_parents():
    a, b = Attempt("a", 1, "", ("b",), fitness=1.0), Attempt("b", 1, "", ("a",), fitness=1.0)
    assert [x.name for x in ancestry(archive(a, b), a)] == ["b", "a"]
    lost = Attempt("c", 2, "", ("gone",), fitness=1.0)
    assert [x.name for x in ancestry(archive(lost), lost)] == ["c"]
    assert "c  1.000  ← the best" in family(archive(lost))


def test_family_tree_lists_each_attempt_once_below_its_first_parent():
    a = Attempt("a", 1, "", ("human",), fitness=0.25)
    b = Attempt("b", 2, "", ("a", "unshaped"), fitness=0.75)
    assert family(archive(a, b, failed("c", 2), failed("d", 2, parents=("a",)))).splitlines() == [
        "human  0.500",
        "├─ a  0.250",
        "│  ├─ b  0.750  with unshaped  ← the best",
        "│  └─ d  failed at load",
        "└─ c  failed at load",
        "unshaped  0.100",
    ]


def test_spread_moves_labels_as_little_as_possible():
    assert spread([0.1, 0.5, 0.9], 0.1, 1.0) == pytest.approx([0.1, 0.5, 0.9])
    assert spread([0.5, 0.5, 0.5], 0.1, 1.0) == pytest.approx([0.4, 0.5, 0.6])
    assert spread([0.0, 0.0, 0.9], 0.1, 1.0) == pytest.approx([0.0, 0.1, 0.9])
    assert spread([0.95, 1.0, 1.0], 0.1, 1.0) == pytest.approx([0.8, 0.9, 1.0])
    assert spread([], 0.1, 1.0) == []
    wanted = np.sort(np.random.default_rng(0).random(12))
    assert np.diff(spread(wanted.tolist(), 0.05, 1.0)).min() >= 0.05 - 1e-12
