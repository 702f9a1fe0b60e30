"""The devices of a run: those of this machine, or of a Ray cluster."""

import re
from dataclasses import dataclass, replace
from typing import Any

import torch

from envcoder_bench.core.errors import UserError
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.sim import pick_simulator


@dataclass(frozen=True)
class Devices:
    """The devices of the workers, one each.

    Attributes:
        kind: ``cpu`` or ``cuda``.
        count: number of workers, or None for one per free GPU of the cluster.
        gpus: numbers of this machine's GPUs; empty for those of a cluster.
        address: address of the Ray cluster, ``auto`` or ``HOST:PORT``; None to start Ray on this machine.
    """

    kind: str
    count: int | None
    gpus: tuple[int, ...] = ()
    address: str | None = None

    @property
    def simulator(self) -> tuple[str, str]:
        """The simulator and the torch device of every worker; a worker sees one GPU."""
        return ("mujoco_cpu", "cpu") if self.kind == "cpu" else ("mujoco_warp", "cuda:0")


def requested_devices(cfg: RunConfig) -> Devices | None:
    """Return the devices that ``devices`` and ``ray`` of a config specify, or None to train in this process.

    Raises UserError if the values are malformed, contradict each other, or name GPUs that this machine does not have.
    """
    text, address = _as_text(cfg.devices), cfg.ray
    if not text and address is None:
        return None
    if address is not None and not re.fullmatch(r"auto|[^\s:/]+:\d+|\[.+\]:\d+", str(address)):
        raise UserError(f"--ray must be auto or HOST:PORT, got {address}")
    # what needs one process
    if cfg.profile:
        raise UserError("--profile measures one device: omit --devices and --ray")
    if cfg.isolate:
        raise UserError("--isolate process trains on one device: omit --devices and --ray")
    # devices of a cluster, or of this machine
    if address is not None and not text.startswith("cpu:"):
        if text not in ("", "all"):
            raise UserError(f"--ray uses all GPUs of the cluster, or --devices cpu:N; got --devices {text}")
        devices = Devices("cuda", None, address=address)
    else:
        devices = replace(parse_devices(text), address=address)
    simulator = devices.simulator[0]
    if cfg.sim not in ("auto", simulator):
        raise UserError(f"--sim {cfg.sim} does not run on these devices: omit it, or use --sim {simulator}")
    return devices


def use_this_machine(cfg: RunConfig) -> RunConfig:
    """Return the config with ``sim`` and ``device`` of this machine if its devices are GPUs of workers."""
    devices = requested_devices(cfg)
    if devices is None or devices.kind != "cuda":
        return cfg
    sim, device = pick_simulator()
    return cfg.model_copy(update={"sim": sim, "device": device})


def _as_text(value: Any) -> str:
    """Return the value of ``devices`` as it is written on the command line."""
    if value is None:
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value).replace(" ", "").lower()


def parse_devices(text: str) -> Devices:
    """Read a value of ``--devices`` for this machine. Raises UserError if it is malformed, or a GPU does not exist."""
    cpu = re.fullmatch(r"cpu:(\d+)", text)
    if cpu:
        if int(cpu[1]) < 1:
            raise UserError(f"--devices {text}: at least one worker is needed, cpu:1")
        return Devices("cpu", int(cpu[1]))
    if text != "all" and not re.fullmatch(r"\d+(,\d+)*", text):
        raise UserError(f"--devices must be all, GPU numbers such as 0,1, or cpu:N, got {text}")
    # GPUs by their numbers
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise UserError(f"--devices {text}: torch finds no CUDA device; use --devices cpu:N for workers on the CPU")
    numbers = tuple(range(count)) if text == "all" else tuple(map(int, text.split(",")))
    for number in numbers:
        if number >= count:
            existing = "only GPU 0" if count == 1 else f"only GPUs 0 to {count - 1}"
            raise UserError(f"--devices {text}: there is no GPU {number} on this machine, {existing}")
    if len(set(numbers)) < len(numbers):
        raise UserError(f"--devices {text} names a GPU twice")
    return Devices("cuda", len(numbers), numbers)
