"""The verbs of the command envcoder-bench: the table of all, and those that check and write tasks and serve agents.

A new verb: its parser and its function, here or in ``run_verbs.py``, a row in VERBS at the end, and tests. torch is
imported only where a verb needs it, so that --help is instant.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from envcoder_bench.cli import run_verbs as runs
from envcoder_bench.cli.command_line import Parser, count, verb_parser
from envcoder_bench.cli.json_output import put, show
from envcoder_bench.cli.score_model import leaderboard, leaderboard_parser, score_model, score_model_parser
from envcoder_bench.core import SIMULATORS
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.shell import display_path

COMMANDS = ("eval-shapers", "auto-shape", "eval-policies")  # the other ones


class Verb(NamedTuple):
    """A verb: what the help of envcoder-bench says, its parser, and its function from words to an exit code."""

    meaning: str
    build_parser: Callable[[], Parser]
    main: Callable[[list[str]], int]


# check-task


_CHECK_TASK = """\
Check that a task of your own fulfils the contract of tasks; takes seconds on a CPU.

examples:
  # the task of a folder, on a CPU
  COMMAND path/to/pendulum --sim mujoco_cpu
  # the class of a module, with a number of its YAML replaced
  COMMAND my_robots.pendulum:Pendulum task.env.torque=2

What is checked: docs/add_a_task.md.

exit codes: 0 the task passes; 1 it violates the contract, one line for each violation; 2 bad input.
"""


def check_task_parser() -> Parser:
    parser = verb_parser("check-task", _CHECK_TASK)
    parser.add_argument("task", help="its folder, module:Class, or name")
    parser.add_argument("--sim", default="auto", choices=("auto", *SIMULATORS), help="simulator (default: auto)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda:N (default: %(default)s)")
    parser.add_overrides("override a key of the config")
    return parser


def check_task(words: list[str]) -> int:
    args = check_task_parser().parse(words)
    from envcoder_bench.serve.documents import CheckedTask  # these import torch, which --help does not need
    from envcoder_bench.tools.task_check import TaskFaults, check_task

    try:
        check_task(args.task, args.sim, args.device, args.overrides)
    except TaskFaults as faults:
        findings, text = faults.findings, f"{faults}\n"
        show(lambda: CheckedTask(task=args.task, passed=False, findings=findings), lambda: text)
        return 1
    show(lambda: CheckedTask(task=args.task, passed=True), lambda: f"{args.task}: all checks pass\n")
    return 0


# mcp


_MCP = """\
Serve the tools of an agent over the Model Context Protocol: rank candidates, with verdicts.

examples:
  # a campaign on one task, by stdio; the agent's client starts this command
  COMMAND campaigns/cartpole --task CartpoleSwingup --minutes 120
  # by HTTP on the loopback, with the token that is in campaigns/ant/token
  COMMAND campaigns/ant num_envs_per_candidate=128 --task Ant --http 8765
  # the page that tells an agent how to use the tools well
  COMMAND --install-skill .claude/skills

The folder keeps champion, candidates, seeds and budget: a server that is killed goes on where it was. Candidates run
in a confined process. docs/agents.md has the tools.

exit codes: 0 done; 2 bad input, a missing package, or a folder that another server has; 130 stopped by Ctrl-C.
"""


def mcp_parser() -> Parser:
    parser = verb_parser("mcp", _MCP)
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="the folder of the campaign, new or not")
    parser.add_argument("--task", help="the task (default: the agent chooses an installed one)")
    parser.add_argument("--files", metavar="DIR", default=".", help="folder from which files are read (default: .)")
    parser.add_argument(
        "--minutes", type=count, metavar="M", default=60, help="of training, all jobs together (default: %(default)s)"
    )
    parser.add_argument(
        "--attempts",
        type=count,
        metavar="N",
        default=18,
        help="candidates over which verdicts are corrected, with one final evaluation (default: %(default)s)",
    )
    parser.add_argument("--http", type=count, metavar="PORT", help="serve HTTP on 127.0.0.1 (default: stdio)")
    parser.add_argument("--install-skill", metavar="DIR", help="write envcoder-bench/SKILL.md into DIR, and end")
    parser.add_overrides("override a key of cfg/ in all runs")
    return parser


def mcp(words: list[str]) -> int:
    args = mcp_parser().parse(words)
    from envcoder_bench.serve.campaign import State
    from envcoder_bench.serve.documents import Written
    from envcoder_bench.serve.server import install_skill, serve

    if args.install_skill is not None:
        skill = install_skill(Path(args.install_skill))
        show(lambda: Written(files={"skill": skill}), lambda: f"{display_path(skill)}\n")
        return 0
    if args.json:
        raise UserError("--json is for --install-skill: the server speaks its own protocol")
    if args.folder is None:
        raise UserError("no folder: give the folder of the campaign", advice="see --help")
    if not (args.minutes and args.attempts):
        raise UserError("--minutes and --attempts must be at least 1")
    settings = State(args.task or "", args.overrides, 60.0 * args.minutes, args.attempts)
    if settings.task:
        from envcoder_bench.run.config import compose_config

        with user_input():
            compose_config(settings.task, args.overrides)  # raises for a task or a key that does not exist
    serve(Path(args.folder).absolute(), Path(args.files), settings, args.http)
    return 0


# new-task


_NEW_TASK = """\
Write the folder of a new task from a robot's model, MJCF or URDF.

