"""Files of torch that stand for more than the memory are refused before they are read."""

import copy
import io
import tracemalloc
import zipfile

import pytest
import torch

from envcoder_bench.compat.torch_archive import ArchiveError, archive_records, load_plain
from envcoder_bench.core.errors import UserError
from envcoder_bench.grid.policy_files import read_policy
from envcoder_bench.run.folder.checkpoint import load_checkpoint, load_job, packed

LARGE = 80 << 20
READER = torch._C.PyTorchFileReader


class OldReader:
    """The reader of torch 2.11, which does not tell the size of a record."""

    def __init__(self, content):
        self.reader = READER(content)

    def __getattr__(self, name):
        if name == "get_record_size":
            raise AttributeError(name)
        return getattr(self.reader, name)


@pytest.fixture(autouse=True, params=["this torch", "torch 2.11"])
def each_reader(request, monkeypatch):
    if request.param == "torch 2.11":
        monkeypatch.setattr(torch._C, "PyTorchFileReader", OldReader)


def _with(content, ending, new):
    """An archive in which the part whose name has this ending is another, all of it compressed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as parts, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, 1) as file:
        for name in parts.namelist():
            file.writestr(name, new if name.endswith(ending) else parts.read(name))
    return out.getvalue()


def _script():
    content = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), content)
    return content.getvalue()


def _overlapping():
    """An archive in which 1,000 names have one content of 80 KB."""
    content = io.BytesIO(packed({"a": torch.zeros(20_000)}))
    with zipfile.ZipFile(content, "a") as archive:
        part = next(part for part in archive.filelist if part.filename.endswith("data/0"))
        for k in range(1_000):
            archive.filelist.append(other := copy.copy(part))
            other.filename = f"archive/data/{k + 1}"
        archive._didModify = True
    return content.getvalue()


def _pickled(pickled):
    return _with(packed({}), "data.pkl", b"\x80\x02" + pickled)


BOMBS = {
    "a tensor": lambda: _with(packed({"a": torch.zeros(4)}), "data/0", bytes(LARGE)),
    "one content with many names": _overlapping,
    "one number of any shape": lambda: packed(
        {"model_state_dict": {"actor.0.weight": torch.zeros(1).expand(9000, 9000)}}
    ),
    "a bytearray": lambda: _pickled(b"c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R."),
}


@pytest.mark.parametrize("name", BOMBS)
def test_files_that_stand_for_more_than_the_memory_are_refused(name, tmp_path):
    (file := tmp_path / "policy.pt").write_bytes(content := BOMBS[name]())
    assert len(content) < 1 << 20
    tracemalloc.start()
    for source in (file, io.BytesIO(content)):
        with pytest.raises(ArchiveError, match=r"its (parts|tensors) take|bytearray"):
            load_plain(source)
    for load in (load_checkpoint, load_job):
        with pytest.raises(UserError, match=r"policy\.pt is damaged \((its|it makes).*\): restore it from a copy"):
            load(file)
    with pytest.raises(UserError, match=r"policy mine: .*policy\.pt is refused: it"):
        read_policy("mine", file)
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


def test_compressed_code_of_torchscript_is_refused_only_if_it_is_too_large(tmp_path):
    (file := tmp_path / "policy.pt").write_bytes(_with(_script(), ".py", b" " * LARGE))
    with pytest.raises(ArchiveError, match="its parts take 80 MiB"):
        archive_records(file.read_bytes())
    with pytest.raises(UserError, match=r"policy\.pt is refused: its parts take 80 MiB, and it has \d+ KiB"):
        read_policy("mine", file)
    assert archive_records(_with(_script(), "nothing", b""))


def test_content_is_read_as_torch_saved_it_and_a_changed_byte_is_noticed(tmp_path):
    saved = {"a": torch.randn(300), "b": [torch.zeros(1).expand(50, 50), 2, "bytearray"], "c": {(1, 2): None}}
    content = packed(saved)
    loaded = load_plain(io.BytesIO(content))
    assert torch.equal(loaded["a"], saved["a"]) and loaded["b"][1:] == saved["b"][1:] and loaded["c"] == saved["c"]
    at = content.index(saved["a"].numpy().tobytes())
    (file := tmp_path / "policy.pth").write_bytes(content[: at + 5] + bytes([content[at + 5] ^ 1]) + content[at + 6 :])
    with pytest.raises(ArchiveError, match="the checksum of archive/data/0 is wrong"):
        load_plain(file)
    torch.save(saved, file, _use_new_zipfile_serialization=False)
    assert torch.equal(load_plain(file)["a"], saved["a"])


def test_a_directory_that_torch_reads_otherwise_is_refused(each_reader):
    content = packed({"a": torch.zeros(4)})
    with zipfile.ZipFile(io.BytesIO(content)) as parts:
        name = parts.namelist()[-1]
    end = content.rindex(name.encode())  # in the directory
    hidden = content[:end] + b"other" + content[end + 5 :]
    with pytest.raises((ArchiveError, RuntimeError)):
        load_plain(io.BytesIO(hidden))
