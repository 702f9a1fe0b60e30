"""The command eval-shapers, also ``python envcoder_bench/eval_shapers.py``."""

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a file: its folder holds modules, not the package
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from envcoder_bench.cli.eval_shapers import main

if __name__ == "__main__":
    sys.exit(main())
