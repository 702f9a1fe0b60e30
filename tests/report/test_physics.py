"""What is said of the physics while a wave trains: once for each candidate and warning."""

from envcoder_bench.report.physics import MOST_TEXTS, PhysicsNews

NAMES = ["a", "a", "b", "c"]  # two seeds of the first


def test_nothing_is_said_where_nothing_happened():
    news = PhysicsNews(NAMES)
    assert news.lines([0] * 4, [0, 5, 0, 0], {}) == [] == news.last()


def test_dropped_contacts_are_said_once_for_each_candidate():
    news = PhysicsNews(NAMES)
    (line,) = news.lines([0, 3, 0, 0], [0] * 4, {})
    assert line.startswith("the simulation dropped contacts of a, because") and "do not trust" in line
    assert news.lines([1, 4, 0, 0], [0] * 4, {}) == []
    (line,) = news.lines([1, 4, 0, 1], [0] * 4, {})
    assert line.startswith("the simulation dropped contacts of c, because")


def test_all_candidates_are_said_to_be_all():
    (line,) = PhysicsNews(NAMES).lines([0, 3, 1, 9], [0] * 4, {})
    assert line.startswith("the simulation dropped contacts of all candidates, because")
    (line,) = PhysicsNews(["a"]).lines([2], [0], {})
    assert line.startswith("the simulation dropped contacts of a, because")


def test_a_warning_is_said_when_it_first_comes_and_its_total_at_the_end():
    news = PhysicsNews(NAMES)
    (line,) = news.lines([0] * 4, [1, 2, 0, 9], {"odd": 1})
    assert line == "MuJoCo warned 1 time so far: odd; physics blow-ups: c 9, a 3"
    assert news.lines([0] * 4, [1, 2, 0, 9], {"odd": 70}) == []
    assert news.last() == ["MuJoCo warned 70 times in all: odd; physics blow-ups: c 9, a 3"]
    assert news.last() == []


def test_of_endless_different_warnings_a_few_are_said():
    news = PhysicsNews(["a"])
    said = [line for k in range(50) for line in news.lines([0], [0], {f"odd {i}": 1 for i in range(k)})]
    assert len(said) == MOST_TEXTS and news.last() == []