examples:
  # an MJCF file, into the folder walker/
  COMMAND walker.xml
  # a URDF whose base floats, on a plane
  COMMAND path/to/robot.urdf --name Hopper --floating --ground --output tasks/hopper

It writes the model with plain drives (docs/add_a_task.md), task.py, task.yaml and both baselines, with an example goal:
forward velocity if the robot floats or slides in a plane, else joint positions. EDIT marks what to make your own. What
differs from the file is printed.

exit codes: 0 done; 2 bad input, or a model with parts that are not supported, with the reason.
"""


def new_task_parser() -> Parser:
    parser = verb_parser("new-task", _NEW_TASK)
    parser.add_argument("model", metavar="MODEL", help="the robot's file, .xml (MJCF) or .urdf")
    parser.add_argument("--name", help="name of the task (default: that of the file)")
    parser.add_argument("--output", metavar="DIR", help="folder to write (default: one of the task's name)")
    parser.add_argument("--floating", action="store_true", help="the first body floats; a URDF's is fixed without it")
    parser.add_argument("--ground", action="store_true", help="add a plane, if there is nothing to stand on")
    return parser


def new_task(words: list[str]) -> int:
    args = new_task_parser().parse_args(words)
    from envcoder_bench.serve.documents import Written  # these import torch, which --help does not need
    from envcoder_bench.tools.new_task import new_task

    output = None if args.output is None else Path(args.output)
    task = new_task(Path(args.model), args.name, output, args.floating, args.ground)
    put(lambda: Written(files={"task": task.folder}, notes=task.changes))
    for change in task.changes:
        print(f"- {change}")
    driven = f"{len(task.driven)} driven joints and control steps of {task.step}"
    print(f"{display_path(task.folder)}: the task {task.name}, with {driven}")
    print(f"next: edit the lines with EDIT, then envcoder-bench check-task {display_path(task.folder)}")
    return 0


VERBS = {
    "check-task": Verb("check that a task of your own fulfils the contract of tasks", check_task_parser, check_task),
    "compare": Verb(
        "compare two candidates of a run, or several runs of a task, paired by seed",
        runs.compare_parser,
        runs.compare_runs,
    ),
    "export": Verb(
        "write a trained policy as ONNX or TorchScript, with a description of its inputs and outputs",
        runs.export_parser,
        runs.export,
    ),
    "leaderboard": Verb("check scores of models, and write a site of them", leaderboard_parser, leaderboard),
    "list": Verb(
        "list the runs in a folder, with task, date, best candidate and status",
        runs.list_parser,
        runs.list_runs,
    ),
    "mcp": Verb("serve an agent: candidates in, verdicts out, over the Model Context Protocol", mcp_parser, mcp),
    "new-task": Verb("write the folder of a task from the model of a robot, MJCF or URDF", new_task_parser, new_task),
    "play": Verb("replay trained policies side by side, as a video or in MuJoCo's viewer", runs.play_parser, runs.play),
    "report": Verb("write the page of a run again, report.html", runs.report_parser, runs.write_report),
    "score-model": Verb("measure how well a model shapes environments", score_model_parser, score_model),
    "stress": Verb(
        "play final policies under disturbances, and rank them by the worst decile",
        runs.stress_parser,
        runs.stress,
    ),
    "verify": Verb(
        "train a candidate of a run again, elsewhere and with fresh seeds, and compare",
        runs.verify_parser,
        runs.verify_run,
    ),
}
