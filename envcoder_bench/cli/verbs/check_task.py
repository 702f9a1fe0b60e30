"""Check that a task of your own fulfils the contract of tasks; takes seconds on a CPU."""

from envcoder_bench.cli.command_line import PlainParser
from envcoder_bench.core.overrides import split_overrides

EPILOG = """\
examples:
  # the task of a folder, on a CPU
  COMMAND path/to/pendulum --sim mujoco_cpu
  # the class of a module, with a number of its YAML replaced
  COMMAND my_robots.pendulum:Pendulum task.env.torque=2

What is checked: docs/add_a_task.md.

exit codes: 0 the task passes; 1 it violates the contract, one line for each violation; 2 bad input.
"""


def build_parser() -> PlainParser:
    parser = PlainParser("envcoder-bench check-task", __doc__ or "", EPILOG)
    parser.add_argument("task", help="its folder, module:Class, or name")
    parser.add_argument("--sim", default="auto", help="auto, mujoco_cpu or mujoco_warp (default: %(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda:N (default: %(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="override a key of the config")
    return parser


def main(words: list[str]) -> int:
    """Run the verb; return the exit code."""
    parser = build_parser()
    rest, overrides = split_overrides(parser, words)
    args = parser.parse_args(rest)
    for word in args.overrides:
        parser.error(f"'{word}' is neither a flag nor key=value")
    from envcoder_bench.tools.task_check import TaskFaults, check_task  # it imports torch, which --help does not need

    try:
        check_task(args.task, args.sim, args.device, overrides)
    except TaskFaults as faults:
        print(faults)
        return 1
    print(f"{args.task}: all checks pass")
    return 0
