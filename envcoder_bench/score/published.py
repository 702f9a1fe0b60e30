"""Rewards that other methods have published, as ``--llm replay:NAME``: fetched when they are asked for, none shipped.

A reward belongs to a task's own fitness, so that the goals of Anymal have none. Each file is what its authors chose in
searches of their own, and counts as one winner of each task. Its text is held against the digest of the one that was
published; the reward alone is taken of a file with more.
"""

import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import digest
from envcoder_bench.score.protocol import ScoredTask
from envcoder_bench.shaping.kinds import REWARD
from envcoder_bench.shaping.source import Source

_PREFIX = "replay:"
_TIMEOUT = 30.0  # seconds
_MOST_BYTES = 200_000
# what a task's module of IsaacGymEnvs imports for its functions, and what it imports for the rest
_HELPERS = "from isaacgym.torch_utils import *\n"
_GYM = re.compile(r"^(from|import) isaacgym.*\n", re.MULTILINE)


@dataclass(frozen=True)
class Published:
    """Where the rewards of a method are.

    Attributes:
        repository, commit: of GitHub.
        files: path and SHA-256 by task.
    """

    repository: str
    commit: str
    files: Mapping[str, tuple[str, str]]


METHODS = {
    # Ma et al., 2023, "Eureka: Human-level reward design via coding large language models"
    "eureka": Published(
        "eureka-research/eureka-research.github.io",
        "4b0c4eb6e8640b3192c40b538cef43719ecc7819",
        {
            "Ant": (
                "assets/reward_functions/ant.txt",
                "41d1d1e99e4ca9724df494aa8164d4d77305ec4acd919e762ee5de574c63aca3",
            ),
            "Anymal": (
                "assets/reward_functions/anymal.txt",
                "2544b9013484361c642f03cc135a3d76619e6f6392d9922965c9ef50c4c55ea2",
            ),
        },
    ),
    # Gao et al., 2025, "RF-Agent: Automated reward function design via language agent tree search", by gpt-4o
    "rf-agent": Published(
        "deng-ai-lab/RF-Agent",
        "7e99ca92d95d30eb0c639f240b5bbee0f9fc5c5d",
        {
            "Ant": (
                "RF_Agent/reward_functions/isaac/RFAgent/Ant-4o.py",
                "ee9a29c09dc09556dba95e2ebb1267df8dd0f3abe81bd07c1d951d1f7e3b463a",
            ),
            "Anymal": (
                "RF_Agent/reward_functions/isaac/RFAgent/Anymal-4o.py",
                "d33c86caea6f922d522c01962cc6327597d077371b652ab6677b14c5ffcaf111",
            ),
        },
    ),
}


def method_of(model: str) -> str:
    """Return the name of the method of a value of ``--llm``; empty if it has none."""
    name, _, _ = model.removeprefix(_PREFIX).partition("@")
    return name if model.startswith(_PREFIX) and name in METHODS else ""


def has_reward(model: str, task: ScoredTask) -> bool:
    """Return whether a method has published a reward for a task."""
    return task.fitness_of in METHODS[method_of(model)].files


def fetch(model: str) -> dict[str, bytes]:
    """Return the published files of a method by task.

    Args:
        model: ``replay:NAME``, or ``replay:NAME@FOLDER`` for a checkout of the repository.

    Raises:
        UserError: a file cannot be fetched, or is not the one that was published.
    """
    published, (_, _, checkout) = METHODS[method_of(model)], model.partition("@")
    files = {task: (path, _read(published, path, checkout, model)) for task, (path, _) in published.files.items()}
    return {task: _checked(model, task, content, path) for task, (path, content) in files.items()}


def reward_of(model: str, task: ScoredTask, file: Path) -> str:
    """Return the published reward for a task as a candidate's text. Raises UserError if its file was changed."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    text = Source(_checked(model, task.fitness_of, content, str(file)).decode("utf-8")).using([REWARD]).text
    return _HELPERS + _GYM.sub("", text)


def _read(published: Published, path: str, checkout: str, model: str) -> bytes:
    if checkout:
        try:
            return (Path(checkout) / path).read_bytes()
        except OSError as error:
            raise UserError(
                f"--llm {model}: {Path(checkout) / path} cannot be read: {error.strerror};"
                f" the folder must be a checkout of https://github.com/{published.repository}"
            ) from error
    address = f"https://raw.githubusercontent.com/{published.repository}/{published.commit}/{path}"
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:
            return answer.read(_MOST_BYTES)
    except (OSError, ValueError) as error:  # URLError is an OSError
        reason = getattr(error, "reason", None) or error
        raise UserError(
            f"--llm {model}: {address} cannot be fetched: {reason};"
            f" without a network give --llm {model}@FOLDER, a checkout of https://github.com/{published.repository}"
        ) from error


def _checked(model: str, task: str, content: bytes, where: str) -> bytes:
    actual, expected = digest(content), METHODS[method_of(model)].files[task][1]
    if actual != expected:
        raise UserError(f"{where} is not the file that {model} has published: its SHA-256 is {actual}, not {expected}")
    return content
