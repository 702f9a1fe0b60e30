"""run.json: the software and device of a run, and its config when it began, with which config.yaml is compared."""

from __future__ import annotations

import functools
import json
import math
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import envcoder_bench
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import read_json, write_atomic
from envcoder_bench.core.plain_text import one_line
from envcoder_bench.core.settings import Settings, merged, plain, select
from envcoder_bench.core.yaml_files import parse_yaml
from envcoder_bench.run.folder.checkpoint import FORMAT, refuse_newer
from envcoder_bench.shaping.discovery import name_fault
from envcoder_bench.sources.registry import outside_tasks
from envcoder_bench.tasks.spec import TaskSpec

PACKAGES = {  # packages that results depend on bitwise; name in run.json: distribution
    "torch": "torch",
    "mujoco": "mujoco",
    "mujoco_warp": "mujoco-warp",
    "warp": "warp-lang",
    "rl_games": "rl-games",
    "numpy": "numpy",
}

PLACE = "task_source"  # key of config.yaml
# keys of config.yaml that may be changed when a run is resumed, because they do not change its results
FREE_KEYS = (
    "task_source", "max_memory", "checkpoint_minutes", "save_state", "log_points", "profile", "device", "devices",
    "ray", "wandb.enabled", "wandb.project", "wandb.entity", "wandb.group", "wandb.mode", "wandb.tags",
)  # fmt: skip
_SHOWN = 3  # number of changed keys that are named
_MISSING = object()

Change = tuple[str, Any, Any]  # key, recorded value, present value


