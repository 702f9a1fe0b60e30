"""Run a script that imports ``isaacgym``: ``python -m envcoder_bench.isaacgym train.py task=Ant``."""

import logging
import runpy
import sys
import traceback
from pathlib import Path

from envcoder_bench.isaacgym.assets.asset import AssetError
from envcoder_bench.isaacgym.install import install
from envcoder_bench.isaacgym.old_code import old_code


def main() -> int:
    """Run the script in the first argument with the remaining ones; return the exit code, 2 for bad input."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m envcoder_bench.isaacgym SCRIPT [ARGUMENT ...]", file=sys.stderr)
        return 0 if len(sys.argv) > 1 else 2
    script = Path(sys.argv[1])
    if not script.is_file():
        print(f"envcoder_bench.isaacgym: {script} is not a file", file=sys.stderr)
        return 2
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    install()
    sys.argv[:] = sys.argv[1:]
    sys.path[0] = str(script.resolve().parent)  # as for any script
    with old_code():
        try:
            runpy.run_path(str(script), run_name="__main__")
        except (AssetError, NotImplementedError) as error:
            line = _caller(error)
            if line is None:  # the script's own error
                raise
            print(f"{line}: {error}", file=sys.stderr)
            return 2
    return 0


def _caller(error: Exception) -> str | None:
    """Return the line that called this package; None if the error was raised elsewhere."""
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(__file__).resolve().parent)
    if not frames or not str(Path(frames[-1].filename).resolve()).startswith(package):
        return None
    callers = [f for f in frames if not str(Path(f.filename).resolve()).startswith(package)]
    return f"{callers[-1].filename}:{callers[-1].lineno}"


if __name__ == "__main__":
    sys.exit(main())
