"""The process of one device of a grid: ``python -m envcoder_bench.grid.worker FOLDER K COUNT SIM DEVICE``."""

import os
import signal
import sys
from pathlib import Path

from envcoder_bench.core.files import locked
from envcoder_bench.grid.inputs import read_inputs
from envcoder_bench.grid.part import EPISODES, STATE, Part
from envcoder_bench.grid.run import PARTS, read_episodes, share_of

_WAIT = 120.0  # s


def main(words: list[str]) -> int:
    """Run a worker's episodes; return 0, also after a stop."""
    folder, number, count, sim, device = Path(words[0]), int(words[1]), int(words[2]), words[3], words[4]
    stopped: list[int] = []
    parent = os.getppid()  # another one means that the command was killed: a resumed one starts workers of its own
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    inputs = read_inputs(folder)
    specs = share_of(inputs.specs, number, count)
    own = folder / PARTS / str(number)
    if specs and (len(read_episodes(own / EPISODES)) < len(specs) or (own / STATE).exists()):
        with locked(own, "grid", _WAIT):  # until a worker of a killed command has noticed
            Part(inputs, specs, own, sim, device).run(lambda _: None, lambda: bool(stopped) or os.getppid() != parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
