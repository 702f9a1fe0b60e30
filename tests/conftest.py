"""What all tests share: a cache folder, one thread for torch, and checks of what a test starts and leaves behind."""

import atexit
import base64
import contextlib
import gc
import os
import platform
import shutil
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import process_state
import pytest
import torch
import warm_jail

from envcoder_bench.cli import console
from envcoder_bench.compile import building, kernels
from envcoder_bench.core.shell import display_path
from envcoder_bench.jail import client
from envcoder_bench.report import figures

# else each process that a test starts may compile torch and all others anew; it holds for these processes where pytest
# runs with -B, too: a module that a test edits between two of them within a second must change its size
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["ENVCODER_BENCH_VIDEO"] = "0"  # videos take seconds; tests/video makes some
os.environ["RAY_prestart_worker_first_driver"] = "0"  # noqa: SIM112, else Ray starts a process per core for nothing
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112, at Ray's 15 workers starve beside other tests
if "PYTEST_XDIST_WORKER" not in os.environ:  # worker processes inherit the folder: what one traces, all can use
    folder = tempfile.mkdtemp(prefix="envcoder_bench_tests_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["ENVCODER_BENCH_CACHE"] = folder

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as & of a shell's script leaves it: tests of Ctrl-C never end
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # as nohup leaves it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.fsync = lambda file: None  # no test cuts the power: 6 ms for each of the fifty files that a run writes
torch.set_num_threads(1)  # tests are many small operations, and there is a process of tests per core
platform.processor()  # starts uname, once in a process: not within a test, whichever comes first
with contextlib.suppress(ImportError):
    import mujoco  # noqa: F401, its first import starts a process

# files that take longest, in this order: begun last, one would keep a core busy when the others are done
_LONGEST = (
    "test_ray_pool.py", "test_mcp_server.py", "test_auto_shape.py", "test_every_task.py",
    "test_triton_interpreted.py", "test_isaacgym_tasks.py", "test_ray_node.py", "test_unprivileged.py",
    "test_racing.py", "test_ordinary.py", "test_attacks.py", "test_outside_tasks.py", "test_damaged_runs.py",
    "test_eval_policies.py", "test_evolve.py", "test_building.py", "test_three_ways.py",
    "test_parallel.py", "test_check.py", "test_variant_runs.py", "test_fitness.py", "test_extend.py", "test_seeds.py",
    "test_library.py", "test_replay.py", "test_surroundings.py",
)  # fmt: skip


def pytest_addoption(parser):
    parser.addoption("--no-skips", action="store_true", help="a test or a file that is skipped fails")


def _fail_if_skipped(report, config):
    if report.skipped and not hasattr(report, "wasxfail") and config.getoption("--no-skips"):
        *_, why = report.longrepr if isinstance(report.longrepr, tuple) else (report.longrepr,)
        report.outcome, report.longrepr = "failed", f"{report.nodeid} with --no-skips: {why}"


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    _fail_if_skipped((yield).get_result(), collector.config)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    _fail_if_skipped((yield).get_result(), item.config)


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest (for pytest-xdist's --no-loadscope-reorder)."""
    rank = {name: k for k, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Collect tests without garbage collection, and exempt what collection leaves from it: a million objects.

    Tests' files are compiled once for all processes and runs. Later nothing is: a module that a test edits within a
    second, at equal size, would be read as it was. rl_games compiles an example of a network when it is imported, and
    torch's compiler is seconds of imports: here it is left out.
    """
    gc.disable()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", lambda function=None, **_: function or (lambda function: function))
        yield
    sys.dont_write_bytecode = True
    gc.collect()
    gc.freeze()
    gc.enable()


_PICTURES = ("test_pictures.py", "test_search_report.py", "test_effects.py")
_PAGES = (  # these look at the page with which the command ends a run
    "test_smoke.py", "test_hostile_texts.py", "test_tutorial.py", "test_untrained.py", "test_wandb.py",
    "test_outside_tasks.py", "test_stress.py", "test_replay.py", "test_benchmark.py",
)  # fmt: skip
_SEARCH_PAGES = ("test_search_report.py", "test_hostile_replies.py", "test_replay.py")
_PIXEL = base64.b64decode(  # a PNG
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_CONFINEMENT = ("test_attacks.py", "test_confine.py")  # these start jails as the package does
_PROCESSES = {"subprocess.Popen", "os.fork", "os.posix_spawn"}  # events of Python's audit
_build = building.build
_seen = []  # of them in the test that runs, if it is not marked slow
_watching = False


def _hook(event, args):
    if _watching and event in _PROCESSES and not _compiles(args):
        _seen.append(f"starts a process: {args[0] if args else event}")
    elif _watching and event == "open" and str(args[0]).endswith(".config.yaml.tmp"):  # of a run's folder
        _seen.append("begins a run")


def _compiles(args):
    """Return whether it is a process that compiles kernels, which only starts where they are not in Warp's cache."""
    return len(args) > 1 and any("envcoder_bench.compile" in str(word) for word in args[1] or ())


sys.addaudithook(_hook)


def _restore(before):
    changes = process_state.restore(before)
    if changes:  # a warning, because a library's first use may change something in whichever test comes first
        warnings.warn("it changed what later tests see: " + "; ".join(changes), stacklevel=1)


@pytest.fixture(autouse=True, scope="module")
def a_file_leaves_nothing_behind():
    """As ``a_test_leaves_nothing_behind``, for fixtures of a whole file."""
    before = process_state.snapshot()
    yield
    _restore(before)


@pytest.fixture(autouse=True, scope="module")
def jails_start_quickly(request):
    """Fork the jail's servers from a process that has imported torch, except in the tests of its confinement."""
    with pytest.MonkeyPatch.context() as patch:
        if sys.platform.startswith("linux") and request.path.name not in _CONFINEMENT:
            patch.setattr(client, "_start", warm_jail.start)
        yield


def _build_here(codes, target):
    """Compile as ``building.build`` does, in this process: starting another takes longer than most kernels do."""
    from envcoder_bench.compile import warp_kernel  # imports Warp, which not all tests need

    if target != "cpu":
        return _build(codes, target)
    for code in dict.fromkeys(codes):
        if code not in building._failed:
            try:
                warp_kernel.build(code, target)
            except Exception as fault:
                building._failed[code] = " ".join(str(fault).split())[:500]
    return [building._failed.get(code, "") for code in codes]


@pytest.fixture(autouse=True, scope="module")
def kernels_are_compiled_here(request):
    """Compile candidates' kernels without worker processes, except in the tests of these.

    How programs are divided among kernels depends on those that the process has: each file begins without any.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_loaded", {})
        if request.path.name != "test_building.py":
            patch.setattr(building, "build", _build_here)
        yield


@pytest.fixture(autouse=True, scope="module")
def pictures_are_one_pixel(request):
    """Write one pixel for each picture, except in the tests that look at them.

    That of a search is not even composed.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.path.name not in _PICTURES:
            patch.setattr(figures, "DPI", 20)
            patch.setattr(figures, "png_bytes", lambda figure: _PIXEL)
            patch.setattr("envcoder_bench.search.report.plot_search", _draw_a_pixel)
        yield


@pytest.fixture(autouse=True, scope="module")
def pages_are_empty(request):
    """Write an empty page at the end of a run, except in the tests that look at it: it takes a third of a small run.

    That of a search, which is written after each round, lists the candidates.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.path.name not in _PAGES:
            patch.setattr(console, "_write_page", _empty_page)
        if request.path.name not in _SEARCH_PAGES:
            patch.setattr("envcoder_bench.search.report.render_page", _list_candidates)
        yield


def _empty_page(result):
    page = result.folder / "report.html"
    page.touch()
    print(display_path(page))


def _list_candidates(page):
    return "".join(f"{row.candidate}: {row.status}\n" for row in page.ranked)


def _draw_a_pixel(*args, **_):
    path = next(arg for arg in args if isinstance(arg, Path))
    path.write_bytes(_PIXEL)
    return path


@pytest.fixture(autouse=True, scope="session")
def no_process_to_fork_is_left():
    yield
    warm_jail.stop()


@pytest.fixture(autouse=True)
def a_test_leaves_nothing_behind(a_file_leaves_nothing_behind):
    """Seed the generators; restore what a test changed for those that follow in its process, with a warning."""
    process_state.seed()
    before = process_state.snapshot()
    yield
    _restore(before)


@pytest.fixture(autouse=True)
def fast_tests_start_nothing(request, a_test_leaves_nothing_behind):
    """Fail a test that starts a process or begins a run without a mark that says so."""
    global _watching
    if any(request.node.get_closest_marker(name) for name in ("slow", "smoke", "cuda")):
        yield
        return
    _seen.clear()
    _watching = True
    try:
        yield
    finally:
        _watching = False
    if _seen:
        pytest.fail(f"mark this test with @pytest.mark.slow: it {_seen[0]}", pytrace=False)


@pytest.fixture
def chooses(monkeypatch):
    """Let runs on a CPU choose their number of seeds as on a GPU, up to a number."""
    from envcoder_bench.run import seeds

    def on(most):
        monkeypatch.setattr(seeds, "MOST", most)
        monkeypatch.setattr(seeds, "_why_one", lambda cfg, shared_total: "")

    return on


@pytest.fixture
def short_check(monkeypatch):
    """The check of a task plays 100 random steps instead of 1,000, and 30 before its checkpoint instead of 150."""
    from envcoder_bench.tasks.base import BASELINE_FILES
    from envcoder_bench.tools.task_check import TaskCheck

    monkeypatch.setattr(TaskCheck.random_actions, "__defaults__", (100, BASELINE_FILES))
    monkeypatch.setattr(TaskCheck.checkpoint, "__defaults__", (30,))
