"""Why episodes of an mjlab task end: its termination terms, of all blocks of groups."""

from types import SimpleNamespace
from typing import Any

import torch

from envcoder_bench.sources.term_tasks.block import Terminations
from envcoder_bench.sources.term_tasks.task import TermTask


def block(fallen: int) -> Any:
    ends = Terminations(3, torch.device("cpu"))
    ends.get_term("fell_over")[fallen] = True
    terms = [SimpleNamespace(name=name, cfg={"time_out": name == "time_out"}) for name in ("fell_over", "time_out")]
    dialect = SimpleNamespace(get=lambda cfg, name, default=None: cfg.get(name, default))
    return SimpleNamespace(termination_manager=ends, ends=SimpleNamespace(terms=terms), dialect=dialect)


def test_terms_but_the_time_out_say_why_episodes_end() -> None:
    task: Any = SimpleNamespace(blocks=[block(0), block(2)])
    ends = TermTask.ends(task)
    assert list(ends) == ["fell_over"]
    assert ends["fell_over"].tolist() == [True, False, False, False, False, True]
