"""What each component of shaping is worth: the human baseline's without one of them, and without all.

After Park, Margolis and Agrawal, "Automatic Environment Shaping is the Next Frontier in RL" (ICML 2024), table 1.
"""

from envcoder_bench.shaping import kinds
from envcoder_bench.shaping.kinds import ACTION_TYPES, SHAPER_TYPES
from envcoder_bench.shaping.source import ACTION_DIM, Source, shaping_source
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.base import HUMAN, SPARSE, UNSHAPED

from .training import Study

COMPONENTS: dict[str, tuple[str, ...]] = {
    "reward": (kinds.REWARD,),
    "observation": (kinds.OBSERVATION,),
    "action": (kinds.TORQUE, kinds.DOF_TARGET),
    "initial_state": (kinds.INITIAL_STATE,),
    "termination": (kinds.TERMINAL,),
    "goal": (kinds.GOAL,),
}
NOTHING = "nothing"
TASKS = ("Anymal", "Humanoid", "AllegroHand", "FrankaCubeStack")
# raw joint torques, as fractions of the motors' greatest, where those of unshaped.py are something else
RAW_TORQUE = {
    "Anymal": 'ACTION_DIM = 12\n\n\ndef compute_torque(action):\n    """Up to 80 N m."""\n    return 80.0 * action\n',
    "AllegroHand": "ACTION_DIM = 16\n\n\n"
    'def compute_torque(action, effort_limits):\n    """Up to the limits."""\n    return action * effort_limits\n',
}
# written otherwise in human.py, but the same: torques with powerScale 1, joints around a default pose of zeros
SAME = (("Humanoid", "action"), ("Ant", "action"), ("Cartpole", "action"), ("AllegroHand", "initial_state"))


def variants(task: str) -> dict[str, str | None]:
    """Return the texts of the human shaping without each component, and without all; None where nothing changes.

    A missing component is that of ``unshaped.py``, except that the reward is that of ``sparse.py`` if there is one, and
    that the action is the raw torque.
    """
    human = shaping_source(find_spec(task).baseline_path(HUMAN).read_text(encoding="utf-8"), SHAPER_TYPES)
    raw = {name: shaping_source(_raw(task, name), types) for name, types in COMPONENTS.items()}
    texts: dict[str, str | None] = {}
    for name, types in COMPONENTS.items():
        component = shaping_source(human.text, types)
        same = component.fingerprint() == raw[name].fingerprint() or (task, name) in SAME
        without = f"The human baseline of {task} without its {name}."
        texts[f"no_{name}"] = None if same else replaced(human, {name: raw[name]}).with_docstring(without)
    texts[NOTHING] = replaced(human, raw).with_docstring(f"{task} without any shaping, from raw torques.")
    return texts


def replaced(human: Source, parts: dict[str, Source]) -> Source:
    """Return the human shaping with other components. Raises ValueError where one is missing."""
    result = human
    for name, part in parts.items():
        types = COMPONENTS[name]
        definitions = [definition for names in part.shapers(SHAPER_TYPES).values() for definition in names]
        if not definitions and any(result.function(kind) for kind in types):
            raise ValueError(f"no {name} could replace the human baseline's")
        has_action = bool(set(definitions) & set(ACTION_TYPES))
        drop = [*types, *([ACTION_DIM] if has_action else [])]
        roots = [*definitions, *([ACTION_DIM] if has_action and ACTION_DIM in part.definitions else [])]
        result = result.without(drop)
        result = result.joined(part, roots) if roots else result
    return shaping_source(result.text, SHAPER_TYPES)


def _raw(task: str, component: str) -> str:
    if component == "action" and task in RAW_TORQUE:
        return RAW_TORQUE[task]
    sparse = find_spec(task).folder / f"{SPARSE}.py"
    if component == "reward" and sparse.is_file():
        return sparse.read_text(encoding="utf-8")
    return find_spec(task).baseline_path(UNSHAPED).read_text(encoding="utf-8")


def components(study: Study) -> None:
    """Train all variants of each task in one batch; human and unshaped baselines come with them."""
    args = study.args
    settings = {"num_envs_per_candidate": args.envs, "learning_iterations": args.iterations}
    evaluation = {"evaluation.points": args.points, "evaluation.final_episodes": args.episodes}
    evaluation["evaluation.point_steps"] = None  # full episodes, comparable with the last evaluation's
    for task in args.tasks or TASKS:
        texts = {name: text for name, text in variants(task).items() if text is not None}
        about = {"kind": "components", "task": task, "envs": args.envs, "iterations": args.iterations}
        study.train(about, texts, args.seeds, save_state=False, **settings, **evaluation)
