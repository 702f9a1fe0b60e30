"""A function returns the same numbers called, compiled and jailed, for any number of environments."""

import functools
import sys
import warnings

import pytest
import torch
from shaping_fakes import BASELINE, FakeTask, Groups, load
from torch import Tensor
from tricky import TRICKY

from envcoder_bench.compile.trace import trace
from envcoder_bench.jail.client import examine
from envcoder_bench.shaping.checking import check
from envcoder_bench.shaping.contract import Candidate, assemble

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the jail needs Linux"),
]
SIZES = (131, 256)
STEPS = 2


@functools.cache
def jailed() -> dict[str, Candidate]:
    """Return candidates whose programs are those of any number of environments."""
    n = SIZES[0]
    task = FakeTask(n)
    sources = [(name, "candidate.py", code) for name, code in TRICKY.items()]
    state = {**task.state, "progress_buf": torch.zeros(n, dtype=torch.int64)}
    verdicts = examine(sources, task, state, BASELINE, 3, sizes=SIZES)
    refused = {name: str(verdict) for name, verdict in verdicts.items() if not isinstance(verdict, Candidate)}
    assert not refused, refused
    return verdicts  # type: ignore[return-value]


class Jailed(Groups):
    """Groups whose functions come from the jail."""

    def __init__(self, n: int) -> None:
        super().__init__([*TRICKY.values()], n=n)
        self.candidates, probe = jailed(), {key: x[:n] for key, x in self.task.state.items()}
        for g, candidate in enumerate(self.candidates.values()):
            checked = check(assemble(candidate, load(BASELINE, "human")), probe, self.task.constants, self.task)
            self.shapings[g], refused = trace(checked, probe, self.task.constants, self.task)
            assert not refused
        self.renew()


@pytest.fixture(scope="module")
def runs() -> list[list[dict[str, Tensor]]]:
    n, codes = SIZES[1], [*TRICKY.values()]  # the jail's state has SIZES[0]; tests/compile has other numbers
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a kernel that disagrees would warn
        compiled = Groups(codes, n=n, compiled=True)
        assert not compiled.refused, [str(one) for one in compiled.refused]
        ways = [Groups(codes, n=n), compiled, Jailed(n)]
        made = []
        for groups in ways:
            steps = groups.run(STEPS)
            assert groups.dispatch.failures == {}
            made.append([groups.of(step, g) for g in range(len(codes)) for step in steps])
        for groups in ways[1:]:
            assert not any(stage.calls for stage in groups.dispatch.stages.values())
    return made


@pytest.mark.parametrize("name", TRICKY)
def test_eager_compiled_and_jailed_results_agree(runs, name):
    place = [*TRICKY].index(name)
    own = slice(place * STEPS, (place + 1) * STEPS)
    for called, compiled, from_jail in zip(*(way[own] for way in runs)):
        for key, want in called.items():
            for got in (compiled[key], from_jail[key]):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True, msg=f"{name}: {key}")
            assert torch.equal(compiled[key], from_jail[key])  # the same program


def test_at_least_40_examples_are_compared():
    assert len(TRICKY) >= 40
