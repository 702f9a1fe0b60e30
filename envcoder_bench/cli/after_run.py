"""What eval-shapers does after a run: it writes the page, and evaluates the candidates on terrains."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from envcoder_bench.cli.command_line import as_words
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.shell import shown
from envcoder_bench.video import default_videos

if TYPE_CHECKING:  # it imports torch, which --help does not need
    from envcoder_bench.cli.console import Console
    from envcoder_bench.run.result import RunResult

log = logging.getLogger(__name__)


def conclude(result: RunResult, videos: int | None, console: Console | None = None) -> int:
    """Print the end of a run, write the page of a complete one, and print its path; return the exit code.

    ``videos``: the value of ``--video``.
    """
    from envcoder_bench.cli.console import finish
    from envcoder_bench.report.page.shell import PAGE

    code = finish(result)
    if not result.complete and console is not None:
        console.end_page(f"stopped {result.stopped_at}; eval-shapers --resume continues it")
    if not result.complete or (not result.trained and videos is None and (result.folder / PAGE).is_file()):
        return code
    from envcoder_bench.run.folder.tracking import log_report
    from envcoder_bench.video.page import page_videos, write_page

    try:
        page = write_page(result.folder, default_videos())
        print(shown(page))
        log_report(result.folder, page, page_videos(result.folder))
    except KeyboardInterrupt:
        print(f"stopped; the run is complete, without {PAGE}", file=sys.stderr)
    except Exception as error:  # results must not depend on it
        log.warning("%s could not be written: %s", PAGE, error)
    if console is not None:
        console.end_page("complete", PAGE)
    return code


def terrain_words(
    task: str, terrains: Sequence[str], episodes: int | None, seconds: float | None, device: str | None
) -> list[str]:
    """Check ``--terrains`` before the run; return the words of eval-policies without the policies and the folder."""
    from envcoder_bench.grid.robots import ROBOTS
    from envcoder_bench.grid.settings import compose_settings
    from envcoder_bench.grid.terrains import find_arenas

    robot = next((own.name for own in ROBOTS.values() if task in own.tasks), None)
    if robot is None:
        tasks = ", ".join(task for own in ROBOTS.values() for task in own.tasks)
        raise UserError(f"--terrains is for the tasks {tasks}, not {task}")
    flags = {"episodes": episodes, "seconds": seconds}
    find_arenas([*terrains], compose_settings(as_words(flags)))
    words = ["--robot", robot, "--terrains", *terrains]
    words += [] if device is None else ["--device", device]
    return words + [word for name, value in flags.items() if value is not None for word in (f"--{name}", str(value))]


def conclude_with_terrains(words: list[str], result: RunResult, videos: int | None, console: Console) -> int:
    """Finish a run; if it is complete, run eval-policies with its candidates in its folder ``terrains``.

    If it is not, the command for later is printed, because a resumed run does not evaluate on terrains.
    """
    if not result.complete:
        later = shlex.join(_terrain_run(words, result))
        print(f"terrains, when the run is complete: eval-policies {later}", file=sys.stderr)
    code = conclude(result, videos, console)
    return code if code or not result.complete else run_on_terrains(words, result)


def run_on_terrains(words: list[str], result: RunResult) -> int:
    """Run eval-policies with a run's candidates; ``words`` are those of ``terrain_words``."""
    from envcoder_bench.cli import eval_policies

    return eval_policies.run(_terrain_run(words, result))


def _terrain_run(words: list[str], result: RunResult) -> list[str]:
    return ["--policies", str(result.folder), *words, "--output_dir", str(result.folder / "terrains")]
