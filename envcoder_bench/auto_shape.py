"""The command auto-shape, also ``python envcoder_bench/auto_shape.py``."""

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a file: its folder holds modules, not the package
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from envcoder_bench.cli.auto_shape import main

if __name__ == "__main__":
    sys.exit(main())
