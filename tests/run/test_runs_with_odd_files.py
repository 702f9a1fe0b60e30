"""The preparation of a run goes on whatever single files raise."""

from dataclasses import replace

import pytest
from odd_files import FILES, MODULES, reward

from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.prepare import groups
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.spec import CandidateSource

SMALL = ["sim=mujoco_cpu", "device=cpu", "num_envs_per_candidate=2", "evaluation.num_envs=1", "seeds=1"]
CHOSEN = (
    *MODULES, "KeyboardInterrupt, at import", "GeneratorExit, in the function", "recursion limit, at import",
    "message of surrogates and escapes, in the function", "name that is no text, at import",
)  # fmt: skip


def prepared(texts):
    sources = [CandidateSource(name, f"{name}.py", text) for name, text in texts.items()]
    spec = resolve("Cartpole", SMALL)
    return prepare(replace(spec, sources=tuple(sources)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_odd_file_is_one_casualty_at_most():
    texts = {f"odd{k}": FILES[name] for k, name in enumerate(CHOSEN)}
    ready, faults = prepared({**texts, "good": reward()})
    assert {group.name for group in ready} | set(faults) == {"good", *texts} and "good" not in faults
    assert len(faults) > 8 and all(str(error).isprintable() for error in faults.values())


def test_an_error_of_this_package_with_one_file_is_that_files(monkeypatch):
    def assemble(candidate, *arguments):
        if candidate.name == "odd":
            raise RecursionError("too deep")
        return whole(candidate, *arguments)

    whole = groups.load_and_assemble
    monkeypatch.setattr(groups, "load_and_assemble", assemble)
    ready, faults = prepared({"odd": reward(), "good": reward()})
    assert [group.name for group in ready] == ["good"]
    assert str(faults["odd"]) == "odd.py: cannot be used: it raises RecursionError: too deep"
