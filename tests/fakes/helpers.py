"""Running the command in a test: small, on the CPU, in this process."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from forked import Forked

from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.folders import PACKAGE
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.train.session import Session

# a run of seconds: short episodes, few of them
EVAL_SHAPERS, AUTO_SHAPE = ([sys.executable, str(PACKAGE / f"{name}.py")] for name in ("eval_shapers", "auto_shape"))
QUICK = [
    "--sim", "mujoco_cpu", "--device", "cpu",
    "evaluation.num_envs=6", "evaluation.final_episodes=6", "evaluation.points=2",
]  # fmt: skip
PATIENCE = 900  # seconds until a test gives a process up: it hangs, however busy the machine is
ANYMAL_QUICK = [*QUICK, "task.env.learn.episodeLength_s=0.4"]
TABLES = ("results.csv", "curves.csv", "components.csv", "points.csv")
# candidates for Cartpole
COSINE = "def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n"
BREAKS_MIDWAY = """
def compute_reward(progress_buf, pole_angle):
    if bool((progress_buf > 25).any()):
        raise RuntimeError("on purpose")
    return torch.cos(pole_angle)
"""
FIVE_ACTIONS = """
ACTION_DIM = 5
def compute_torque(action, state_dict):
    push = 100.0 * action.sum(dim=1, keepdim=True)
    return torch.cat([push, torch.zeros_like(push)], dim=1)
"""
# waits after the first iterations, which save a state, until there is a file GO: so a test does something to a run in
# training, however busy the machine is
WAITS = """
import os, time
calls = 0
def compute_reward(pole_angle):
    global calls
    calls += 1
    while calls > 150 and not os.path.exists("GO"):
        time.sleep(0.01)
    return torch.cos(pole_angle)
"""
WAITING_ITERATIONS = 12
WIDE = """
def compute_observation(state_dict):
    x = torch.cat([state_dict["dof_pos"], state_dict["dof_vel"], state_dict["actions"]], dim=-1)
    return torch.cat([x, torch.sin(x), torch.cos(x)], dim=-1)
"""
# one fails at load, one in training, one trains, and one has wide observations
CANDIDATES = {
    "breaks_at_once": "def compute_reward(:\n",
    "breaks_midway": BREAKS_MIDWAY,
    "cosine": """
def compute_reward(pole_angle, actions):
    c = torch.cos(pole_angle)
    return c - 0.1 * actions[:, 0], {"cosine": c}
""",
    "wide": f"""{WIDE}
def compute_reward(pole_angle, pole_vel):
    slow = -0.1 * pole_vel.abs()
    return torch.cos(pole_angle) + slow, {{"slow": slow}}
""",
}
CARTPOLE_QUICK = [*QUICK, "--task", "Cartpole", "task.env.episodeLength=40", "train.params.config.mini_epochs=2"]
SETTINGS: dict[str, Any] = {  # the same run for ``evaluate``
    "sim": "mujoco_cpu", "device": "cpu", "num_envs_per_candidate": 4, "learning_iterations": 4,
    "evaluation.num_envs": 6, "evaluation.final_episodes": 6, "evaluation.points": 2, "task.env.episodeLength": 40,
    "train.params.config.mini_epochs": 2,
}  # fmt: skip
# for runs of many groups, whose results are only compared with each other
SHORT = {
    "task.env.episodeLength": 20, "train.params.config.horizon_length": 8, "train.params.config.mini_epochs": 2,
}  # fmt: skip
# the same in a tenth of the steps, long ones, in which the pole of most falls; candidates are called, not compiled
TINY = {
    **SHORT, "task.env.episodeLength": 12, "task.sim.dt": 0.06, "train.params.config.horizon_length": 4,
    "compile_shapers": False,
}  # fmt: skip
TINY_WORDS = [f"{key}={str(value).lower()}" for key, value in TINY.items()]


def instructions(function: Callable[..., Any], *args: Any) -> int:
    """Return how many instructions of Python's bytecode a call executes: what time says, on any machine.

    Work within C, such as a regular expression's, is not counted.
    """
    count = 0

    def trace(frame, event, _):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*args)
    finally:
        sys.settrace(before)
    return count


def run(output: Path, *words: Any, expect: int = 0) -> Path:
    """Run eval-shapers and expect an exit code."""
    code = main([*map(str, words), "--output_dir", str(output)])
    assert code == expect, f"exit code {code}"
    return output


def start_process(words: list[Any], output: Path) -> subprocess.Popen:
    """Run eval-shapers in a process of its own, which can be stopped."""
    command = [*EVAL_SHAPERS, *map(str, words), "--output_dir", str(output)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def fork_process(words: list[Any], output: Path) -> Forked:
    """Run eval-shapers in a fork of this process, which has imported it; Ray cannot be used in one."""
    command = [*map(str, words), "--output_dir", str(output)]
    return Forked(lambda: main(command), output.with_suffix(".stderr"))


def stop_at(process: Forked | subprocess.Popen, reached: Callable[[], bool], number: int) -> tuple[int, str]:
    """Send a signal once ``reached()``, and wait for the end: exit code, and what was said on stderr."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(UserError):  # a file of jobs/ may go while it is read
            if reached():
                process.send_signal(number)
                break
        time.sleep(0.02)
    try:
        told = process.communicate(timeout=PATIENCE)[1]
    except subprocess.TimeoutExpired:
        process.kill()  # else it goes on when the tests have ended
        raise
    return process.returncode, told


