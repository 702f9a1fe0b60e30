"""Write a trained policy as ONNX or TorchScript, with a description of its inputs and outputs."""

import importlib.util

from envcoder_bench.cli.command_line import PlainParser
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.shell import shown

EPILOG = """\
examples:
  # the best candidate of a run
  COMMAND runs/Cartpole_20260101-120000
  # the policy of one candidate and seed, as TorchScript
  COMMAND runs/Cartpole_20260101-120000 --candidate human --seed 0 --format torchscript

It writes these files into the candidate's folder, RUN/candidates/NAME (docs/export.md):
  policy.onnx or policy.pt   observations to actions and, where possible, commands of the drives
  policy.json                names, order, units and rates of all that goes in and out
  model.xml                  the robot as the run simulated it, for MuJoCo; with meshes, textures and height fields in
                             the folder assets, if it has any

exit codes: 0 done; 2 bad input, a missing package, or a file that cannot be read or written.
"""


def build_parser() -> PlainParser:
    parser = PlainParser("envcoder-bench export", __doc__ or "", EPILOG)
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    parser.add_argument("--candidate", metavar="NAME", help="a candidate or baseline (default: the best candidate)")
    parser.add_argument("--seed", type=int, metavar="K", help="one of the run's seeds (default: the candidate's best)")
    parser.add_argument("--format", default="onnx", metavar="onnx|torchscript", help="format (default: onnx)")
    parser.add_argument("--output", metavar="DIR", help="folder for the files (default: the candidate's folder)")
    return parser


def main(words: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = build_parser().parse_args(words)
    if args.format == "onnx" and importlib.util.find_spec("onnx") is None:
        raise UserError("--format onnx needs the package onnx: pip install 'envcoder-bench[export]'")
    from envcoder_bench.export.write import export_policy  # it imports torch, which --help does not need

    done = export_policy(args.run, args.candidate, args.seed, args.format, args.output)
    outputs = "actions and commands of the drives" if done.command else "actions"
    print(f"{shown(done.policy)}: {outputs}; largest difference to the policy of the run: {done.difference:.1e}")
    print(f"{shown(done.description)}: what goes in and out")
    if done.model is not None:
        also = "" if done.assets is None else f"; its meshes, textures and height fields are in {shown(done.assets)}"
        print(f"{shown(done.model)}: the robot, for MuJoCo{also}")
    return 0
