"""Files that take all memory or an hour are refused before this process reads them."""

import pickle
from pathlib import Path

import pytest
import torch
from grids import network
from torch import Tensor, nn

from envcoder_bench.core.errors import UserError
from envcoder_bench.grid import inputs, trial
from envcoder_bench.grid.inputs import check_inputs


class Large(nn.Module):
    def forward(self, obs: Tensor) -> Tensor:
        return obs[:, :12] + torch.ones(1 << 20, 1 << 12).sum()


def script(module: nn.Module, file: Path) -> None:
    torch.jit.script(module).save(str(file))


def slow_hash(file: Path) -> None:
    """Write a file of ``torch.save`` whose only key is a tuple that has 2**60 parts."""
    doubled = b"".join(b"h" + bytes([k]) + b"\x86q" + bytes([k + 1]) for k in range(60))
    writer = torch._C.PyTorchFileWriter(str(file))
    content = b"\x80\x02})q\x00" + doubled + pickle.BININT1 + b"\x00s."
    writer.write_record("data.pkl", content, len(content))
    writer.write_end_of_file()


BOMBS = {
    "memory": (lambda file: script(Large(), file), "takes more than 1 GiB of memory"),
    "hash": (slow_hash, "takes more than 1 s of processor time"),
}


@pytest.mark.slow  # after the bomb that takes time another process imports torch
def test_bombs_are_refused_and_others_are_not(tmp_path, monkeypatch):
    """One is met when it is called, the other when it is read."""
    monkeypatch.setattr(trial, "MEMORY", 1 << 30)
    monkeypatch.setattr(trial, "SECONDS", 1)
    files = {}
    for name, (write, _) in BOMBS.items():
        write(tmp_path / f"{name}.pt")
        torch.jit.script(network(33)).save(str(tmp_path / f"after_{name}.pt"))
        files |= {one: str(tmp_path / f"{one}.pt") for one in (name, f"after_{name}")}
    (tmp_path / "text.pt").write_text("no policy")
    reasons = trial.refusals({**files, "text": str(tmp_path / "text.pt")}, [33, 45])
    assert reasons.keys() == {*BOMBS, "text"}
    for name, (_, reason) in BOMBS.items():
        assert f"policy {name}: {files[name]} is refused: to read it, or to call it" in reasons[name]
        assert reasons[name].endswith(reason)
    assert "it must be TorchScript" in reasons["text"]


def test_a_grid_begins_with_the_trial(tmp_path, monkeypatch):
    def refused(files, widths):
        return {name: f"policy {name}: {file} is refused for {widths}" for name, file in files.items()}

    monkeypatch.setattr(inputs, "refusals", refused)
    (tmp_path / "large.pt").write_text("read by the trial alone")
    with pytest.raises(UserError, match=r"policy mine: .*large\.pt is refused for \[\d+"):
        check_inputs("spot", [f"mine={tmp_path / 'large.pt'}"], ["friction"])
