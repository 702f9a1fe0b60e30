"""Which devices a run is to use: those of this machine, or of a Ray cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig, ListConfig

from envcoder_bench.core.errors import UserError
from envcoder_bench.sim import pick_simulator

FORMS = "all, GPU numbers such as 0,1, or cpu:N"


@dataclass(frozen=True)
class Devices:
    """Devices that each have a worker.

    Attributes:
        kind: ``cpu`` or ``cuda``.
        count: how many workers; None: as many as the cluster has GPUs.
        gpus: numbers of this machine's GPUs; empty for a cluster's.
        address: of a Ray cluster, ``auto`` or ``HOST:PORT``; None: Ray is started here.
    """

    kind: str
    count: int | None
    gpus: tuple[int, ...] = ()
    address: str | None = None

    @property
    def simulator(self) -> tuple[str, str]:
        """The simulator and the torch device of every worker, which sees one GPU."""
        return ("mujoco_cpu", "cpu") if self.kind == "cpu" else ("mujoco_warp", "cuda:0")


def asked_devices(cfg: DictConfig) -> Devices | None:
    """The devices that ``devices`` and ``ray`` of a config ask for; None: it trains in this process, on ``device``.

    Raises:
        UserError: they are malformed, contradict each other, or name GPUs that this machine does not have.
    """
    asked, address = _words(cfg.get("devices")), cfg.get("ray")
    if not asked and address is None:
        return None
    if address is not None and not re.fullmatch(r"auto|[^\s:/]+:\d+|\[.+\]:\d+", str(address)):
        raise UserError(f"--ray must be auto or HOST:PORT, got {address}")
    if cfg.profile:
        raise UserError("--profile measures one device: leave --devices and --ray out")
    if cfg.get("isolate"):
        raise UserError("--isolate process trains on one device: leave --devices and --ray out")
    cpu = re.fullmatch(r"cpu:(\d+)", asked)
    if cpu:
        count = int(cpu.group(1))
        if count < 1:
            raise UserError(f"--devices {asked}: at least one worker must train, cpu:1")
        devices = Devices("cpu", count, address=address)
    elif address is not None:
        if asked not in ("", "all"):
            raise UserError(f"--ray takes all GPUs of the cluster, or --devices cpu:N; got --devices {asked}")
        devices = Devices("cuda", None, address=address)
    else:
        gpus = _gpus(asked)
        devices = Devices("cuda", len(gpus), gpus)
    wanted = devices.simulator[0]
    if cfg.sim not in ("auto", wanted):
        raise UserError(f"--sim {cfg.sim} does not run on these devices: leave it out, or give --sim {wanted}")
    return devices


def choose_here(cfg: DictConfig) -> None:
    """Let ``sim`` and ``device`` be those of this machine, where ``devices`` or ``ray`` are for others to train on."""
    devices = asked_devices(cfg)
    if devices is not None and devices.kind == "cuda":
        cfg.sim, cfg.device = pick_simulator()


def _words(value: Any) -> str:
    """The value as the command line has it."""
    if value is None:
        return ""
    return ",".join(str(one) for one in value) if isinstance(value, ListConfig) else str(value).replace(" ", "").lower()


def _gpus(asked: str) -> tuple[int, ...]:
    """Numbers of this machine's GPUs. Raises UserError for those that it does not have."""
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked != "all" and not re.fullmatch(r"\d+(,\d+)*", asked):
        raise UserError(f"--devices must be {FORMS}, got {asked}")
    if not there:
        raise UserError(f"--devices {asked}: torch sees no CUDA device here; --devices cpu:N trains on the CPU")
    numbers = tuple(range(there)) if asked == "all" else tuple(int(one) for one in asked.split(","))
    for number in numbers:
        if number >= there:
            known = "only GPU 0" if there == 1 else f"only GPUs 0 to {there - 1}"
            raise UserError(f"--devices {asked}: there is no GPU {number} on this machine, {known}")
    if len(set(numbers)) < len(numbers):
        raise UserError(f"--devices {asked} names a GPU twice")
    return numbers
