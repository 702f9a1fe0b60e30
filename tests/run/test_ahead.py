"""A second process traces a run's candidates and compiles their kernels; the run finds all of them in the caches."""

import dataclasses
import os
import shutil
import signal
from pathlib import Path

import pytest
import warp as wp
from helpers import SETTINGS

from envcoder_bench import evaluate
from envcoder_bench.compile import building, kernels, trace
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.prepare import ahead
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.shaping import checking
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.spec import Can
from mujoco_batches.compat.warp_start import start_warp

pytestmark = pytest.mark.skipif(os.name != "posix", reason="waits for processes")
SHORT = {**SETTINGS, "learning_iterations": 1, "evaluation.points": 1, "task.env.episodeLength": 12}
TEXTS = {
    "one": "def compute_reward(pole_angle):\n    return torch.cos(0.3217 * pole_angle) - pole_angle.abs().sqrt()\n",
    "two": "def compute_observation(dof_pos, dof_vel):\n    return torch.cat((dof_pos.atan(), dof_vel), dim=1)\n",
    "bad": "def compute_reward(pole_angle):\n    return pole_angel\n",
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVCODER_BENCH_CACHE", str(tmp_path / "cache"))
    start_warp()  # later it would set its own folder
    headers = Path(str(wp.config.kernel_cache_dir)) / "headers"  # which take seconds to compile
    if headers.is_dir():
        shutil.copytree(headers, tmp_path / "warp" / wp.__version__ / "headers")
    monkeypatch.setenv("WARP_CACHE_PATH", str(tmp_path / "warp"))  # of the processes
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path / "warp" / wp.__version__))
    monkeypatch.setattr(kernels, "_loaded", {})


def config(**more):
    cfg = compose_config("Cartpole", [f"{key}={value}" for key, value in {**SHORT, **more}.items()])
    return cfg.model_copy(update={"sim": "mujoco_warp", "device": "cuda:0"})


def sources():
    from envcoder_bench.run.prepare.run_files import baseline_sources

    own = [CandidateSource(name, f"{name}.py", text) for name, text in TEXTS.items()]
    return [*baseline_sources(find_spec("Cartpole")), *own]


@pytest.mark.slow
def test_run_finds_programs_and_kernels_of_its_candidates(tmp_path, monkeypatch):
    done = tmp_path / "folder" / "done"
    order = ahead.Order(config(num_envs_per_candidate=4), sources(), None, "cpu", done)
    # a process of its own: a fork would find what other tests have compiled, and leave it out of the caches
    assert ahead.launch(order, 0, 1).wait() == 0 and done.exists()
    built, recorded, called = [], [], []
    build, record, run = building.build, trace.SampleState.record, checking.TrialState._run
    monkeypatch.setattr(building, "build", lambda codes, target: built.append(codes) or build(codes, target))
    monkeypatch.setattr(trace.SampleState, "record", lambda *given: recorded.append(given[2].type) or record(*given))
    monkeypatch.setattr(
        checking.TrialState, "_run", lambda *given: called.append(Path(given[1].file).stem) or run(*given)
    )
    result = evaluate("Cartpole", TEXTS, output_dir=tmp_path / "run", **SHORT)
    assert list(result.results["status"]).count("ok") == 5  # with the untrained policy
    assert not built and not recorded
    assert "bad" in called and not {"one", "two"} & {*called}
    other = {"one": TEXTS["one"].replace("sqrt", "exp")}
    evaluate("Cartpole", other, output_dir=tmp_path / "other", baselines=False, **SHORT)
    assert built and recorded


@pytest.mark.slow
def test_closing_ends_the_processes(tmp_path, monkeypatch):
    started = []
    launch, cores = ahead.launch, [3 * ahead.CPUS_EACH]
    monkeypatch.setattr(ahead, "FEWEST_EACH", 3)  # of five candidates
    monkeypatch.setattr(ahead, "usable_cpus", lambda: cores[0])
    monkeypatch.setattr("envcoder_bench.compile.warp_kernel.target", lambda device: "cpu")
    monkeypatch.setattr("envcoder_bench.compile.warp_kernel.kernel_folder", lambda: tmp_path)
    monkeypatch.setattr(
        ahead, "launch", lambda *given: started.append((given[0].done, launch(*given))) or started[-1][1]
    )
    with ahead.start(RunSpec.of(config(), sources())):
        assert len(started) == 2 and all(process.poll() is None for _, process in started)
    assert all(process.returncode == -signal.SIGKILL and not done.exists() for done, process in started)
    done = started[0][0]
    done.parent.mkdir()
    done.touch()
    with ahead.start(RunSpec.of(config(), sources())):
        assert len(started) == 2  # there is nothing left to do
    with ahead.start(RunSpec.of(config(), sources()[:-2])), ahead.start(RunSpec.of(config(seed=1), sources()[:-2])):
        assert len(started) == 4
    cores[0] = ahead.CPUS_EACH - 1
    with ahead.start(RunSpec.of(config(), sources()[:-3])):
        assert len(started) == 4


def test_only_runs_of_a_simulator_that_compiles_are_helped():
    spec = RunSpec.of(config())
    assert ahead.is_useful(spec)
    for more in ({"untrusted": True}, {"isolate": "process"}, {"deterministic": True}, {"compile_shapers": False}):
        assert not ahead.is_useful(RunSpec.of(config(**more)))
    other = dataclasses.replace(spec.task, can=spec.task.can - {Can.COMPILE_AHEAD})
    for change in (spec.changed(sim="mujoco_cpu", device="cpu"), dataclasses.replace(spec, task=other)):
        assert not ahead.is_useful(change)


def test_processes_share_the_slow_candidates():
    numbers = list(range(250))
    for parts in (1, 2, 3, 4):
        shares = [ahead.share(numbers, part, parts) for part in range(parts)]
        assert sorted(k for own in shares for k in own) == numbers
        slow = [sum(k % parts == 0 for k in own) for own in shares]  # as if each were of one process
        assert max(slow) - min(slow) <= 1
