"""Untrusted candidates train like trusted ones, and attacks do not affect them."""

import re
import sys
import zlib

import pytest
from attacks import ATTACKS, GOOD
from helpers import CARTPOLE_QUICK, assert_same_weights, refused, results, run, weights, write_candidates
from jail_fakes import judged
from test_ordinary import REFUSED, TYPICAL

from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.compile import kernels
from envcoder_bench.jail import probing, wire
from envcoder_bench.shaping.contract import Candidate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the jail needs Linux"),
]
WORDS = [*CARTPOLE_QUICK, "--num_envs_per_candidate", 7, "--learning_iterations", 2, "--no_baselines"]
MINE = """
import torch
from isaacgym.torch_utils import torch_rand_float

def compute_reward(pole_angle, cart_vel, actions):
    tilt = torch.sigmoid(pole_angle) ** 1.7
    return torch.cos(pole_angle) - 0.01 * torch.atan2(cart_vel, actions[:, 0]).abs() - 0.001 * tilt, {"tilt": tilt}

def compute_observation(state_dict):
    x = torch.cat([state_dict["dof_pos"], state_dict["dof_vel"], state_dict["actions"]], dim=-1)
    return torch.cat([x, torch.sin(x)], dim=-1)

def compute_initial_state(state_dict):
    return {"dof_pos": torch_rand_float(-0.2, 0.2, (state_dict["dof_pos"].shape[0], 2), state_dict["dof_pos"].device)}
"""
FORCE = """
def compute_torque(action, state_dict):
    force = 100.0 * action[:, :1] * torch.exp(-state_dict["pole_angle"].abs()).unsqueeze(-1)
    return torch.cat([force, torch.zeros_like(force)], dim=1)
ACTION_DIM = 3
"""
# valid programs with extreme numbers
EXTREME = {
    "large_reward": """
def compute_reward(pole_angle):
    return 3e38 * torch.cos(pole_angle)
""",
    "becomes_nan": """
def compute_reward(progress_buf, pole_angle):
    return torch.where(progress_buf > 5, torch.nan, torch.cos(pole_angle))
""",
    "large_force": """
ACTION_DIM = 1
def compute_torque(action, state_dict):
    return 1e30 * torch.sign(action).repeat(1, 2)
""",
    "far_start": """
def compute_initial_state(state_dict):
    return {"dof_pos": 1e30 * torch.ones_like(state_dict["dof_pos"])}
""",
    "always_over": """
def compute_terminal(pole_angle):
    return pole_angle == pole_angle
""",
}


