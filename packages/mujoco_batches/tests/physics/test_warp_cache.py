"""Objects in Warp's cache that are not as they were written are compiled again."""

import pytest
import warp as wp

from mujoco_batches.compat.warp_cache import is_intact
from mujoco_batches.compat.warp_start import start_warp

start_warp()


@wp.kernel(enable_backward=False, module="unique")
def fill(values: wp.array(dtype=float)):
    values[wp.tid()] = 2.5


def filled(folder):
    """The kernel's result, loaded anew, and its objects in the cache."""
    fill.module.unload()
    values = wp.zeros(3, dtype=float, device="cpu")
    wp.launch(fill, 3, inputs=[values], device="cpu")
    return values.numpy().tolist(), [path for path in folder.rglob("wp_*") if path.suffix in (".o", ".meta")]


@pytest.mark.slow
def test_damaged_object_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path))
    result, objects = filled(tmp_path)
    assert result == [2.5] * 3 and len(objects) == 2 and all(map(is_intact, objects))
    times = [path.stat().st_mtime_ns for path in objects]
    assert filled(tmp_path)[0] == [2.5] * 3 and [path.stat().st_mtime_ns for path in objects] == times
    for path in objects:
        content = path.read_bytes()
        for damaged in (b"", content[:-5], content[:50] + b"\xff" * (len(content) - 50)):
            path.write_bytes(damaged)
            assert not is_intact(path)
            assert filled(tmp_path) == ([2.5] * 3, objects) and is_intact(path)
    digests = path.with_name(f"{path.name}.sha256")
    digests.unlink()
    assert filled(tmp_path)[0] == [2.5] * 3 and is_intact(path)
