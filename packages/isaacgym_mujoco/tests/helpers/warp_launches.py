"""Observation of Warp's launches."""

from mujoco_batches.compat import warp_modules


def launched_by(function, monkeypatch):
    """Call a function; return the modules, devices and sizes of blocks of its launches."""
    launched, usual = set(), warp_modules.Module.load

    def load(module, device, block_dim=None, *rest, **more):
        # on CUDA the sizes of grids ask for modules without a block size: that of the module's options
        launched.add((module, str(device), block_dim or module.options["block_dim"]))
        return usual(module, device, block_dim, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(warp_modules.Module, "load", load)
        function()
    return launched
