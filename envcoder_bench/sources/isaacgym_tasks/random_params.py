"""``randomization_params`` of IsaacGymEnvs' YAML files, checked, and the distributions that they describe."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.core.errors import near_matches
from envcoder_bench.core.purposes import Purpose

log = logging.getLogger(__name__)
KINDS = ("dof_properties", "rigid_body_properties", "rigid_shape_properties", "tendon_properties")
SCALE = "scale"
METHOD, PARAMS = "apply_randomizations", "randomization_params"  # names in IsaacGymEnvs' VecTask
DISTRIBUTIONS = ("gaussian", "uniform", "loguniform")
_KEYS = (
    "range", "operation", "distribution", "schedule", "schedule_steps", "num_buckets", "setup_only", "range_correlated",
)  # fmt: skip


@dataclass(frozen=True)
class Distribution:
    """A random number that is added to a value or multiplied with it.

    Attributes:
        key_path: its path in the YAML, also the key of its random numbers.
        range: lowest and highest number; of a Gaussian, mean and standard deviation.
        operation: ``additive`` or ``scaling``.
        distribution: ``gaussian``, ``uniform`` or ``loguniform``.
        schedule: ``linear`` grows to the full range in ``schedule_steps`` simulation steps, ``constant`` begins then.
        num_buckets: number of values to which the result is rounded; 0 for none.
        setup_only: whether it is drawn once.
        correlated: range of the part of an observation's or action's noise that is constant between refreshes.
    """

    key_path: str
    range: tuple[float, float]
    operation: str
    distribution: str
    schedule: str | None = None
    schedule_steps: float = 0
    num_buckets: int = 0
    setup_only: bool = False
    correlated: tuple[float, float] = (0.0, 0.0)

    @property
    def key(self) -> int:
        """A number by which the random numbers of different distributions differ."""
        return noise.text_key(self.key_path)

    def strength(self, frames: int) -> float:
        """Return the schedule's factor after ``frames`` simulation steps, 0 to 1."""
        if self.schedule == "linear":
            return min(frames, self.schedule_steps) / self.schedule_steps
        return 0.0 if self.schedule == "constant" and frames < self.schedule_steps else 1.0

    def bounds(self, frames: int, of: tuple[float, float] | None = None) -> tuple[float, float]:
        """Return the range ``of`` (by default ``range``) after ``frames`` simulation steps."""
        first, second = self.range if of is None else of
        s = self.strength(frames)
        if self.operation == "additive":
            return first * s, second * s
        return first * s + (1.0 - s), second * s + (0.0 if self.distribution == "gaussian" else 1.0 - s)

    def draw(self, seeds: Tensor, lanes: Tensor, step: int, frames: int, columns: int) -> np.ndarray:
        """Draw ``(n, columns)`` numbers as a function of the environments' seeds and lanes ``(n,)`` and the step."""
        standard = standard_numbers(self.distribution == "gaussian", self.key, seeds, lanes, step, columns)
        x = standard.double().numpy()
        if self.distribution == "loguniform":
            s = self.strength(frames) if self.operation == "additive" else 1.0
            low, high = (math.log(b) for b in (self.range if self.operation == "additive" else self.bounds(frames)))
            return s * np.exp(low + (high - low) * x)
        first, second = self.bounds(frames)
        return first + second * x if self.distribution == "gaussian" else first + (second - first) * x

    def applied(self, original: np.ndarray, sample: np.ndarray) -> np.ndarray:
        """Return original values with a sample applied; a sample of NaN leaves the original value."""
        values = original + sample if self.operation == "additive" else original * sample
        if self.num_buckets:
            values = self._bucketed(values)
        return np.where(np.isnan(sample), original, values)

    def _bucketed(self, values: np.ndarray) -> np.ndarray:
        """Round down to a bucket; values below the first one get the last one, as in IsaacGymEnvs."""
        low, high = self.range
        if self.distribution != "uniform":
            low, high = low - 2.0 * math.sqrt(high), low + 2.0 * math.sqrt(high)
        buckets = (high - low) * np.arange(self.num_buckets) / self.num_buckets + low
        return buckets[np.searchsorted(buckets, values, side="right") - 1]


def standard_numbers(normal: bool, key: int, seeds: Tensor, lanes: Tensor, step: int, columns: int) -> Tensor:
    """Draw ``(n, columns)`` float32 standard normal numbers, or uniform ones in [0, 1)."""
    draw = noise.normal if normal else noise.uniform
    return draw(
        (seeds * noise.SPREAD + key).unsqueeze(1), step, Purpose.ISAAC_GYM_RANDOMIZATION, lanes, columns, seeds.device
    )


Attributes = dict[str, Distribution]


