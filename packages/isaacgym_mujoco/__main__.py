"""Run a script that imports ``isaacgym``: ``python -m isaacgym_mujoco train.py task=Ant``."""

import logging
import os
import runpy
import sys
import traceback
from pathlib import Path

import isaacgym_mujoco
import mujoco_batches
from isaacgym_mujoco.import_hook import install
from isaacgym_mujoco.old_code import old_code
from isaacgym_mujoco.on_cpu import VARIABLE, NoCudaDevice, remedy
from mujoco_batches.assets.asset import AssetError

USAGE = "usage: python -m isaacgym_mujoco [--device cpu] SCRIPT [ARGUMENT ...]"
REMEDY = "run it with --device cpu before the script's name, which maps CUDA devices to the CPU"
ONLY_CPU = "--device takes cpu; a CUDA device is chosen by the script's flags, such as sim_device=cuda:0"


def main() -> int:
    """Run the script in the first argument with the remaining ones; return the exit code, 2 for bad input."""
    sys.argv[1:2] = [word for a in sys.argv[1:2] for word in (a.split("=", 1) if a.startswith("--device=") else [a])]
    if sys.argv[1:2] == ["--device"]:
        if sys.argv[2:3] != ["cpu"]:
            print(f"isaacgym_mujoco: {ONLY_CPU}", file=sys.stderr)
            return 2
        os.environ[VARIABLE] = "cpu"
        del sys.argv[1:3]
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(USAGE, file=sys.stderr)
        if sys.argv[1:] and sys.argv[1] not in ("-h", "--help"):
            return 2
        return 0 if len(sys.argv) > 1 else 2
    script = Path(sys.argv[1])
    if not script.is_file():
        print(f"isaacgym_mujoco: {script} is not a file", file=sys.stderr)
        return 2
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    install()
    sys.argv[:] = sys.argv[1:]
    sys.path[0] = str(script.resolve().parent)  # Python does the same for any script
    sys.path += _folders_of_packages(script.resolve())
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else Hydra prints errors, and exits, before they arrive here
    if os.environ.get(VARIABLE) == "cpu":
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # torch.compile, as of rl_games, cannot trace the mapping
    with old_code():
        try:
            runpy.run_path(str(script), run_name="__main__")
        except Exception as error:
            line = _refusal(error) or _without_cuda(error)
            if line is None:  # the script's own error
                raise
            print(line, file=sys.stderr)
            return 2
    return 0


def _folders_of_packages(script: Path) -> list[str]:
    """Return the folder above the script's package, so that the script can import the package without installing it."""
    packages = [folder for folder in script.parents[:2] if (folder / "__init__.py").is_file()]
    if not packages:
        return []
    folder = packages[0]
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return [str(folder)]


def _refusal(error: BaseException | None) -> str | None:
    """Describe an error that this package raised, or its cause, with the calling line; None for other errors."""
    packages = tuple(str(Path(str(package.__file__)).resolve().parent) for package in (isaacgym_mujoco, mujoco_batches))
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [str(Path(frame.filename).resolve()).startswith(packages) for frame in frames]
        if isinstance(error, (AssetError, NotImplementedError, NoCudaDevice)) and any(inside[-1:]):
            callers = [frame for frame, in_package in zip(frames, inside) if not in_package]
            return f"{callers[-1].filename}:{callers[-1].lineno}: {error}"
        error = error.__cause__  # Hydra wraps the errors of objects that it makes
    return None


def _without_cuda(error: Exception) -> str | None:
    """Describe torch's error about missing CUDA, with the script's line; None for other errors."""
    end = remedy(error, REMEDY)
    if not end:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    last = next(f for f in reversed(frames) if "site-packages" not in f.filename)
    return f"{last.filename}:{last.lineno}: {error}{end}"


if __name__ == "__main__":
    sys.exit(main())
