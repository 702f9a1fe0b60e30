"""run.json: the software and device of a run, and its config when it began."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from omegaconf import OmegaConf

import envcoder_bench
from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.plain_yaml import refuse_aliases
from envcoder_bench.run.folder.checkpoint import FORMAT, refuse_newer
from envcoder_bench.tasks.registry import outside_tasks

PACKAGES = {  # packages that results depend on bitwise; name in run.json: distribution
    "torch": "torch",
    "mujoco": "mujoco",
    "mujoco_warp": "mujoco-warp",
    "warp": "warp-lang",
    "rl_games": "rl-games",
    "numpy": "numpy",
}


@dataclass
class Provenance:
    """The content of run.json.

    Attributes:
        begun: the time the run began, ISO 8601; None if it was not recorded.
        software: versions, commit and device, as ``software`` returns them: those at the beginning, then those of each
            resumption that differ.
        config: the text of config.yaml when the run began.
        sources: the SHA-256 of each file of user code in the folder, by its path there; empty in older runs.
        before: the texts of config.yaml before the run was extended, oldest first.
    """

    begun: str | None
    software: list[dict[str, str | None]]
    config: str
    sources: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)

    @classmethod
    def new(cls, config: str, device: str, sources: Mapping[str, str], machines: str | None = None) -> Provenance:
        """Of a run that begins; ``machines`` as of ``software``."""
        begun = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        return cls(begun, [{**software(device, machines), **_task(config)}], config, dict(sources))

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


def read_provenance(path: Path) -> Provenance | None:
    """Read run.json; return None if there is none, as in a run of format 1.

    Raises:
        UserError: it has a newer format.
        ValueError: it is damaged.
    """
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        refuse_newer(int(content["format"]), path)
        record = Provenance(content["begun"], content["software"], content["config"], content.get("sources", {}))
        record.before = [str(text) for text in content.get("before", [])]
        dicts = [*record.software, record.sources]
        if not (isinstance(record.config, str) and all(isinstance(one, dict) for one in dicts)):
            raise ValueError("it is not the record of a run")
        for text in (record.config, *record.before):
            refuse_aliases(text)
        return record
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"{path.name} is damaged ({error})") from error


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
    spec = outside_tasks().get(str(OmegaConf.select(OmegaConf.create(config), "task.name")))
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
