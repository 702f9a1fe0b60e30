"""Run by test_new_kind in a copy of the package whose table of kinds has one row more, ``compute_bonus``."""

import sys
from pathlib import Path

import torch
from jail_fakes import judged, make_task, state_of
from shaping_fakes import Groups, load, shaping

import envcoder_bench
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.core import noise
from envcoder_bench.report.breakdown import LABELS
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.search.prompt.prompts import load_templates, system_prompt
from envcoder_bench.shaping.contract import Candidate, CandidateError, Fault
from envcoder_bench.shaping.source import shaping_source
from envcoder_bench.tools.describe import describe

BONUS = "def compute_bonus(state_dict):\n    return 2.0 * state_dict['dof_pos'][:, 0]\n"
EXTRA = "def compute_extra(dof_pos):\n    return dof_pos[:, 1]\n"
DRAWN = "def compute_bonus(dof_pos):\n    return torch.rand(dof_pos.shape[0])\n"
PLAIN = "def compute_reward(dof_pos):\n    return dof_pos[:, 0]\n"


def fault(code: str) -> str:
    try:
        shaping(code)
    except CandidateError as error:
        return str(error)
    raise AssertionError("it was taken")


def loaded_and_checked() -> None:
    assert list(load(BONUS).functions) == list(load(EXTRA).functions) == ["compute_bonus"]
    wrong = "def compute_bonus(dof_pos):\n    return dof_pos\n"
    assert fault(wrong).startswith("mine.py:2: in compute_bonus: returned shape (4, 3); it must be (4,)")
    assert "NaN or infinity in 4 of 4" in fault("def compute_bonus(dof_pos):\n    return dof_pos[:, 0] / 0 * 0\n")
    assert "(did you mean compute_bonus?)" in fault("def compute_bonu(dof_pos):\n    return dof_pos\n")
    assert fault(f"{BONUS}{EXTRA}").endswith("compute_extra and compute_bonus (line 1) are one function; keep one")


def dispatched(compiled: bool) -> None:
    groups = Groups([BONUS, PLAIN, DRAWN], compiled=compiled)
    assert groups.refused == []
    made = groups.dispatch.run("bonus", 3)["value"]
    first = groups.task.state["dof_pos"][:4, 0]
    drawn = noise.uniform(0, 3, 48, 4, 1)[:, 0]
    torch.testing.assert_close(made, torch.cat((2.0 * first, torch.zeros(4), drawn)))
    assert len(groups.dispatch.stages["bonus"].traced) == 2 * compiled


def told() -> None:
    assert "  compute_bonus: (n,) float, added to the reward" in describe("Cartpole")
    assert LABELS["bonus"] == "shaping: bonus"
    asked = ["compute_reward", "compute_bonus"]
    text = system_prompt(load_templates(), RunSpec.of(compose_config("Cartpole")), "", "", asked)
    assert "- `compute_bonus(state_dict)` returns (n,) float, added to the reward. It is called after the phys" in text
    assert list(shaping_source(f"{BONUS}{PLAIN}", asked).shapers(asked)) == asked


def jailed() -> None:
    made = judged({"good": BONUS, "bad": "def compute_bonus(dof_pos):\n    return dof_pos\n"}, task="Cartpole")
    assert isinstance(made["bad"], Fault) and "in compute_bonus: returned shape (8, 2)" in str(made["bad"])
    good = made["good"]
    assert isinstance(good, Candidate), str(good)
    state = state_of(make_task("Cartpole"))
    program = good.functions["compute_bonus"]
    given = program.call(state, torch.zeros(8, 1))
    assert program.program is not None and torch.equal(given, 2.0 * state["dof_pos"][:, 0])


def check(words: list[str]) -> int:
    """Check the kind, and then run the command."""
    assert "tests" not in Path(envcoder_bench.__file__).parts and "compute_bonus" in load(BONUS).functions
    loaded_and_checked()
    dispatched(compiled=False)
    dispatched(compiled=True)
    told()
    if sys.platform.startswith("linux"):
        jailed()
    return main(words)
