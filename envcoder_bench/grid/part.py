"""A part of a grid: episodes on one device, in waves. Each episode that ends adds a line to episodes.jsonl."""

import io
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from envcoder_bench.compat.torch_archive import load_plain
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import no_links, write_atomic
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.grid.batch import Batch, Scene, Spec
from envcoder_bench.grid.inputs import Inputs, on_device
from envcoder_bench.grid.policies import LoadedPolicy
from envcoder_bench.sim import make_simulator
from envcoder_bench.sim.base import Simulator
from envcoder_bench.terrain.arenas import Arenas

EPISODES, STATE = "episodes.jsonl", "state.pt"
_MEMORY_SHARE = 0.7  # the simulation's share of a CUDA device's free memory
_PROBED = 32  # robots of the small simulation whose memory is measured
_MANY = 1024  # with more robots, memory is measured before the simulation is built
log = logging.getLogger(__name__)


@dataclass
class Progress:
    """The progress that a part reports.

    Attributes:
        done, total: episodes.
        running: episodes of the present wave that have not ended.
        steps, all_steps: control steps until now, and until all waves have reached the limit.
    """

    done: int
    total: int
    running: int
    steps: int
    all_steps: int


class Part:
    """Runs episodes, and resumes them from a checkpoint in its folder.

    Args:
        specs: the episodes, sorted by policy.
        folder: contains episodes.jsonl and the checkpoint.
        sim, device: as ``pick_simulator`` returns them.
    """

    def __init__(self, inputs: Inputs, specs: Sequence[Spec], folder: Path, sim: str, device: str) -> None:
        cfg = inputs.settings
        self._inputs, self._folder = inputs, folder
        self._arenas = Arenas(inputs.arenas, cfg.seed, cfg.arenas.gap)
        self._sim, self._device = sim, device
        self.scene = Scene(
            inputs.robot,
            cfg,
            on_device(inputs.policies, device),
            self._arenas,
            lambda n, policy: self.simulator(n, policy),
        )
        size = self._wave_size(len(specs))
        # the robots of a simulation have the same drives
        groups: dict[Any, list[Spec]] = {}
        for spec in specs:
            deployment = inputs.policies[spec.policy].deployment
            groups.setdefault(deployment and deployment.gains, []).append(spec)
        self._waves = [group[k : k + size] for group in groups.values() for k in range(0, len(group), size)]
        self._total = len(specs)

    @property
    def waves(self) -> Sequence[Sequence[Spec]]:
        """The episodes that run at once."""
        return self._waves

    def simulator(self, num_envs: int, policy: LoadedPolicy) -> Simulator:
        """Build a simulator of the grid's robot, with the drives of a policy, on its arenas."""
        cfg, robot = self._inputs.settings, self._inputs.robot
        drives = policy.deployment or cfg.robots[robot.name]
        options: dict[str, Any] = {} if cfg.solver_iterations is None else {"iterations": cfg.solver_iterations}
        if policy.deployment is not None:
            options["integrator"] = "implicitfast"  # with Euler's, drives with much damping shake light joints
        return make_simulator(
            self._sim,
            robot.model,
            num_envs,
            cfg.dt,
            cfg.physics_hz // cfg.control_hz,
            self._device,
            stiffness=drives.stiffness,
            damping=drives.damping,
            options=options,
            ground=self._arenas.ground,
        )

    def _wave_size(self, count: int) -> int:
        """Return the robots of a wave: the settings' most, and what a CUDA device has memory for."""
        size = min(count, self._inputs.settings.max_robots)
        if torch.device(self._device).type == "cuda" and size > _MANY:
            needed = self.simulator(_PROBED, self._inputs.policies[0]).bytes_per_env
            free, _ = torch.cuda.mem_get_info(torch.device(self._device))
            size = max(1, min(size, int(_MEMORY_SHARE * free / needed)))
        return size

    def run(self, report: Callable[[Progress], None], stop: Callable[[], bool]) -> bool:
        """Run to the end, or until ``stop`` returns True; return whether all episodes have ended."""
        with settings_kept():
            if torch.device(self._device).type == "cpu":
                torch.set_num_threads(1)  # the tensors are small, and the simulator has its own threads
            return self._run(report, stop)

    def _run(self, report: Callable[[Progress], None], stop: Callable[[], bool]) -> bool:
        cfg = self._inputs.settings
        wave, batch, length = self._begin()
        path = self._folder / EPISODES
        # episodes that were written after the checkpoint are simulated again
        with open(path, "r+b" if path.exists() else "w+b", opener=no_links) as file:
            file.truncate(length)
            file.seek(0, io.SEEK_END)
            saved = time.monotonic()
            for number in range(wave, len(self._waves)):
                batch = batch or Batch(self.scene, self._waves[number])
                while True:
                    self._write(batch, file)
                    self._report(report, number, batch)
                    if not batch.running:
                        break
                    # robots that have ended leave the batch
                    batch.compact(cfg.compact_below)
                    if stop():
                        self._save(number, batch, file.tell())
                        return False
                    if time.monotonic() - saved > 60.0 * cfg.checkpoint_minutes:
                        self._save(number, batch, file.tell())
                        saved = time.monotonic()
                    left = cfg.steps - batch.step_count
                    batch.advance(min(cfg.check_every, left if left > 0 else cfg.check_every))
                self._warn(batch)
                batch = None
                if number + 1 < len(self._waves):
                    self._save(number + 1, None, file.tell())
        (self._folder / STATE).unlink(missing_ok=True)
        return True

    def _warn(self, batch: Batch) -> None:
        dropped = int(batch.sim.contact_overflows.sum())
        if dropped:
            log.warning("the simulator dropped contacts for lack of memory in %d control steps", dropped)
        for text, count in batch.sim.engine_warnings.items():
            log.warning("%s (%d times)", text, count)

    def _write(self, batch: Batch, file: Any) -> None:
        for spec, values in batch.ended():
            line = json.dumps({**self._inputs.named(spec), **values}, allow_nan=False)
            file.write(line.encode() + b"\n")
        file.flush()

    def _report(self, report: Callable[[Progress], None], wave: int, batch: Batch) -> None:
        steps, later = self._inputs.settings.steps, sum(map(len, self._waves[wave + 1 :]))
        done = self._total - later - batch.running
        report(Progress(done, self._total, batch.running, wave * steps + batch.step_count, len(self._waves) * steps))

    def _save(self, wave: int, batch: Batch | None, length: int) -> None:
        content = io.BytesIO()
        state: dict[str, Any] = {"wave": wave, "length": length, "waves": [len(specs) for specs in self._waves]}
        if batch is not None:
            state["specs"] = [list(asdict(spec).values()) for spec in batch.specs]
            state["step_count"], state["rows"] = batch.step_count, batch.state()
        torch.save(state, content)
        write_atomic(self._folder / STATE, content.getvalue())

    def _begin(self) -> tuple[int, Batch | None, int]:
        """Return the wave to begin with, its state if it had begun, and the length of episodes.jsonl then."""
        path = self._folder / STATE
        if not path.is_file():
            return 0, None, 0
        try:
            state = load_plain(path)
            flat, self._waves = [spec for wave in self._waves for spec in wave], []
            for size in state["waves"]:  # a device with other memory would make other waves
                self._waves.append(flat[:size])
                flat = flat[size:]
            if "rows" not in state:
                return state["wave"], None, state["length"]
            specs = [Spec(*row) for row in state["specs"]]
            batch = Batch.resumed(self.scene, specs, state["rows"], state["step_count"])
            return state["wave"], batch, state["length"]
        except (OSError, RuntimeError, KeyError, TypeError, ValueError, EOFError) as error:
            remedy = "give --sim, or remove it to run all episodes again"
            raise UserError(f"{path} is damaged, or of another simulator: {error}; {remedy}") from error
