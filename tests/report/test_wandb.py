"""Weights & Biases with the real package, offline: what is in the files that wandb sync sends."""

import importlib.util
import json
import logging
import math
import os
import struct
import sys
import time

import pytest
from helpers import CARTPOLE_QUICK, PATIENCE, TINY_WORDS, run, write_candidates

import envcoder_bench
from envcoder_bench import UserError
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.report import wandb_log
from envcoder_bench.report.wandb_log import WandbLog, WandbSettings, check_wandb
from envcoder_bench.run.folder.tracking import log_report
from envcoder_bench.run.train.session import Session

HAS_WANDB = importlib.util.find_spec("wandb") is not None  # its import takes a second
REASON = "pip install 'envcoder-bench[wandb]': no wandb"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HAS_WANDB, reason=REASON)]

CANDIDATES = {
    "cosine": "def compute_reward(pole_angle):\n    c = torch.cos(pole_angle)\n    return c, {'<c>': c}\n",
    "broken": "def compute_reward(:\n",
}
WORDS = [
    *CARTPOLE_QUICK, "--num_envs_per_candidate", 4, "--learning_iterations", 3, *TINY_WORDS, "--wandb",
    "wandb.mode=offline", "wandb.project=mine", "wandb.tags=[first,second]",
]  # fmt: skip


def records(path):
    """The records of a .wandb file: LevelDB's log format, in blocks of 32 KiB, after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        if kind == 0:
            break
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


def items(found):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in found}


def sent(folder):
    """What was logged, by the name of the W&B run."""
    found = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        every = complete(path)
        head = next(record.run for record in every if record.HasField("run"))
        own = found.setdefault(head.display_name, {"run": head, "history": [], "summary": {}, "artifacts": {}})
        assert own["run"].run_id == head.run_id, "a resumed run goes on in its own, in a file more"
        own["config"] = items(head.config.update)
        for record in every:
            if record.HasField("history"):
                own["history"].append(items(record.history.item))
            own["summary"].update(items(record.summary.update))
            artifact = record.artifact if record.HasField("artifact") else record.request.log_artifact.artifact
            if artifact.name:
                own["artifacts"][artifact.type] = [entry.path for entry in artifact.manifest.contents]
            if record.HasField("exit"):
                own["exit"] = record.exit.exit_code
    for own in found.values():
        own["history"].sort(key=lambda row: row.get("env_steps", 0))
    return found


def complete(path):
    """The records of a file once it has all: another process writes it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        every = list(records(path))
        if every and every[-1].HasField("exit"):
            return every
        time.sleep(0.01)
    raise AssertionError(f"{path} has no end")


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """A run that was stopped after two of its three iterations, and the names of its W&B runs when it was."""
    made = tmp_path_factory.mktemp("wandb")
    files = write_candidates(made / "files", CANDIDATES)
    iterate = Session.iterate

    def stopped(self):
        iterate(self)
        self.stop(2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "iterate", stopped)
        folder = run(made / "run", *WORDS, "--candidates", *files, "--video", 0, expect=130)
    before = {name: own["run"].run_id for name, own in sent(folder).items()}
    assert main(["--resume", str(folder)]) == 0
    return folder, before


@pytest.fixture
def folder(resumed):
    return resumed[0]


def test_each_candidate_and_seed_has_a_wandb_run_in_one_group(folder):
    found = sent(folder)
    assert set(found) == {f"{name}, seed 0" for name in ("cosine", "broken", "human", "unshaped")} | {"run: ranking"}
    for name, own in found.items():
        assert (own["run"].run_group, own["run"].project) == ("run", "mine")
        assert list(own["run"].tags) == ["first", "second"]
        kinds = {"cosine": "candidate", "broken": "candidate", "run: ranking": "ranking"}
        assert own["run"].job_type == kinds.get(name.split(",")[0], "baseline")
    config = found["cosine, seed 0"]["config"]
    assert config["candidate"] == "cosine" and config["shaper_types"] == "compute_reward" and config["seed"] == 0
    assert config["num_envs"] == 4 and config["iterations"] == 3 and config["learning_rate"] > 0
    assert len({own["run"].run_id for own in found.values()}) == 5