@dataclass(frozen=True)
class Params:
    """The content of ``randomization_params``.

    Attributes:
        frequency: smallest number of steps between randomizations: control steps for an environment's actors,
            simulation steps for the rest.
        actions, observations: noise.
        gravity: of all environments of a group.
        actors: by actor, kind of property (one of ``KINDS``) and attribute.
        scales: by actor.
    """

    frequency: float
    actions: Distribution | None
    observations: Distribution | None
    gravity: Distribution | None
    actors: Mapping[str, Mapping[str, Attributes]] = field(default_factory=dict)
    scales: Attributes = field(default_factory=dict)


def randomizes(config: Mapping[str, Any]) -> bool:
    """Return whether a task's config enables IsaacGymEnvs' domain randomization."""
    section = config.get("task")
    return isinstance(section, Mapping) and bool(section.get("randomize"))


def read_params(content: Any, path_of_params: str = "task.randomization_params") -> Params:
    """Read ``randomization_params``; values without effect are logged.

    Raises:
        ValueError: a value is missing or wrong; the message has its place.
    """
    params = _mapping(content, path_of_params)
    frequency = params.get("frequency", 1)
    if not _is_number(frequency) or frequency < 1:
        raise ValueError(f"{path_of_params}.frequency must be a number of at least 1, got {frequency!r}")
    keys = ("frequency", "observations", "actions", "sim_params", "actor_params")
    _tell(path_of_params, [key for key in params if key not in keys])
    # noise of observations and actions
    policy = {
        key: _distribution(params[key], f"{path_of_params}.{key}", ("gaussian", "uniform"))
        for key in ("actions", "observations")
        if params.get(key) is not None
    }
    sim_params = _mapping(params.get("sim_params") or {}, f"{path_of_params}.sim_params")
    _tell(f"{path_of_params}.sim_params", [key for key in sim_params if key != "gravity"])
    spec = sim_params.get("gravity")
    gravity = None if spec is None else _distribution(spec, f"{path_of_params}.sim_params.gravity")
    # properties of actors
    actors: dict[str, dict[str, Attributes]] = {}
    scales: Attributes = {}
    for actor, properties in _mapping(params.get("actor_params") or {}, f"{path_of_params}.actor_params").items():
        path = f"{path_of_params}.actor_params.{actor}"
        actors[actor] = {}
        for kind, attributes in _mapping(properties, path).items():
            if kind == SCALE:
                scales[actor] = _distribution(attributes, f"{path}.{kind}")
            elif kind in KINDS:
                specs = _mapping(attributes, f"{path}.{kind}")
                actors[actor][kind] = {name: _distribution(x, f"{path}.{kind}.{name}") for name, x in specs.items()}
            elif kind != "color":
                expected = (*KINDS, SCALE, "color")
                raise ValueError(
                    f"{path}.{kind} is not a property{near_matches(kind, expected)}: {', '.join(expected)}"
                )
    return Params(float(frequency), policy.get("actions"), policy.get("observations"), gravity, actors, scales)


def _distribution(content: Any, where: str, allowed: tuple[str, ...] = DISTRIBUTIONS) -> Distribution:
    values = _mapping(content, where)
    unknown = next((key for key in values if key not in _KEYS), None)
    if unknown is not None:
        raise ValueError(f"{where} has an unknown key '{unknown}'{near_matches(unknown, _KEYS)}")
    for key, expected in (("distribution", allowed), ("operation", ("additive", "scaling"))):
        if values.get(key) not in expected:
            raise ValueError(f"{where}.{key} must be {' or '.join(expected)}, got {values.get(key)!r}")
    # ranges: of each number, and of what all share
    ranges = [_range(values.get("range"), f"{where}.range")]
    ranges.append(_range(values.get("range_correlated", (0.0, 0.0)), f"{where}.range_correlated"))
    if values["distribution"] == "loguniform" and not min(ranges[0]) > 0:
        raise ValueError(f"{where}.range must be positive for a loguniform distribution, got {values['range']}")
    # how it grows with the training
    schedule, steps = values.get("schedule"), values.get("schedule_steps", 0)
    if schedule not in (None, "linear", "constant"):
        raise ValueError(f"{where}.schedule must be linear or constant, got {schedule!r}")
    if schedule is not None and (not _is_number(steps) or steps <= 0):
        raise ValueError(f"{where}.schedule_steps must be a positive number, got {steps!r}")
    buckets, setup_only = values.get("num_buckets", 0), values.get("setup_only", False)
    if type(buckets) is not int or buckets < 0:
        raise ValueError(f"{where}.num_buckets must be a whole number of at least 0, got {buckets!r}")
    names = (values["operation"], values["distribution"], schedule)
    return Distribution(where, ranges[0], *names, steps or 0, buckets, bool(setup_only), ranges[1])


def _range(value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(map(_is_number, value)):
        raise ValueError(f"{where} must be a list of two numbers, got {value!r}")
    return float(value[0]), float(value[1])


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must have keys and values, got {value!r}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _tell(where: str, ignored: list[str]) -> None:
    if ignored:
        log.warning("%s: ignored, without effect: %s", where, ", ".join(map(str, ignored)))
