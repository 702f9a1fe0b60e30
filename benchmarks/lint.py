"""How often the lint of rewards is right: shipped rewards, baselines, and bugs planted in the human baselines' rewards.

python benchmarks/lint.py Anymal=RUN/trajectories.npz Ant=RUN/trajectories.npz ...
"""

import ast
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from envcoder_bench.env.trajectories import Trajectories
from envcoder_bench.run import lint
from envcoder_bench.run.inputs import read_candidates, resolve, with_candidates
from envcoder_bench.run.prepare.groups import make_context
from envcoder_bench.run.prepare.run_files import SlowFiles, load_and_assemble
from envcoder_bench.tasks.base import HUMAN, UNSHAPED

# shipped candidates that are bad by what their docstrings say
BAD = {"Cartpole": ["004_only_penalties"], "CartpoleSwingup": ["004_heavy_penalty", "005_only_penalties"]}
WAITS = ("Cartpole", "CartpoleSwingup")  # where standing still is right
STILL = "torch.exp(-(dof_vel ** 2).mean(dim=1) / {0})"
PLANTED = {  # a return statement, and what the remark says
    "minus": ("-r", "opposes"),
    "constant": ('r + 0.3 * size, {{"r": r, "bonus": 0.3 * size}}', "a constant"),
    "still": ('r + size * ' + STILL + ', {{"r": r, "bonus": size * ' + STILL + "}}", "bonus is largest"),
    "only_still": (STILL, "stands still"),
}  # fmt: skip


def planted(text: str, kind: str, human: Trajectories) -> str:
    """Return the text of the human baseline with a bug in its reward."""
    function = next(x for x in ast.parse(text).body if isinstance(x, ast.FunctionDef) and x.name == "compute_reward")
    names = [argument.arg for argument in function.args.args]
    usual = float(np.mean(np.square(human.state["dof_vel"]))) / 4
    result = PLANTED[kind][0].format(usual)
    more = [] if "dof_vel" in names else ["dof_vel"]
    return text.replace("def compute_reward(", "def human_reward(") + (
        f"\n\ndef compute_reward({', '.join([*names, *more])}):\n    r = human_reward({', '.join(names)})\n"
        "    r = r[0] if isinstance(r, tuple) else r\n    size = torch.ones_like(r)\n"
        f"    return {result}\n"
    )


def main(words: list[str]) -> None:
    warnings.simplefilter("ignore")
    counts = Counter[tuple[bool, bool]]()  # bad, and remarked
    for word in words:
        task, _, file = word.partition("=")
        kept = lint.read(Path(file))
        spec = resolve(task, ["device=cpu", "sim=mujoco_cpu", "num_envs_per_candidate=16"])
        shipped = read_candidates(task, None, None)
        human = next(source for source in with_candidates(spec, shipped, None).sources if source.name == HUMAN)
        kinds = [kind for kind in PLANTED if task not in WAITS or "still" not in kind]
        texts = {kind: planted(human.source, kind, kept[HUMAN]) for kind in kinds}
        spec = with_candidates(spec, [*shipped, *read_candidates(task, texts, None)], None)
        with SlowFiles() as slow:
            context = make_context(spec, slow)
            judge = lint.Judge(context.task, kept)
            print(f"{task}: {judge}")
            for source in spec.sources:
                if source.name not in (HUMAN, UNSHAPED) and not lint.rewards(source, spec):
                    continue
                verdict = judge(context.check(load_and_assemble(source, context.files, 0)))
                is_bad = source.name in (*texts, *BAD.get(task, ()))
                expected = PLANTED[source.name][1] if source.name in texts else "opposes"
                hit = any(expected in line for line in verdict.remarks) if is_bad else bool(verdict.remarks)
                counts[is_bad, hit] += 1
                marks = " ".join(verdict.remarks) or verdict.not_judged or "-"
                print(f"  {source.name:24} {'bad' if is_bad else 'sound':6}{marks}")
    detected, false = counts[True, True], counts[False, True]
    bad, sound = detected + counts[True, False], false + counts[False, False]
    print(f"{detected} of {bad} bad rewards are found; {false} of {sound} sound rewards have a remark")


if __name__ == "__main__":
    main(sys.argv[1:])