class StopAt(Reporter):
    """Stops the run to which ``stop`` is given at the end of an iteration, of whichever wave."""

    def __init__(self, iteration: int) -> None:
        self.iteration, self.stop = iteration, StopRequest()

    def iteration_done(self, iteration: int, env_steps: int, best: Any) -> None:
        if iteration >= self.iteration:
            self.stop("test")


def stopped_at(iteration: int) -> dict[str, Any]:
    """Return what ``evaluate`` takes to stop a run at the end of an iteration."""
    reporter = StopAt(iteration)
    return {"reporter": reporter, "stop": reporter.stop}


class Killed(BaseException):
    """As if the process had been killed: nothing handles it."""


@contextlib.contextmanager
def stopped_when(reached: Callable[[], bool], number: int | None = None, times: int = 1) -> Iterator[None]:
    """Stop a run of this process after the first iteration at whose end ``reached()`` holds.

    It gets a signal, ``times`` times, or without ``number`` it ends as if it had been killed.
    """
    iterate, stopped = Session.iterate, []

    def stopping(session):
        iterate(session)
        if not stopped and reached():
            stopped.append(session)
            if number is None:
                raise Killed
            for _ in range(times):
                os.kill(os.getpid(), number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "iterate", stopping)
        with pytest.raises(Killed) if number is None else contextlib.nullcontext():
            yield
    assert stopped


def write_candidates(folder: Path, sources: dict[str, str]) -> list[Path]:
    """Write candidate files and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.py" for name in sources]
    for path, source in zip(paths, sources.values()):
        path.write_text(source, encoding="utf-8")
    return paths


def results(run_folder: Path) -> pd.DataFrame:
    texts = ("error", "fault", "reason", "hacked", "ended")
    rows = pd.read_csv(run_folder / "results.csv", dtype=dict.fromkeys(("candidate", *texts), str))
    # NaN equals nothing
    return rows.set_index("candidate").fillna({**dict.fromkeys(texts, ""), "half_step_fitness": -1.0})


def weights(run_folder: Path, candidate: str) -> dict[str, torch.Tensor]:
    path = run_folder / "candidates" / candidate / "policy.pth"
    return torch.load(path, weights_only=False)["model"]


def assert_same_weights(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    """Bitwise."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the bytes of all files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def text_of(run_folder: Path, name: str) -> str:
    """Return the text of a run's file without the folder that the run and its candidates stand in."""
    return (run_folder / name).read_text(encoding="utf-8").replace(str(run_folder.parent), "")


def assert_same_tables(output: Path, expected: Path, names: Sequence[str] = TABLES) -> None:
    """Bitwise."""
    for name in names:
        assert text_of(output, name) == text_of(expected, name), name


def refused(main: Callable[[list[str]], int], words: Sequence[Any], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command on bad input and return its one line."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1, shown
    return shown.err


def assert_same_policies(output: Path, expected: Path, count: int) -> None:
    """Bitwise, for all ``count`` policy files of two run folders."""
    files = sorted(path.relative_to(expected) for path in expected.rglob("*.pth"))
    assert sorted(path.relative_to(output) for path in output.rglob("*.pth")) == files
    assert len(files) == count
    for file in files:
        assert_same_weights(*(torch.load(run / file, weights_only=False)["model"] for run in (output, expected)))