def test_wandb_has_the_values_of_the_files(folder):
    found = sent(folder)["cosine, seed 0"]
    result = envcoder_bench.resume(folder)
    curves = result.curves[result.curves.candidate == "cosine"]
    logged = {row["env_steps"]: row for row in found["history"]}
    assert sorted(logged) == sorted(curves.env_steps)
    for _, row in curves.iterrows():
        assert logged[row.env_steps]["kl"] == pytest.approx(row.kl, rel=1e-6)
        assert logged[row.env_steps].get("fitness") == (None if math.isnan(row.fitness) else pytest.approx(row.fitness))
        assert "reward/<c>" in logged[row.env_steps]
    (measured,) = (row for row in result.rows if row.candidate == "cosine")
    assert found["summary"]["fitness"] == pytest.approx(measured.fitness, rel=1e-6)
    assert found["summary"]["status"] == "ok" and found["exit"] == 0
    broken = sent(folder)["broken, seed 0"]
    assert broken["summary"]["status"] == "failed at load" and "syntax" in broken["summary"]["error"]
    assert broken["exit"] == 1


def test_report_and_videos_are_artifacts(folder, tmp_path):
    tables = {"run_table": ["ranking.table.json"]}
    assert sent(folder)["run: ranking"]["artifacts"] == {"report": ["report.html"], **tables}
    assert sent(folder)["run: ranking"]["summary"]["best_candidate"] == "cosine"
    (tmp_path / "a.mp4").write_bytes(b"a video")
    log_report(folder, folder / "report.html", {"cosine": tmp_path / "a.mp4"})
    own = sent(folder)["run: ranking"]
    assert own["artifacts"] == {"report": ["report.html"], "videos": ["a.mp4"], **tables}
    assert any("videos/cosine/_type" in row for row in own["history"])


def test_resumed_run_continues_its_wandb_runs(resumed):
    folder, before = resumed
    after = sent(folder)
    assert before and {name: own["run"].run_id for name, own in after.items() if name in before} == before
    assert [row["env_steps"] for row in after["cosine, seed 0"]["history"]] == [16, 32, 48]


def test_exception_in_wandb_is_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("wandb.init", lambda **_: 1 / 0)
    files = write_candidates(tmp_path / "files", {"cosine": CANDIDATES["cosine"]})
    output = run(tmp_path / "run", *WORDS, "--candidates", *files, "--video", 0)
    assert (output / "summary.json").is_file()
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told.count("W&B: division by zero: the run continues without it") == 1
    assert "W&B: the report could not be logged: division by zero" in told


@pytest.mark.parametrize(
    "words, message",
    [
        (["wandb.mode=sometimes"], "wandb.mode must be online or offline"),
        (["wandb.project=null"], "wandb.project must be a name"),
        (["wandb.projekt=x"], "did you mean wandb.project"),
        (["wandb.mode=online"], "nobody is logged in: run wandb login, or keep the data here with wandb.mode=offline"),
    ],
)
def test_bad_input_is_refused_before_the_run(tmp_path, words, message, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setattr("wandb.login", lambda prompt: False)
    asked = [*WORDS[: WORDS.index("wandb.mode=offline")], *words, "--output_dir", tmp_path / "run"]
    assert main([str(word) for word in asked]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_missing_wandb_is_reported_with_install_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main([str(word) for word in [*WORDS, "--output_dir", tmp_path / "run"]]) == 2
    assert "--wandb needs the package wandb: pip install 'envcoder-bench[wandb]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_login_is_checked_only_for_online_runs(monkeypatch):
    asked = []
    monkeypatch.setattr("wandb.login", lambda prompt: asked.append(prompt) or True)
    check_wandb("offline")
    monkeypatch.setitem(os.environ, "WANDB_MODE", "offline")
    check_wandb(None)
    assert not asked
    check_wandb("online")
    assert asked == [False]  # a run never waits for an answer
    monkeypatch.setattr("wandb.login", lambda prompt: False)
    with pytest.raises(UserError, match="nobody is logged in"):
        check_wandb("online")


def test_many_candidates_need_no_threads(tmp_path):
    import threading

    settings = WandbSettings("mine", "group", tmp_path, "key", mode="offline")
    log = WandbLog(settings, lambda candidate, seed: {"candidate": candidate})
    log.add("c0", 0, 1, {"fitness": 0.0})
    threads = threading.active_count()
    for k in range(1, 4):
        log.add(f"c{k}", 0, 1, {"fitness": float(k), "kl": None, "entropy": float("nan")})
    assert threading.active_count() <= threads
    log.end()
    assert len(sent(tmp_path)) == 4 and wandb_log.STEPS == "env_steps"


def test_limit_of_open_files_is_raised_to_the_maximum(tmp_path):
    """Each W&B run keeps a file open."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft // 2, 256), hard))
    try:
        WandbLog(WandbSettings("mine", "group", tmp_path, "key", mode="offline"), lambda candidate, seed: {})
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