@dataclass
class Provenance:
    """The content of run.json.

    Attributes:
        begun: the time the run began, ISO 8601; None if run.json was damaged when the run was resumed.
        software: versions, commit and device, as ``software`` returns them: those at the beginning, then those of each
            resumption that differ.
        config: the text of config.yaml when the run began.
        sources: the SHA-256 of each file of user code in the folder, by its path there.
        before: the texts of config.yaml before the run was extended, oldest first.
        fitness: the task's ``fitness_meaning`` and ``fitness_bounds``, with None for infinite ones.
        files: the SHA-256 of each file that the run wrote and reads again, by its path in the folder: the last one, and
            the one before, which the file has if the process was killed between the two writes.
    """

    begun: str | None
    software: list[dict[str, str | None]]
    config: str
    sources: dict[str, str] = field(default_factory=dict)
    fitness: dict[str, Any] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    files: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def new(
        cls, config: str, device: str, sources: Mapping[str, str], task: TaskSpec, machines: str | None = None
    ) -> Provenance:
        """Of a run that begins; ``machines`` as of ``software``."""
        begun = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        bounds = [x if math.isfinite(x) else None for x in task.fitness_bounds]
        fitness = {"fitness_meaning": task.fitness_meaning, "fitness_bounds": bounds}
        return cls(begun, [{**software(device, machines), **_task(config)}], config, dict(sources), fitness)

    def write(self, path: Path) -> None:
        """Write run.json atomically."""
        content = {"format": FORMAT, **asdict(self)}
        write_atomic(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def resumed(self, device: str, machines: str | None = None) -> str:
        """Record a resumption; return a description of the differences to before, or an empty string."""
        now = {**software(device, machines), **_task(self.config)}
        if not self.software:
            self.software.append(now)
            return "the software and device with which the run began are unknown"
        before = self.software[-1]
        if before == now:
            return ""
        self.software.append(now)
        both = [(key, before.get(key), now.get(key)) for key in dict.fromkeys([*before, *now])]
        different = [f"{key} {new} (was {old})" for key, old, new in both if old != new]
        return f"the run is resumed with {', '.join(different)}"


def read_provenance(path: Path) -> Provenance:
    """Read run.json.

    Raises:
        UserError: it has a newer format.
        ValueError: it is missing or damaged.
    """
    try:
        content = read_json(path)
        refuse_newer(int(content["format"]), path)
        record = Provenance(content["begun"], content["software"], content["config"], content["sources"])
        record.fitness = content["fitness"]
        record.before = [str(text) for text in content["before"]]
        record.files = {str(name): list(digests) for name, digests in content["files"].items()}
        dicts = [*record.software, record.sources, record.fitness]
        if not (isinstance(record.config, str) and all(isinstance(value, dict) for value in dicts)):
            raise ValueError("it is not the record of a run")
        return record
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{path.name} is damaged ({error})") from error


def read_config(file: Path, provenance: Provenance | None, complete: bool, notes: list[str]) -> Settings:
    """Return a run's config: that of config.yaml, or if this is damaged, that in run.json.

    Args:
        file: config.yaml; a damaged one of an unfinished run is restored.
        provenance: the content of run.json; None if it is damaged, so that changes cannot be detected.
        complete: whether the run is complete, so that its results are those of the config in run.json.
        notes: messages for the user are added to it.

    Raises:
        ValueError: config.yaml is damaged, and it has no other copy.
        UserError: it was changed so that the run cannot be resumed.
    """
    try:
        text = file.read_text("utf-8")
        if provenance is not None and text != provenance.config:
            if provenance.config.startswith(text):
                raise ValueError("its end is missing")
            if text in provenance.before:
                raise ValueError("it is that before the run was extended")
        present = load_config(text)
    except (OSError, ValueError) as error:  # a UnicodeDecodeError is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        if provenance is None:
            raise ValueError(f"config.yaml: {reason}") from error
        return _recorded(f"config.yaml is damaged ({reason})", file, provenance, complete, notes)
    if provenance is None:
        return present
    return _unless_changed(present, file, provenance, complete, notes)


def _unless_changed(
    present: Settings, file: Path, provenance: Provenance, complete: bool, notes: list[str]
) -> Settings:
    """Return a config that can be read, or what counts in its place if keys were changed. See ``read_config``."""
    # keys that differ from those with which the run began
    changed = changes(plain(parse_yaml(provenance.config)), plain(present))
    lost = [change for change in changed if missing(change)]
    if lost:
        return _recorded(f"config.yaml is damaged ({lost[0][0]} is missing)", file, provenance, complete, notes)
    # the results of a complete run are those of the recorded config
    if changed and complete:
        cfg = load_config(provenance.config)
        if any(key == PLACE for key, *_ in changed):  # the task was moved; the results are its own all the same
            cfg = merged(cfg, {PLACE: present[PLACE]})
        other = [change for change in changed if change[0] != PLACE]
        if other:
            what = f"config.yaml was changed after the run ({shown(other)})"
            notes.append(f"{what}: these are results of the config in run.json")
        return cfg
    # an unfinished run goes on with new values of keys that change no result
    fixed = [change for change in changed if change[0] not in FREE_KEYS]
    if fixed:
        raise UserError(
            f"{file} was changed since the run began ({shown(fixed)}): undo that, or begin a new run;"
            f" to resume a run, only {', '.join(FREE_KEYS)} may be changed"
        )
    if changed:
        notes.append(f"config.yaml was changed since the run began ({shown(changed)}): using the new values")
    return present


def _recorded(why: str, file: Path, provenance: Provenance, complete: bool, notes: list[str]) -> Settings:
    """Return the config in run.json instead of a damaged config.yaml; ``why`` describes the damage."""
    notes.append(f"{why}: using the config in run.json")
    if not complete:
        write_atomic(file, provenance.config)
    return load_config(provenance.config)


def changes(recorded: Mapping[str, Any], present: Mapping[str, Any]) -> list[Change]:
    """Return the dotted keys whose values differ, with both values; the value of a missing key is ``_MISSING``."""
    old, new = _flat(recorded), _flat(present)
    pairs = [(key, old.get(key, _MISSING), new.get(key, _MISSING)) for key in dict.fromkeys([*old, *new])]
    return [(key, a, b) for key, a, b in pairs if a != b or type(a) is not type(b)]


def missing(change: Change) -> bool:
    """Return whether a recorded key is missing now, which suggests a truncated file rather than an edit."""
    return change[2] is _MISSING


def shown(changed: list[Change]) -> str:
    """Return changes as text for the user: ``seeds: 1 -> 3, seed: 0 -> 5``."""
    parts = [f"{key}: {_text(old)} -> {_text(new)}" for key, old, new in changed[:_SHOWN]]
    more = [f"{len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else []
    return ", ".join(parts + more)


def _text(value: Any) -> str:
    return "(missing)" if value is _MISSING else "null" if value is None else one_line(value)


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    """Return leaves by dotted keys; empty mappings and lists are leaves."""
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    if not items or not len(node):
        return {prefix[:-1]: node}
    flat: dict[str, Any] = {}
    for key, value in items:
        flat.update(_flat(value, f"{prefix}{key}."))
    return flat


def load_config(text: str) -> Settings:
    """Return the config of a run. Raises ValueError with a one-line message if the text is not one."""
    cfg = parse_yaml(text)
    if not isinstance(cfg.get("candidates"), tuple) or not {"task", "train"} <= cfg.keys():
        raise ValueError("it is not the config of a run, or its end is missing")
    for candidate in cfg.candidates:
        if not isinstance(candidate, Settings) or not all(isinstance(candidate.get(x), str) for x in ("name", "file")):
            raise ValueError("the end of its list of candidates is missing")
        fault = name_fault(candidate["name"])  # it is the name of a folder
        if fault:
            raise ValueError(f"the candidate {candidate['name']!r}: {fault}")
    return cfg


def software(device: str, machines: str | None = None) -> dict[str, str | None]:
    """Return the versions of packages, the commit if this is a checkout, and the device; None for missing ones.

    ``machines`` names the devices of workers, if there are several; this machine may have none.
    """
    return {
        "envcoder_bench": envcoder_bench.__version__,
        "commit": _commit(Path(envcoder_bench.__file__).resolve().parent.parent),
        "python": platform.python_version(),
        **{name: _version(package) for name, package in PACKAGES.items()},
        "device": device_name(device) if machines is None else machines,
    }


def _task(config: str) -> dict[str, str | None]:
    """Return the digest of the run's task if it is from outside the package, else an empty dict."""
    spec = outside_tasks().get(str(select(parse_yaml(config), "task.name")))
    return {} if spec is None else {"task": spec.digest}


def device_name(device: str) -> str:
    """Return the product name of a torch device."""
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


@functools.cache  # 10 ms each: the files of metadata are parsed
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit(root: Path) -> str | None:
    """Return the commit of a checkout, with ``-dirty`` appended if files were changed; None without checkout or git."""
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
