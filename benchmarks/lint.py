"""How often the lint of rewards is right: rewards of rewards.yaml, planted hacks, and shipped candidates.

python benchmarks/lint.py CartpoleSwingup=RUN/trajectories.npz Ant=RUN/trajectories.npz Anymal=RUN/trajectories.npz

A random half of the sound and of the bad rewards of rewards.yaml was held out while the limits were chosen.
"""

import random
import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from envcoder_bench.run import lint
from envcoder_bench.run.inputs import read_candidates, resolve, with_candidates
from envcoder_bench.run.prepare.groups import make_context
from envcoder_bench.run.prepare.run_files import SlowFiles, load_and_assemble
from envcoder_bench.tasks.base import HUMAN, UNSHAPED

FOLDER = Path(__file__).parent
SEED = 68  # of the held-out half
# shipped candidates that are bad by what their docstrings say
BAD = {"Cartpole": ["004_only_penalties"], "CartpoleSwingup": ["004_heavy_penalty", "005_only_penalties"]}
HELPERS = "from envcoder_bench.torch_utils import quat_rotate_inverse"


def held_out(corpus: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    """Return the held-out rewards of rewards.yaml, as (task, verdict, name)."""
    rng = random.Random(SEED)
    out = set()
    for verdict in ("sound", "bad"):
        every = sorted((task, verdict, name) for task, by_verdict in corpus.items() for name in by_verdict[verdict])
        out.update(rng.sample(every, len(every) // 2))
    return out


def hack(of_task: Mapping[str, Any], name: str) -> str:
    """Return the text of a reward of hacks.yaml."""
    terms = ", ".join(f'"{key}": {value}' for key, value in of_task["hacks"][name].items())
    before = "".join(f"    {line}\n" for line in of_task.get("before", ()))
    body = f"{before}    terms = {{{terms}}}\n    return sum(terms.values()), terms\n"
    return f"{HELPERS}\n\n\ndef compute_reward({of_task['state']}):\n{body}"


def main(words: list[str]) -> None:
    warnings.simplefilter("ignore")
    corpus, hacks = (yaml.safe_load((FOLDER / name).read_text("utf-8")) for name in ("rewards.yaml", "hacks.yaml"))
    out = held_out(corpus)
    counts: dict[str, Counter[bool]] = {}
    for word in words:
        task, _, file = word.partition("=")
        kept = lint.read(Path(file))
        spec = resolve(task, ["device=cpu", "sim=mujoco_cpu", "num_envs_per_candidate=16"])
        shipped = read_candidates(task, None, None)
        kinds: dict[str, str] = {}  # the group in which a reward counts
        texts: dict[str, str] = {}
        for verdict in ("sound", "bad"):
            for name, text in corpus.get(task, {}).get(verdict, {}).items():
                half = "held out" if (task, verdict, name) in out else "seen"
                texts[f"{verdict}_{name}"], kinds[f"{verdict}_{name}"] = text, f"{verdict}, {half}"
        for name in hacks.get(task, {}).get("hacks", ()):
            texts[f"hack_{name}"], kinds[f"hack_{name}"] = hack(hacks[task], name), "planted hacks"
        spec = with_candidates(spec, [*shipped, *read_candidates(task, texts, None)], None)
        with SlowFiles() as slow:
            context = make_context(spec, slow)
            judge = lint.Judge(context.task, kept)
            print(f"{task}: {judge}")
            for source in spec.sources:
                if source.name not in (HUMAN, UNSHAPED) and not lint.rewards(source, spec):
                    continue
                verdict = judge(context.check(load_and_assemble(source, context.files, 0)))
                kind = kinds.get(source.name, "bad, shipped" if source.name in BAD.get(task, ()) else "sound, shipped")
                counts.setdefault(kind, Counter())[bool(verdict.remarks)] += 1
                marks = "; ".join(verdict.remarks) or verdict.not_judged or "-"
                print(f"  {source.name:28} {kind:16} {marks}")
    for kind, by_mark in sorted(counts.items()):
        print(f"{kind}: {by_mark[True]} of {by_mark.total()} have a remark")


if __name__ == "__main__":
    main(sys.argv[1:])
