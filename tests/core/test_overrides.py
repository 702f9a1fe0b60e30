"""Words with ``=``: overrides of the config anywhere on the line, except where they are files or a flag's text."""

import argparse
import sys
from pathlib import Path

import pytest

from envcoder_bench.cli.eval_shapers import build_parser
from envcoder_bench.cli.overrides import split_overrides

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import benchmark


@pytest.mark.parametrize(
    "words, rest, overrides",
    [
        ("--task Ant a.b=1", "--task Ant", "a.b=1"),
        ("a=1 --task Ant b=2", "--task Ant", "a=1 b=2"),
        ("--shaper_types compute_reward compute_goal seeds=2", "--shaper_types compute_reward compute_goal", "seeds=2"),
        ("--candidates a.py seeds=2 b.py seed=1", "--candidates a.py b.py", "seeds=2 seed=1"),
        ("--candidate_idx 0 1 +x=1 ~y=2 --seeds 3", "--candidate_idx 0 1 --seeds 3", "+x=1 ~y=2"),
        ("--candidates ./a=b.py sub/c=d.py e=f.py", "--candidates ./a=b.py sub/c=d.py", "e=f.py"),
        ("--candidates there=1.py", "--candidates there=1.py", ""),
        ("--candidates there=1", "--candidates there=1", ""),
        ("--shaper_types compute_reward --candidates a.py --sim auto there=1", None, "there=1"),
        ("--task Ant there=1", "--task Ant", "there=1"),  # a folder of that name changes nothing here
        ("--output_dir lr=3 a=1", "--output_dir lr=3", "a=1"),
        ("--output_dir=lr=3 a=1", "--output_dir=lr=3", "a=1"),
        ("--seeds a=1 3", "--seeds 3", "a=1"),
        ("--num_envs -6 a=1", "--num_envs -6", "a=1"),
    ],
)
def test_overrides_are_split_from_flags_and_files(words, rest, overrides, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there=1.py").touch()
    (tmp_path / "there=1").mkdir()
    found = split_overrides(build_parser(), words.split())
    assert found[1] == overrides.split()
    if rest is not None:
        assert found[0] == rest.split()
    args = build_parser().parse(words.split())
    assert args.overrides == overrides.split()


def test_overrides_are_split_from_flags_of_subcommands():
    parser = benchmark.build_parser("", benchmark.MEASUREMENTS)
    words = ["scaling", "--candidates", "4", "16", "a.b=1", "--envs", "64", "c=2", "--out", "x=y.jsonl", "d=3"]
    args = benchmark.parse(parser, words)
    assert (args.candidates, args.envs, args.out) == ([4, 16], 64, Path("x=y.jsonl"))
    assert args.overrides == ["a.b=1", "c=2", "d=3"]
    args = benchmark.parse(parser, ["scaling", "task.sim.dt=0.01", "--candidates", "4", "sim=auto", "--task", "Ant"])
    assert (args.candidates, args.task, args.overrides) == ([4], "Ant", ["task.sim.dt=0.01", "sim=auto"])
    with pytest.raises(SystemExit):
        benchmark.parse(parser, ["scaling", "--envs", "4", "5"])


def test_numeric_list_flags_take_no_overrides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=1").touch()
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, nargs="+")
    assert split_overrides(parser, ["--envs", "4", "a=1"]) == (["--envs", "4"], ["a=1"])
