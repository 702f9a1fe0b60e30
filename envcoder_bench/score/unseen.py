"""Tasks that no model has seen, drawn when it is scored: other robots, and goals of other directions.

The generator is public. The seed of each task is drawn when the searches of the tasks before it have ended, so what a
model learned of the shipped tasks helps only as far as it is true of others. Every task is a folder, as users write
them (docs/add_a_task.md), made of a shipped task: the class is derived from that task's, its model is changed, and its
baselines and numbers are copies.
"""

import math
import random
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.folders import project_folder
from envcoder_bench.core.settings import plain
from envcoder_bench.core.yaml_files import read_yaml, to_yaml
from envcoder_bench.score.protocol import TASKS, ScoredTask
from envcoder_bench.shaping.kinds import FITNESS, REWARD

LENGTHS = 0.85, 1.2  # factors of the lengths of links
MASSES = 0.75, 1.4  # factors of masses
SLOPES = 4.0, 9.0  # degrees, of a rail
TURNS = 50.0, 130.0  # degrees between the direction in which an Ant faces and that in which it should run
DIRECTION = "Direction"

_FILES = ("human.py", "unshaped.py", "sparse.py")
_GOAL = '''"""Speed in the direction of {degrees:.0f} degrees to the left of the world's x axis while the torso is above
0.31 m, m/s, averaged over the full episode (0 after a fall); negative goes the other way, no upper end
"""

import torch


def compute_fitness(root_states):
    along = {x:.6f} * root_states[:, 7] + {y:.6f} * root_states[:, 8]
    return torch.where(root_states[:, 2] > 0.31, along, torch.zeros_like(along))
'''


def draw_task(folder: Path, base: str, seed: int) -> ScoredTask:
    """Write an unseen task into ``folder`` and return it; the same seed gives the same files.

    Args:
        base: one of UNSEEN_TASKS.
    """
    drawn = random.Random(f"{base} {seed}")
    if base == DIRECTION:
        return _direction(folder, seed, drawn)
    name = f"Unseen{base}{seed}"
    _write(folder / name, base, name, _CHANGES[base], drawn)
    known = next(task for task in TASKS.values() if task.address == base)
    description = known.description if known.goal is None else "follow the commands as well as possible"
    tells = f"a robot that is {base}'s in kind alone"
    return ScoredTask(name, str(folder / name), description, tells, overrides=known.overrides, base=base)


def _direction(folder: Path, seed: int, drawn: random.Random) -> ScoredTask:
    """Write the goal of an Ant that should run in another direction, and its reference."""
    angle = drawn.choice((-1, 1)) * drawn.uniform(*TURNS)
    goal = folder / f"direction{seed}.py"
    unit = {"x": math.cos(math.radians(angle)), "y": math.sin(math.radians(angle))}
    text = _GOAL.format(degrees=angle, **unit)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(goal, text)
    # neither baseline runs in this direction: the reference pays the fitness itself
    write_atomic(folder / f"UnseenDirection{seed}_fitness.py", text.replace(FITNESS, REWARD))
    where = f"{abs(angle):.0f} degrees to the {'left' if angle > 0 else 'right'} of the world's x axis"
    description = f"run in the direction {where} as fast as possible, without falling; the target does not matter"
    tells = "a goal against the task's own"
    return ScoredTask(f"UnseenDirection{seed}", "Ant", description, tells, goal, TASKS["Ant"].overrides)


Change = Callable[[ET.Element, dict[str, Any], random.Random], Mapping[str, object]]


def _write(folder: Path, base: str, name: str, change: Change, drawn: random.Random) -> None:
    """Write the folder of a task."""
    from envcoder_bench.run.config import find_task  # it imports torch, which --help does not need

    spec = find_task(base)
    source, class_module = spec.folder, f"envcoder_bench.tasks.{spec.folder.name}.task"
    model = ET.parse(source / str(spec.model_path)).getroot()
    config = plain(read_yaml(project_folder("cfg") / "task" / f"{base}.yaml"))
    attributes = change(model, config["env"], drawn)
    config["name"] = name
    lines = [f"    {key} = {value!r}" for key, value in {"name": name, "model": "model.xml", **attributes}.items()]
    code = [
        f'"""{base} with another body."""',
        "",
        f"from {class_module} import {base}",
        "",
        "",
        f"class {name}({base}):",
    ]
    files = {
        "task.py": "\n".join([*code, f'    """{base} with another body."""', "", *lines, ""]),
        "model.xml": ET.tostring(model, encoding="unicode") + "\n",
        "task.yaml": to_yaml(config),
        "train.yaml": (project_folder("cfg") / "train" / f"{base}PPO.yaml").read_text(encoding="utf-8"),
    }
    files |= {file: (source / file).read_text(encoding="utf-8") for file in _FILES if (source / file).is_file()}
    shutil.rmtree(folder, ignore_errors=True)  # compiled files or modules of somebody else would be imported
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        write_atomic(folder / file, text)


