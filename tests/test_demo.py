"""The demo's commands are valid, and its task has what they rank."""

import importlib.util
from pathlib import Path

from envcoder_bench.cli.eval_shapers import build_parser

ROOT = Path(__file__).resolve().parents[1]


def test_it_trains_shipped_candidates_with_several_seeds():
    spec = importlib.util.spec_from_file_location("demo", ROOT / "scripts" / "demo.py")
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    for command in (demo.SWINGUP, demo.ANYMAL):
        args = build_parser().parse(command.split())
        assert len(list((ROOT / "user_functions" / args.task).glob("*.py"))) >= 5
    assert build_parser().parse(demo.SWINGUP.split()).seeds >= 3
