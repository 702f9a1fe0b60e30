"""Whether ranks that hold over the last quarter of a training hold to the end of a longer one."""

import random
import re

from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.base import HUMAN

from .ranks import generated
from .training import Study

TASKS = ("CartpoleSwingup", "Cartpole", "Anymal")
WEIGHTS = (0.0, 0.3, 1.0, 3.0, 10.0)  # of a term of the human reward
_WEIGHTED = """

def compute_reward(state_dict):
    # human's, with other weights of its terms
    total, parts = human_reward(state_dict)
    return total + sum((weight - 1.0) * parts[name] for name, weight in {}.items()), parts
"""


def weighted(task: str, count: int) -> dict[str, str]:
    """Return candidates by name: the human shaping with random weights of its reward's terms."""
    human = find_spec(task).baseline_path(HUMAN).read_text(encoding="utf-8")
    rest, reward = human.split("def compute_reward(state_dict):", 1)
    terms = re.findall(r'^        "(\w+)":', reward.split("\ndef ", 1)[0], re.MULTILINE)
    chance = random.Random(task)
    return {
        f"w{k:02d}": f"{rest}def human_reward(state_dict):{reward}"
        + _WEIGHTED.format({name: chance.choice(WEIGHTS) for name in terms})
        for k in range(count)
    }


def quarters(study: Study) -> None:
    """Train the same candidates once, and evaluate them at many lengths in episodes of one length.

    A shorter run is the beginning of a longer one, so each evaluation but the first is the end of a run.
    """
    args = study.args
    for task in args.tasks or TASKS:
        about = {
            "kind": "quarters", "task": task, "envs": args.envs, "candidates": args.candidates,
            "iterations": args.iterations,
        }  # fmt: skip
        make = weighted if args.vary == "weights" else generated
        study.train(
            about, make(task, args.candidates), args.seeds, args.first_seed, num_envs_per_candidate=args.envs,
            learning_iterations=args.iterations, save_state=False,
            **{
                "evaluation.points": args.points, "evaluation.num_envs": args.episodes,
                "evaluation.final_episodes": args.episodes, "evaluation.point_steps": args.point_steps or None,
            },
        )  # fmt: skip
