"""Which seed a clip shows, and which part of its episode."""

from types import SimpleNamespace

from envcoder_bench.results.rows import FAILED, Result
from envcoder_bench.run.folder.policies import median_seed
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.video.page import CLIP, _describe_length, seed_text


def run_of(*fitness):
    return SimpleNamespace(rows=[Result("a", 7 + k, "ok", x) for k, x in enumerate(fitness)])


def test_clip_is_of_the_median_seed_and_says_so():
    run = run_of(0.9, 0.1, 0.5)
    assert median_seed(run, "a") == 9 and median_seed(run, "b") is None
    assert [seed_text(run, "a", seed) for seed in (9, 7, 8)] == [
        "seed 9, the median of 3", "seed 7, the best of 3", "seed 8, the worst of 3",
    ]  # fmt: skip
    even = run_of(0.4, 0.3, 0.2, 0.1)  # the lower one of two; a seed that failed has no policy
    even.rows.append(Result("a", 99, FAILED, fault=Fault("x")))
    assert median_seed(even, "a") == 9 and seed_text(even, "a", 8) == "seed 8, one of 4"
    assert seed_text(run_of(0.4), "a", 7) == "seed 7"


def test_note_says_how_many_clips_end_early():
    long = [20.0, 20.0, 20.0]
    assert _describe_length([CLIP.seconds] * 3, long) == " Videos show the first 5 s."
    assert _describe_length([2.0, 2.0], [2.0, 1.9]) == "" == _describe_length([0.1], [0.08]), "all of them"
    words = _describe_length([5.0, 1.2, 0.6], long)
    assert "2 videos of 3 end after 0.6 to 1.2 s" in words and "envcoder-bench play" in words
