"""Measure what the pages of benchmarks/ report, and write the pages from the records.

    python benchmarks/measure.py scaling --candidates 250 --out benchmarks/benchmarks.jsonl
    python benchmarks/measure.py learning --task Ant --seconds 60 --out benchmarks/benchmarks.jsonl
    python benchmarks/measure.py report                              records to the tables and pictures of the pages

Beside the measurements of scripts/benchmark.py there are those that compare, and that take long. Every measurement
prints a table; with --out FILE it also appends its records, a JSON object per line, as they come.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "scripts"), str(ROOT / "tests" / "fakes")]

import benchmark  # noqa: E402

SIZE = {**benchmark.SIZE, "--candidates": (16, "candidates")}
MEASUREMENTS = {
    **benchmark.MEASUREMENTS,
    "learner": (
        "measurements.learner",
        "acting and learning, all candidates in one batch and one after another",
        {**SIZE, **benchmark.TIMED, "--loop_candidates": (0, "candidates in the loop, fewer if it is slow; 0: all")},
    ),
    "devices": (
        "measurements.devices",
        "a run on several devices, beside one",
        {"--candidates": (1000, "candidates"), "--envs": SIZE["--envs"],
         "--devices": (["0", "0,1"], "values of eval-shapers --devices"), "--iterations": (60, "iterations")},
    ),
    "mjlab": (
        "measurements.mjlab",
        "a task of mjlab without learning: ours, mjlab's own environment, and the simulation alone",
        {"--task": ("Mjlab-Velocity-Flat-Unitree-Go1", "a name of mjlab's registry"), "--envs": SIZE["--envs"],
         "--steps": (50, "control steps in a round"), "--rounds": (3, "rounds in turn, of which the median counts")},
    ),
    "mjlab_learning": (
        "measurements.mjlab",
        "how a task of mjlab is learned, by ours and by mjlab's own runner",
        {"--task": ("Mjlab-Velocity-Flat-Unitree-Go1", "a name of mjlab's registry"), "--envs": SIZE["--envs"],
         "--sides": (["ours", "mjlab"], "what trains"), "--seeds": (3, "policies of each"),
         "--iterations": (300, "iterations"), "--points": (10, "evaluations"),
         "--seconds": (0.0, "end before this time of a side, start included; 0: never"),
         "--episodes": (64, "episodes of each policy in an evaluation")},
    ),
    "designs": (
        "measurements.certainty",
        "how often a ranking's statements are right, in simulated runs of designs, and its power in recorded ones",
        {"--runs": (400, "simulated runs of each kind and size; of large ones fewer"),
         "--only": ("", "designs with this in their name; recorded: the recorded trainings")},
    ),
    "campaigns": (
        "measurements.campaigns",
        "how often a campaign of an agent says *better*, in simulations of equal candidates, and of one that is better",
        {"--runs": (200, "simulated campaigns of each kind")},
    ),
    "hacks": (
        "measurements.hacks",
        "which of the planted hacks, and of all shipped candidates, a run says to be hacked",
        {"--task": (["Cartpole", "CartpoleSwingup", "Anymal"], "tasks"), "--seeds": (3, "seeds"),
         "--envs": (64, "environments of each candidate"), "--iterations": (100, "iterations"),
         "--points": (8, "evaluations")},
    ),
    "fragile": (
        "measurements.stress",
        "controllers that are written down, of which two cannot stand a disturbance, and what their stress says",
        {},
    ),
    "planted": (
        "measurements.stress",
        "faults that are planted in a trained policy, and what the columns of its stress say of them",
        {"--run": ("", "a run of Anymal with the human baseline; without one it is trained, on the CPU"),
         "--envs": (256, "environments"), "--iterations": (450, "iterations"),
         "--draws": (16, "draws of the stress grid"), "--episodes": (2, "episodes of each draw, of 5 s")},
    ),
    "searches": (
        "measurements.searches",
        "searches by evolve with variants of reward terms and without, in pairs",
        {"--task": ("Anymal", "task"), "--start": ("human", "baseline or file whose reward they begin with"),
         "--searches": (5, "pairs of searches"), "--rounds": (4, "rounds"),
         "--candidates": (12, "candidates of a search in a round"),
         "--term_variants": (3, "of them, variants of terms in one search of a pair"),
         "--envs": (256, "environments of each candidate"), "--iterations": (200, "iterations"),
         "--held_out": (3, "seeds with which the best of each search is trained again")},
    ),
    "search_rules": (
        "measurements.search_rules",
        "simulated searches: how often the chosen candidate is the best, and by how much it is not",
        {"--runs": (200, "simulated searches of each kind and design")},
    ),
    "recorded_searches": (
        "measurements.search_rules",
        "searches among recorded candidates, trained with many seeds once, by the earlier rule and the present",
        {"--task": ("CartpoleSwingup", "task"),
         "--recorded": (str(ROOT / "benchmarks/starts/cartpole_swingup.jsonl"), "transcript of a search"),
         "--seeds": (30, "seeds of each candidate"), "--batch": (5, "seeds of a run, which resumes"),
         "--runs": (200, "searches with seeds that are drawn of those"),
         "--envs": (64, "environments of each candidate"), "--iterations": (80, "iterations")},
    ),
    "evolving_searches": (
        "measurements.search_rules",
        "searches by evolve, by the earlier rule and the present, in pairs of equal env-steps",
        {"--task": ("CartpoleSwingup", "task"), "--searches": (10, "pairs of searches"),
         "--together": (5, "pairs in one run, with the same seeds"), "--rounds": (4, "rounds"),
         "--candidates": (10, "candidates of a round by the earlier rule"),
         "--fewer": (6, "by the present rule, which trains more of them again"),
         "--envs": (64, "environments of each candidate"), "--iterations": (80, "iterations"),
         "--held_out": (5, "seeds with which the chosen ones are trained again")},
    ),
    "learning": (
        "measurements.learning",
        "how a task's baselines learn, over env-steps and time, several seeds at once",
        {
            "--task": ("Anymal", "task"), "--candidates": (["human", "unshaped"], "baselines, or candidate files"),
            "--seeds": (5, "policies of each"), "--envs": (4096, "environments of each policy"),
            "--seconds": (60.0, "time of training, of all policies side by side"), "--points": (12, "evaluations"),
            "--episodes": (64, "episodes of each policy in an evaluation"),
        },
    ),
}  # fmt: skip


def main() -> None:
    from pages.tables import COLUMNS

    from envcoder_bench.core.errors import exit_on_user_error

    with exit_on_user_error("measure"):
        if sys.argv[1:] == ["report"]:
            from pages.render import report

            print(*report(ROOT / "benchmarks", ROOT / "README.md"), sep="\n")
            return
        args = benchmark.parse(benchmark.build_parser(__doc__ or "", MEASUREMENTS), sys.argv[1:])
        benchmark.measure(args, MEASUREMENTS, COLUMNS)


if __name__ == "__main__":
    main()
