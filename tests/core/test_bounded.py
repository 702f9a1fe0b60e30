"""JSON and arrays that stand for more than the memory are refused before they are read."""

import io
import json
import tracemalloc
import zipfile

import numpy as np
import pytest

from envcoder_bench.core.bounded import MAX_ARRAYS, MAX_DEPTH, TooDeepError, parse_json, read_arrays
from envcoder_bench.env.trajectories import unpack
from envcoder_bench.video.recording import Recording


def bomb(compression=zipfile.ZIP_DEFLATED, size=MAX_ARRAYS, claimed=None):
    """A small .npz with one large array of zeros."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (claimed or size,)})
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive, archive.open("a/weight.npy", "w") as part:
        part.write(header.getvalue())
        for _ in range(size >> 20):
            part.write(bytes(1 << 20))
    return content.getvalue()


@pytest.mark.slow
def test_arrays_that_unpack_to_all_memory_are_refused_before_they_are_read(tmp_path):
    content = bomb()
    assert len(content) < 1 << 20
    (file := tmp_path / "recording.npz").write_bytes(content)
    tracemalloc.start()
    for read in (lambda: read_arrays(content), lambda: unpack(content), lambda: Recording.load(file)):
        with pytest.raises(ValueError, match="its arrays take 256 MiB, more than the limit of 256 MiB"):
            read()
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_arrays_that_are_damaged_or_packed_in_another_way_are_refused(tmp_path):
    good = io.BytesIO()
    np.savez_compressed(good, a=np.arange(5.0), b=np.ones((2, 3)))
    arrays = read_arrays(good.getvalue())
    assert list(arrays) == ["a", "b"] and arrays["a"].tolist() == [0, 1, 2, 3, 4]
    objects = io.BytesIO()
    np.savez(objects, a=np.array([{}], dtype=object))
    others = bomb(zipfile.ZIP_LZMA, size=1 << 20), bomb(size=1 << 20, claimed=10**13), objects.getvalue()
    for content in (b"", b"PK", good.getvalue()[:-40], *others):
        with pytest.raises(ValueError):
            read_arrays(content)
    np.savez(tmp_path / "recording.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="not a recording"):
        Recording.load(tmp_path / "recording.npz")


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5_000, 200_000])
def test_deep_json_is_refused(depth):
    for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        with pytest.raises(TooDeepError, match=f"more than {MAX_DEPTH} levels"):
            parse_json(text)


def test_json_of_usual_depth_is_read():
    value = {"a": [[{"b": [1, 2.5, None, "x"]}]] * 3}
    assert parse_json(json.dumps(value)) == value
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(ValueError):
        parse_json("[1,")