def _ant(model: ET.Element, env: dict[str, Any], drawn: random.Random) -> Mapping[str, object]:
    """Change legs in front and behind, the density, and the signs of joints; return attributes of the class."""
    lengths = {}
    for end in ("front", "back"):
        for link in ("leg", "foot"):
            lengths[end, link] = drawn.uniform(*LENGTHS)
    for body in _bodies(model):
        end = next((end for end in ("front", "back") if end in body.get("name", "")), None)
        link = next((link for link in ("leg", "foot") if body.get("name", "").endswith(link)), None)
        if end and link:
            # a leg carries its foot, whose place is at the leg's end
            for part in (*body.findall("geom"), *(body.findall("body") if link == "leg" else ())):
                _scale(part, (lengths[end, link],) * 3)
    _required(model.find("default/geom")).set("density", f"{5.0 * drawn.uniform(*MASSES):.4f}")
    _flip_some(model, {}, drawn)
    return {"start_height": round(0.44 * max(lengths.values()), 3)}


def _anymal(model: ET.Element, env: dict[str, Any], drawn: random.Random) -> Mapping[str, object]:
    """Change the lengths of thighs and shanks, the masses of base and legs, and the signs of joints."""
    factors = {"THIGH": drawn.uniform(*LENGTHS), "SHANK": drawn.uniform(*LENGTHS)}
    masses = {"base": drawn.uniform(*MASSES), **{link: drawn.uniform(*MASSES) for link in ("HIP", "THIGH", "SHANK")}}
    for body in _bodies(model):
        name = body.get("name", "")
        link = next((link for link in masses if name.endswith(link)), None)
        inertial = body.find("inertial")
        if link is None or inertial is None:
            continue
        length = factors.get(link, 1.0)
        for part in (*body.findall("geom"), *body.findall("body"), inertial):
            _scale(part, (1.0, 1.0, length))
        # as of a body that is larger in all directions, so that the inertia stays one that a body can have
        inertial.set("mass", f"{float(inertial.get('mass', '0')) * masses[link]:.6g}")
        inertia = [float(x) * masses[link] * length**2 for x in inertial.get("fullinertia", "").split()]
        inertial.set("fullinertia", " ".join(f"{x:.6g}" for x in inertia))
    _flip_some(model, env["defaultJointAngles"], drawn)
    x, y, height = env["baseInitState"]["pos"]
    env["baseInitState"]["pos"] = [x, y, round(height * max(1.0, *factors.values()), 3)]  # feet begin above the ground
    return {}


def _slope(model: ET.Element, env: dict[str, Any], drawn: random.Random) -> Mapping[str, object]:
    """Tilt the rail, under a pole whose angle is still 0 upright, and change the masses and the pole's length."""
    slope = drawn.choice((-1, 1)) * math.radians(drawn.uniform(*SLOPES))
    bodies = {body.get("name"): body for body in _bodies(model)}
    bodies["slider"].set("euler", f"{slope:.6f} 0 0")
    bodies["pole"].set("euler", f"{-slope:.6f} 0 0")
    for name in ("cart", "pole"):
        geom = _required(bodies[name].find("geom"))
        geom.set("mass", f"{float(geom.get('mass', '0')) * drawn.uniform(*MASSES):.4f}")
    _scale(_required(bodies["pole"].find("geom")), (1.0, 1.0, drawn.uniform(*LENGTHS)))
    return {}


def _bodies(model: ET.Element) -> list[ET.Element]:
    return list(_required(model.find("worldbody")).iter("body"))


def _required(element: ET.Element | None) -> ET.Element:
    assert element is not None, "the model of a shipped task has changed: score/unseen.py must follow"
    return element


def _scale(element: ET.Element, factors: tuple[float, float, float]) -> None:
    """Multiply the position of an element, or both ends of it."""
    for key in ("pos", "fromto"):
        numbers = [float(x) for x in element.get(key, "").split()]
        if numbers:
            element.set(key, " ".join(f"{x * factors[k % 3]:.6g}" for k, x in enumerate(numbers)))


def _flip_some(model: ET.Element, angles: dict[str, float], drawn: random.Random) -> None:
    """Let each joint turn the other way with probability 1/2: axis, range, and the angle at which episodes begin."""
    classes = {each.get("class"): each.find("joint") for each in model.iter("default")}
    for joint in (joint for body in _bodies(model) for joint in body.findall("joint")):
        if drawn.random() < 0.5:
            continue
        of_class = classes.get(joint.get("class"))
        default: Mapping[str, str] = of_class.attrib if of_class is not None else {}
        axis = joint.get("axis") or default.get("axis", "0 0 1")
        joint.set("axis", " ".join(f"{0.0 - float(x):g}" for x in axis.split()))
        limits = joint.get("range") or default.get("range")
        if limits:
            low, high = (float(x) for x in limits.split())
            joint.set("range", f"{-high:g} {-low:g}")
        name = joint.get("name", "")
        if name in angles:
            angles[name] = -angles[name]


_CHANGES: Mapping[str, Change] = {"Ant": _ant, "Anymal": _anymal, "CartpoleSwingup": _slope}
UNSEEN_TASKS = (*_CHANGES, DIRECTION)
