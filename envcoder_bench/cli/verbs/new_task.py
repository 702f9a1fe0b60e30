"""Write the folder of a new task from a robot's model, MJCF or URDF."""

from pathlib import Path

from envcoder_bench.cli.command_line import PlainParser
from envcoder_bench.core.shell import shown

EPILOG = """\
examples:
  # an MJCF file, into the folder walker/
  COMMAND walker.xml
  # a URDF whose base floats, on a plane
  COMMAND path/to/robot.urdf --name Hopper --floating --ground --output tasks/hopper

It writes the model with plain drives (docs/add_a_task.md), task.py, task.yaml and both baselines, with an example goal:
forward velocity if the robot floats, else joint positions. EDIT marks what to make your own. What differs from the
file is printed.

exit codes: 0 done; 2 bad input, or a model with parts that are not supported, with the reason.
"""


def build_parser() -> PlainParser:
    parser = PlainParser("envcoder-bench new-task", __doc__ or "", EPILOG)
    parser.add_argument("model", metavar="MODEL", help="the robot's file, .xml (MJCF) or .urdf")
    parser.add_argument("--name", help="name of the task (default: that of the file)")
    parser.add_argument("--output", metavar="DIR", help="folder to write (default: one of the task's name)")
    parser.add_argument("--floating", action="store_true", help="the first body floats; a URDF's is fixed without it")
    parser.add_argument("--ground", action="store_true", help="add a plane, if there is nothing to stand on")
    return parser


def main(words: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = build_parser().parse_args(words)
    from envcoder_bench.tools.new_task import new_task  # it imports torch, which --help does not need

    output = None if args.output is None else Path(args.output)
    task = new_task(Path(args.model), args.name, output, args.floating, args.ground)
    for change in task.changes:
        print(f"- {change}")
    print(f"{shown(task.folder)}: the task {task.name}, with {len(task.driven)} driven joints")
    print(f"next: edit the lines with EDIT, then envcoder-bench check-task {shown(task.folder)}")
    return 0