@pytest.fixture(autouse=True)
def log_again():
    """Log the confinement in every test, not once per process."""
    probing.log_confinement.cache_clear()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return two files of this test and three typical files; test_ordinary compares the programs of all."""
    paths = write_candidates(tmp_path_factory.mktemp("files"), {"mine": MINE, "force": FORCE})
    return [*paths, *[path for path in sorted((TYPICAL / "Cartpole").glob("*.py")) if path.stem not in REFUSED][:3]]


@pytest.fixture(scope="module")
def trusted(tmp_path_factory, files):
    return run(tmp_path_factory.mktemp("trusted") / "run", *WORDS, "--candidates", *files)


def test_weights_equal_those_of_trusted_training(trusted, files, tmp_path, capfd):
    untrusted = run(tmp_path / "run", *WORDS, "--untrusted", "--candidates", *files)
    for name in (path.stem for path in files):
        assert results(untrusted).loc[name, "status"] == "ok", results(untrusted).loc[name, "error"]
        assert_same_weights(weights(trusted, name), weights(untrusted, name))
        assert results(trusted).loc[name].to_dict() == results(untrusted).loc[name].to_dict()
    assert "untrusted candidates are confined by seccomp, " in capfd.readouterr().err
    assert re.search(r"the confinement:\n\s+seccomp: ", (untrusted / "run.log").read_text())


def test_attacks_and_extremes_do_not_affect_others(trusted, tmp_path):
    paths = write_candidates(tmp_path / "files", {"mine": MINE, **EXTREME})
    chosen = {one.kind: one.code for one in ATTACKS if one.reason and one.kind not in ("exhaustion", "floods")}
    for k, text in enumerate(chosen.values()):
        paths.append(tmp_path / "files" / f"attack_{k}.py")
        paths[-1].write_bytes(text.encode("utf-8", "surrogatepass"))
    beside = run(tmp_path / "run", *WORDS, "--untrusted", "--candidates", *paths)
    assert_same_weights(weights(trusted, "mine"), weights(beside, "mine"))
    rows = results(beside)
    assert rows.loc["mine"].to_dict() == results(trusted).loc["mine"].to_dict()
    failed = rows[rows.index.str.startswith("attack_")]
    assert len(failed) == len(chosen) >= 6
    assert (failed["status"] != "ok").all() and (failed["error"].str.len() > 20).all()
    assert "NaN or infinity" in rows.loc["becomes_nan", "error"]


def test_without_compiler_programs_are_interpreted(trusted, tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda: False)
    paths = write_candidates(tmp_path / "files", {"mine": MINE})
    slow = run(tmp_path / "run", *WORDS, "--untrusted", "--candidates", *paths)
    near = results(slow).loc["mine"], results(trusted).loc["mine"]
    assert near[0]["status"] == near[1]["status"]
    assert near[0]["fitness"] == pytest.approx(near[1]["fitness"], abs=0.2)


UNREADABLE = {  # with the message; declared encodings are never used
    "rot13": (b"# coding: rot13\n" + GOOD.encode(), "declares the encoding rot13"),
    "utf_7": (b"# coding: utf-7\n# +AAo-import os\n" + GOOD.encode(), "declares the encoding utf-7"),
    "hex": (b"# coding: hex\n6a6a\n", "declares the encoding hex"),
    "utf_16": (GOOD.encode("utf-16"), "not UTF-8 text"),
    "zeros": (bytes(3_000_000), "100000 characters"),
    "large": (GOOD.encode() + b"# \r" * 1_000_000, "100000 characters"),
    "bad": (b"import os\n" + GOOD.encode(), "may not import os"),
}


def test_resume_jails_the_files_again(trusted, tmp_path):
    """The files' texts are read from the run's folder and are still untrusted."""
    paths = write_candidates(tmp_path / "files", {"mine": MINE, **dict.fromkeys(UNREADABLE, "")})
    for path, (content, _) in zip(paths[1:], UNREADABLE.values()):
        path.write_bytes(content)
    words = [*WORDS, "checkpoint_minutes=0", "--untrusted"]
    done = run(tmp_path / "run", *words, "--candidates", *paths)
    told = results(done)["error"]
    assert all(words in told[name] for name, (_, words) in UNREADABLE.items())
    assert "untrusted: true" in (done / "config.yaml").read_text()
    assert (done / "candidates" / "large" / "source.py").stat().st_size < 1_100_000
    (done / "summary.json").unlink()
    assert main(["--resume", str(done)]) == 0
    assert list(results(done)["error"]) == list(told)
    assert_same_weights(weights(trusted, "mine"), weights(done, "mine"))


def test_cached_answers_are_validated(tmp_path, monkeypatch):
    class Asked(Exception):
        pass

    def ask(*_):
        raise Asked

    monkeypatch.setenv("ENVCODER_BENCH_CACHE", str(tmp_path / "cache"))
    assert isinstance(judged({"mine": MINE}, task="Cartpole")["mine"], Candidate)
    (kept,) = (tmp_path / "cache" / "jail").glob("*.z")
    monkeypatch.setattr("envcoder_bench.jail.client.JailClient", ask)
    assert isinstance(judged({"mine": MINE}, task="Cartpole")["mine"], Candidate)  # from the cache
    content = kept.read_bytes()
    harmful = zlib.compress(wire.pack({"candidate": {"functions": {"compute_reward": {}}}}))
    for damage in (b"", b"damaged", content[:-9], harmful):
        kept.write_bytes(damage)
        with pytest.raises(Asked):
            judged({"mine": MINE}, task="Cartpole")
    with pytest.raises(Asked):
        judged({"mine": MINE + "# changed"}, task="Cartpole")


def test_untrusted_candidates_must_be_compiled(tmp_path, capsys):
    words = [*WORDS, "--untrusted", "compile_shapers=false", "--output_dir", tmp_path / "run"]
    assert "untrusted candidates run only as traced programs" in refused(main, words, capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "found", [{}, {"error": "tried in vain"}, {name: name != "sockets" for name in probing.REQUIRED}]
)
def test_untrusted_code_is_refused_without_confinement(found, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(probing, "_probe", lambda: found)
    paths = write_candidates(tmp_path / "files", {"mine": MINE})
    words = [*map(str, WORDS), "--untrusted", "--candidates", str(paths[0]), "--output_dir", str(tmp_path / "run")]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "untrusted code cannot be confined here" in told and not (tmp_path / "run").exists()
    assert found.get("error", "sockets") in told
