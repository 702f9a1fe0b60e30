"""``envcoder-bench verify``: equal, different, cannot tell; changed files are found. Trainings are made up."""

import base64
import hashlib
import math
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import campaigns
import pytest

from envcoder_bench.__main__ import main
from envcoder_bench.core.errors import UserError
from envcoder_bench.results.fitness_model import Difference
from envcoder_bench.results.ranking import rank, summary, write_summary
from envcoder_bench.results.rows import Result, write_results
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import CandidateSource, RunSpec
from envcoder_bench.serve import verify as module
from envcoder_bench.serve.verify import CANNOT_TELL, DIFFERENT, EQUAL, FIRST_SEED, judge, package_changes, verify


def results(folder, names, seeds, fitness):
    rows = [
        Result(name, seed, "ok", fitness[name] + 0.01 * (k % 2), 0.0, 1.0, episodes=8, env_steps=100)
        for name in names
        for k, seed in enumerate(seeds)
    ]
    write_results(folder.results, rows)
    write_summary(folder.summary, summary(rank(rows), {"task": "Cartpole"}, {}))


@pytest.fixture
def run(tmp_path):
    """A run of a candidate and human, whose folder is complete."""
    spec = resolve("Cartpole", ["sim=mujoco_cpu", "device=cpu", "seeds=10"])
    sources = [*baseline_sources(spec.task, spec.config.task), CandidateSource("a", "a.py", campaigns.source("a"))]
    folder = RunFolder.create(tmp_path / "run", RunSpec.of(spec.config, sources))
    results(folder, ["human", "a"], range(10), {"human": 0.1, "a": 0.9})
    return folder


@pytest.fixture
def trainings(monkeypatch):
    """Fresh trainings, with this fitness."""
    fitness = {"human": 0.1, "a": 0.9}

    def train(path):
        folder = RunFolder(path)
        cfg, _ = folder.read()
        assert cfg.seed >= FIRST_SEED and not cfg.race.enabled
        results(folder, ["human", "a"], range(cfg.seed, cfg.seed + cfg.seeds), fitness)

    monkeypatch.setattr(module, "_train", train)
    monkeypatch.setattr(module, "package_changes", list)
    return fitness


@pytest.mark.slow
def test_a_result_that_holds_is_not_different(run, trainings, tmp_path, capsys):
    done, _ = verify(run.path, output=tmp_path / "again")
    assert done.candidate == "a" and not done.findings and done.verdict in (EQUAL, CANNOT_TELL)
    assert done.versus_human.verdict == "better" and done.difference == pytest.approx(0.0)
    assert main(["verify", str(run.path), "--output_dir", str(tmp_path / "cli")]) == 0
    assert "a is better than human" in capsys.readouterr().out


@pytest.mark.slow
def test_a_result_that_does_not_hold_is_different(run, trainings, tmp_path, capsys):
    trainings["a"] = 0.1
    assert main(["verify", str(run.path), "--output_dir", str(tmp_path / "again"), "--json"]) == 1
    assert '"verdict":"different"' in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a", "human"])
def test_a_changed_file_of_the_run_is_a_finding(run, trainings, tmp_path, name):
    file = run.source(name)
    file.write_text(file.read_text() + "\nx = 1\n")
    findings = verify(run.path, "a", output=tmp_path / "again")[0].findings
    assert any(str(Path("candidates") / name) in finding for finding in findings)
    assert any("not that of the installed package" in finding for finding in findings) == (name == "human")


FITNESS = 'def compute_fitness(pole_angle):\n    """Height of the tip."""\n    return torch.cos(pole_angle)\n'


@pytest.mark.slow
def test_a_changed_fitness_file_is_a_finding(run, trainings, tmp_path):
    """The run's copy against its hash, and against the user's own copy, which measures the new run."""
    own = tmp_path / "own.py"
    own.write_text(FITNESS)
    spec = resolve("Cartpole", ["sim=mujoco_cpu", "device=cpu", "seeds=3", f"fitness={own}"])
    sources = [*baseline_sources(spec.task, spec.config.task), CandidateSource("a", "a.py", campaigns.source("a"))]
    folder = RunFolder.create(tmp_path / "measured", replace(spec, sources=tuple(sources)))
    results(folder, ["human", "a"], range(3), {"human": 0.1, "a": 0.9})
    findings = [verify(folder.path, fitness=own, output=tmp_path / "1")[0].findings]
    findings.append(verify(folder.path, output=tmp_path / "2")[0].findings)
    folder.fitness.write_text(FITNESS.replace("cos", "ones_like"))
    findings.append(verify(folder.path, fitness=own, output=tmp_path / "3")[0].findings)
    assert [len(each) for each in findings[:2]] == [0, 1] and "give --fitness with your own" in findings[1][0]
    assert any("other code than yours" in finding for finding in findings[2])


def test_the_training_has_a_cache_and_an_environment_of_its_own(tmp_path, monkeypatch):
    """So that nothing that was put into a cache, or said by a variable, has an effect."""
    monkeypatch.setenv("ENVCODER_BENCH_CACHE", str(tmp_path / "poisoned"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "evil.so"))
    seen = {}

    def run(words, cwd, env, **more):
        seen.update(env, words=words, inside=[*Path(env["ENVCODER_BENCH_CACHE"]).iterdir()], cwd=cwd)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(module.subprocess, "run", run)
    module._train(tmp_path)
    assert seen["inside"] == [] and "LD_PRELOAD" not in seen and not Path(seen["cwd"]).exists()
    assert str(tmp_path) not in seen["ENVCODER_BENCH_CACHE"] + seen["PYTHONPATH"]
    assert seen["PYTHONPATH"] == str(Path(module.__file__).parents[2])


@pytest.mark.slow
def test_baselines_and_unknown_names_are_refused(run, trainings, tmp_path):
    for name in ("human", "b"):
        with pytest.raises(UserError):
            verify(run.path, name, output=tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_the_verdict_needs_an_interval_within_what_matters():
    difference = Difference(0.0, -0.05, 0.05, 0.9)
    assert judge(difference, 0.1) == EQUAL and judge(difference, 0.04) == CANNOT_TELL
    assert judge(replace(difference, p=0.01), 0.1) == DIFFERENT
    assert judge(Difference(0.1), 0.1) == CANNOT_TELL  # nothing is known of chance
    assert judge(difference, math.nan) == CANNOT_TELL


def test_a_changed_file_of_the_package_is_a_finding(tmp_path, monkeypatch):
    (tmp_path / "envcoder_bench").mkdir(), (tmp_path / "envcoder_bench-1.dist-info").mkdir()
    human, info = tmp_path / "envcoder_bench" / "human.py", tmp_path / "envcoder_bench-1.dist-info"
    human.write_text("x = 1\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(human.read_bytes()).digest()).rstrip(b"=").decode()
    (info / "RECORD").write_text(f"envcoder_bench/human.py,sha256={digest},6\n")
    monkeypatch.setattr(metadata, "files", lambda name: metadata.PathDistribution(info).files)
    assert package_changes() == []
    human.write_text("x = 2\n")
    (finding,) = package_changes()
    assert "human.py of the installed package was changed" in finding
