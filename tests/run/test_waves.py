"""Candidates that train in waves have bitwise the same results as if trained together."""

import gc
import json
import shutil
import sys

import helpers
import pytest
from helpers import (
    BREAKS_MIDWAY,
    CARTPOLE_QUICK,
    FIVE_ACTIONS,
    TINY_WORDS,
    assert_same_policies,
    assert_same_tables,
    results,
    run,
    stopped_when,
    text_of,
    write_candidates,
)

from envcoder_bench.cli import eval_shapers
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.results.logs import RunLogs
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.plan import MemoryPlanner, split
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.run.train import session as session_module
from envcoder_bench.sim.mujoco_cpu import MujocoCpu
from envcoder_bench.trainers.ppo.trainer import GroupedPPO

pytestmark = pytest.mark.slow

WAVES, ITERATIONS = 4, 4  # of three groups each: the seeds of a candidate may fall into two waves
WORDS = [
    *CARTPOLE_QUICK, "--num_envs_per_candidate", 8, "--learning_iterations", ITERATIONS, "--seeds", 2,
    "checkpoint_minutes=0", *TINY_WORDS,
]  # fmt: skip


CANDIDATES = {
    **helpers.CANDIDATES, "breaks_midway": BREAKS_MIDWAY.replace("25", "3"), "five_actions": FIVE_ACTIONS,
}  # fmt: skip


def _words(folder):
    return [*WORDS, "--candidates", *write_candidates(folder / "files", CANDIDATES)]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    return run(folder / "run", *_words(folder))


@pytest.fixture(scope="module")
def limit(together):
    """The least memory with which the run takes so many waves."""
    cfg, sources = RunFolder(together).read()
    groups, _ = prepare(RunSpec.of(cfg, sources))
    planner = MemoryPlanner(RunSpec.of(cfg))
    largest = max(planner.plan(wave).needed for wave in split(groups, WAVES))
    return ["--max_memory", f"{largest}B"]


def _ranking(folder):
    summary = json.loads(text_of(folder, "summary.json"))
    timed = ("wall_time", "env_steps_per_second", "memory")
    return {key: value for key, value in summary.items() if key not in timed}


def _assert_alike(output, together):
    assert_same_tables(output, together)
    assert _ranking(output) == _ranking(together)
    assert_same_policies(output, together, 5 * 3)  # policy.pth and both seeds', of those that did not fail


def test_results_in_waves_equal_one_wave_and_memory_is_released(tmp_path, together, limit, capsys, monkeypatch):
    alive, modules, build_env = [], [], session_module.build_env

    def counting(*args):
        alive.append(_alive())
        modules.append(sum(name.startswith("envcoder_candidate_") for name in sys.modules))
        return build_env(*args)

    gc.collect()
    before = _alive()
    monkeypatch.setattr(session_module, "build_env", counting)
    output = run(tmp_path / "run", *_words(tmp_path), *limit)
    told = capsys.readouterr().err
    assert "4 waves, of up to 3 groups" in told
    assert f"wave 2 of 4, iteration {ITERATIONS}/{ITERATIONS}, " in told
    _assert_alike(output, together)
    rows = results(output)
    assert set(rows.loc["breaks_at_once", "status"]) == {"failed at load"}
    assert set(rows.loc["breaks_midway", "status"]) == {"failed"}
    for name in ("human", "cosine", "wide"):
        for seed in (0, 1):
            assert list((output / "tensorboard" / name / f"seed_{seed}").iterdir())
    memory = json.loads((output / "summary.json").read_text())["memory"]
    assert memory["waves"] == WAVES
    assert 0 < memory["estimated_gib"] <= memory["available_gib"]
    assert memory["measured_gib"] > 0
    # every wave builds an environment to train in and one to evaluate in
    assert alive[::2] == [before] * WAVES
    assert modules[0] >= modules[2] > modules[4]  # the first wave is of baselines, which fill in for the others


def _alive():
    """What takes the memory of a wave."""
    return [type(x) for x in gc.get_objects() if type(x) in (GroupedVecTask, MujocoCpu, GroupedPPO)]


def test_run_killed_in_a_later_wave_resumes_with_more_memory_to_the_same_result(tmp_path, together, limit, capsys):
    """A run with the same memory has fewer ways to go wrong: its plan is the same if nothing of it is saved."""
    output, place = tmp_path / "run", (2, 2)
    with stopped_when(lambda: _reached(output, place)):
        run(output, *_words(tmp_path), *limit)
    assert not (output / "summary.json").exists()
    saved = RunFolder(output).load_checkpoint()
    assert saved.waves >= place[0] - 1
    logs = RunLogs.resume(shutil.copytree(output, tmp_path / "copy"), saved.iterations(), saved.done, {})
    assert logs.rows == saved.all_rows  # by which a resumed run notices lost rows
    logs.close()
    policies = [
        output / "candidates" / r.candidate / f"policy_seed_{r.seed}.pth"
        for r in saved.results
        if r.measured and r.env_steps
    ]
    finished = {path: path.stat().st_mtime_ns for path in policies}
    assert finished
    config = output / "config.yaml"
    config.write_text(config.read_text().replace(f"max_memory: {limit[1]}", "max_memory: null"))
    capsys.readouterr()
    assert eval_shapers.main(["--resume", str(output)]) == 0
    _assert_alike(output, together)
    assert all(path.stat().st_mtime_ns == time for path, time in finished.items())  # not trained again
    assert "wave 1 of" not in capsys.readouterr().err


def _reached(output, place):
    """Return whether a checkpoint is of this wave and iteration."""
    saved = RunFolder(output).load_checkpoint()
    begun = max((job.iteration for job in saved.jobs), default=0) if saved is not None else 0
    return saved is not None and (saved.waves + 1, begun) >= place
