"""Errors that are the user's to solve; the runner prints each as one line."""

_NO_CUDA = ("Torch not compiled with CUDA", "Found no NVIDIA driver", "No CUDA GPUs are available")  # torch's messages
GIVE = "the line '{0}: FILE' in assets.yaml, or --asset {0}=FILE before a script"  # rankings have no flag for it
_UNMATCHED = "Not all regular expressions are matched"  # Isaac Lab's message where a robot lacks joints or bodies


class UserError(Exception):
    """Bad input; the message says what to do."""


class NotSupported(UserError, NotImplementedError):
    """Isaac Lab asked for something that this package does not have; the message names it."""


class AssetNotFound(UserError, FileNotFoundError):
    """No URDF or MJCF is known for a robot; the message has the names that were tried."""


def line_of(error: BaseException | None) -> str | None:
    """Return a line about the user's error, or about one that it caused; None for others."""
    from isaaclab_mujoco.assets import find
    from mujoco_batches.assets.urdf import AssetError

    while error is not None:
        if isinstance(error, (UserError, AssetError)):
            return str(error)
        if isinstance(error, ModuleNotFoundError):
            return f"the module {error.name} is missing: install it, or the package that has it"
        if isinstance(error, ImportError) and str(error.name).startswith("isaaclab"):
            return f"{error}: it is for another version of Isaac Lab; set ISAACLAB_PATH to it"
        if any(message in str(error) for message in _NO_CUDA):
            return "tensors are made on CUDA, which torch does not have here: let the script use the device cpu"
        if isinstance(error, ValueError) and _UNMATCHED in str(error) and find.answers:
            files = ", ".join(f"{name} is {file}" for name, file in find.answers.items())
            return f"{' '.join(str(error).split())}; {files}: give a file with these names: {GIVE.format('NAME')}"
        error = error.__cause__ or error.__context__
    return None
