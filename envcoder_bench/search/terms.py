"""New terms of a reward, for searches without a language model: simple functions of the task's state.

A quantity is a part of the state, or how far two parts of it are apart. A term divides it by a typical size, so that
the term is of the order of 1; mutations change its numbers from there.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random

from envcoder_bench.shaping.kinds import REWARD
from envcoder_bench.tasks.contract import Key

# typical sizes by unit, SI; of other units 1
SIZES = {"m": 0.3, "rad": 0.5, "m/s": 1.0, "rad/s": 3.0, "N": 50.0, "N m": 10.0}
# keys with these words are constant: only distances from them vary
REFERENCES = re.compile(r"(?:^|_)(?:initial|init|default|basis|inv|gravity)_")
ROTATION = re.compile(r"quat|rot|orient", re.IGNORECASE)  # in the key or the meaning of a quaternion
RIGID_UNIT = "m, -, m/s, rad/s"  # position 3, quaternion xyzw 4, linear and angular velocity 3 each
UTILS = ("quat_axis", "quat_diff_rad", "quat_rotate_inverse")

# terms of a number {x} of size {s}, and of a vector of such numbers
SCALARS = ("{x} / {s}", "-{x} / {s}", "-(({x} / {s}) ** 2)", "torch.exp(-(({x} / {s}) ** 2))", "torch.tanh({x} / {s})")
VECTORS = ("-torch.mean(({x} / {s}) ** 2, dim=-1)", "torch.exp(-torch.mean(({x} / {s}) ** 2, dim=-1))")


@dataclass(frozen=True)
class Quantity:
    """A function of the state.

    Attributes:
        name: an identifier.
        text: its expression, ``(n,)`` or ``(n, k)``; ``{KEY}`` stands for a key of the state.
        sizes: typical absolute values of its k columns; one for ``(n,)``.
        vector: whether it is ``(n, k)``.
    """

    name: str
    text: str
    sizes: tuple[float, ...] = (1.0,)
    vector: bool = False

    @property
    def uniform(self) -> bool:
        """Whether all columns have one size, so that their mean square makes sense."""
        return self.vector and len(set(self.sizes)) == 1


def quantities(state: Mapping[str, Key]) -> list[Quantity]:
    """Return the quantities of a state with these keys, shapes without the environment axis; only floats are used."""
    floats = {key: own for key, own in state.items() if own.dtype.startswith("float") and math.prod(own.shape)}
    numbers = {key: _resolved(own, state) for key, own in floats.items()}
    found = [q for key, own in numbers.items() if not REFERENCES.search(key) for q in _of_key(key, own)]
    for (a, one), (b, other) in combinations(numbers.items(), 2):
        constant = REFERENCES.search(a) and REFERENCES.search(b)
        if one.shape == other.shape and one.unit == other.unit and len(one.shape) < 2 and not constant:
            found.append(_apart(a, b, one))
    return found


def _resolved(own: Key, state: Mapping[str, Key]) -> Key:
    """Return a key with the unit of another one in place of ``as KEY``."""
    unit = own.unit[3:] if own.unit.startswith("as ") else ""
    return replace(own, unit=state[unit].unit) if unit in state else own


def _is_rotation(key: str, own: Key) -> bool:
    return own.shape == (4,) and own.unit in ("-", "") and ROTATION.search(f"{key} {own.meaning}") is not None


def _of_key(key: str, own: Key) -> list[Quantity]:
    """Return the quantities of one key."""
    units, text = own.unit.split(", "), f"{{{key}}}"
    size = SIZES.get(units[0], 1.0)
    if own.shape == ():
        return [Quantity(key, text, (size,))]
    if _is_rotation(key, own):
        return [Quantity(f"{key}_up", f"quat_axis({text}, 2)[:, 2]")]
    if own.shape == (13,) and own.unit == RIGID_UNIT:
        turned = f"{text}[:, 3:7]"
        return [
            Quantity(f"{key}_height", f"{text}[:, 2]", (SIZES["m"],)),
            Quantity(f"{key}_up", f"quat_axis({turned}, 2)[:, 2]"),
            Quantity(f"{key}_velocity", f"quat_rotate_inverse({turned}, {text}[:, 7:10])", 3 * (SIZES["m/s"],), True),
            Quantity(f"{key}_spin", f"quat_rotate_inverse({turned}, {text}[:, 10:13])", 3 * (SIZES["rad/s"],), True),
        ]
    if len(own.shape) == 1:
        each = tuple(SIZES.get(unit, 1.0) for unit in units)
        return [Quantity(key, text, each if len(each) == own.shape[0] else own.shape[0] * (size,), True)]
    if len(own.shape) == 2 and own.shape[1] == 3:  # a vector for each body
        return [Quantity(f"{key}_norm", f"torch.norm({text}, dim=-1)", own.shape[0] * (size,), True)]
    return []


def _apart(a: str, b: str, own: Key) -> Quantity:
    """Return how far two keys of one shape and unit are apart."""
    name, size = f"{a}_to_{b}", SIZES.get(own.unit.split(", ")[0], 1.0)
    if _is_rotation(a, own):
        return Quantity(name, f"quat_diff_rad({{{a}}}, {{{b}}})", (SIZES["rad"],))
    if own.shape == (13,) and own.unit == RIGID_UNIT:
        return Quantity(name, f"{{{a}}}[:, 0:3] - {{{b}}}[:, 0:3]", 3 * (SIZES["m"],), True)
    return Quantity(name, f"{{{a}}} - {{{b}}}", math.prod(own.shape) * (size,), own.shape != ())


# of every task: being alive, and the size of the actions, whose number of columns is the candidate's
COMMON = (
    ("alive", "torch.ones_like({progress_buf}).float()", "1.0 * {x}"),
    ("actions", "{actions}", VECTORS[0].replace("{s}", "1.0")),
)


def draw(found: Sequence[Quantity], rng: Random) -> str:
    """Return the text of a candidate whose reward is one term."""
    k = rng.randrange(len(found) + len(COMMON))
    if k >= len(found):
        return _candidate(*COMMON[k - len(found)])
    own = found[k]
    if own.uniform and rng.random() < 0.5:
        return _candidate(own.name, own.text, rng.choice(VECTORS).replace("{s}", str(own.sizes[0])))
    name, text, column = own.name, own.text, rng.randrange(len(own.sizes))
    if own.vector:
        text = f"({text})[:, {column}]" if " - " in text else f"{text}[:, {column}]"
        name = f"{name}_{column}"
    return _candidate(name, text, rng.choice(SCALARS).replace("{s}", str(own.sizes[column])))


def _candidate(name: str, text: str, term: str) -> str:
    value = text.replace("{", 'state_dict["').replace("}", '"]')
    used = [own for own in UTILS if f"{own}(" in value]
    head = f"from envcoder_bench.torch_utils import {', '.join(used)}\n" if used else ""
    body = f"    {name} = {value}\n    return {term.replace('{x}', name)}\n"
    return f"{head}import torch\n\n\ndef {REWARD}(state_dict):\n{body}"
