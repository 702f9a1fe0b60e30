"""Files with endless loops, and the file that Ctrl-C interrupts, are named."""

import os
import signal
import threading
import time

import pytest
from helpers import PATIENCE, QUICK, write_candidates

from envcoder_bench.cli.command_line import command
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.run.prepare.run_files import SlowFiles

pytestmark = pytest.mark.slow


def until(holds):
    """Wait for what another thread does."""
    deadline = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert holds()


def test_slow_file_is_logged_once_with_its_line(caplog):
    def seen():
        return bool(caplog.messages)

    with SlowFiles(seconds=0.01) as slow:
        with slow.step("loading", "/somewhere/quick.py"):
            pass
        source = "\nfor _ in range(10_000_000):\n    if seen():\n        break\n    sleep(0.001)\n"
        with slow.step("loading", "/somewhere/slow.py"):
            exec(compile(source, "/somewhere/slow.py", "exec"), {"seen": seen, "sleep": time.sleep})
    lines = caplog.messages
    assert len(lines) == 1
    assert lines[0].startswith("/somewhere/slow.py:")
    assert lines[0].endswith(": still loading this file after 0 s; Ctrl-C stops, and --untrusted has a time limit")
    assert int(lines[0].split(":")[1]) in (2, 3, 4, 5)


def test_watching_thread_ends():
    before = set(threading.enumerate())
    with SlowFiles(seconds=0.01):
        (own,) = set(threading.enumerate()) - before
    until(lambda: not own.is_alive())


def test_ctrl_c_reports_the_innermost_step():
    slow = SlowFiles()
    source = "import signal\nsignal.raise_signal(signal.SIGINT)\n"
    told = pytest.raises(KeyboardInterrupt, match=r"^while loading b\.py:2$")
    with told, slow.step("checking", "a.py"), slow.step("loading", "b.py"):
        exec(compile(source, "b.py", "exec"), {})
    with pytest.raises(KeyboardInterrupt, match=r"^while checking a\.py$"), slow.step("checking", "a.py"):
        raise KeyboardInterrupt
    raised = compile("x = 1\nraise KeyboardInterrupt\n", "b.py", "exec")  # by the file, not by the user
    with pytest.raises(KeyboardInterrupt, match=r"^$"), slow.step("loading", "b.py"):
        exec(raised, {})


LOADING = "x = 0\nwhile True:\n    x += 1\n\n\ndef compute_reward(pole_angle):\n    return pole_angle\n"
CHECKING = "def compute_reward(pole_angle):\n    while True:\n        pole_angle = pole_angle + 0\n"
FITNESS = '"""Height"""\nwhile True:\n    pass\n\n\ndef compute_fitness(pole_angle):\n    return pole_angle\n'


@pytest.mark.parametrize(
    "source, flag, doing",
    [(LOADING, "--candidates", "loading"), (CHECKING, "--candidates", "checking"), (FITNESS, "--fitness", "loading")],
)
def test_ctrl_c_in_an_endless_loop_names_the_file_and_writes_nothing(tmp_path, capsys, source, flag, doing):
    # no file is opened: an interrupt that comes while one is closed would be lost
    mark = f"__import__('os').mkdir({str(tmp_path / 'here')!r}); "
    indent = "    " if doing == "checking" else ""
    (path,) = write_candidates(tmp_path, {"endless": source.replace("while", f"{mark}\n{indent}while", 1)})

    def interrupt():
        until((tmp_path / "here").exists)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    words = [*QUICK, "--task", "Cartpole", flag, str(path), "--output_dir", str(tmp_path / "run")]
    assert command("eval-shapers", main, words) == 130
    interrupter.join()
    told = capsys.readouterr().err
    assert told.splitlines()[-1].startswith(f"eval-shapers: stopped while {doing} {path}:")
    assert told.endswith("; the run had not begun, and nothing was written\n")
    assert not (tmp_path / "run").exists()
