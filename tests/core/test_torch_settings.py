"""Settings of torch are restored after a block, also if blocks of several threads overlap."""

import threading

import pytest
import torch

from envcoder_bench.core.torch_settings import settings_kept


def now():
    return (
        torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark, repr(torch.tensor(1.23456789)),
    )  # fmt: skip


def change():
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.set_printoptions(precision=2)


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_settings_are_restored_after_an_error():
    before = now()
    with pytest.raises(ValueError), settings_kept():
        change()
        raise ValueError
    assert now() == before


def test_last_of_overlapping_blocks_restores_the_settings():
    before, begun, end = now(), threading.Event(), threading.Event()
    seen = []

    def other():
        with settings_kept():
            change()
            begun.set()
            end.wait(60)
            seen.append(now())
        seen.append(torch.get_num_threads())

    with settings_kept():
        change()
        thread = threading.Thread(target=other)
        thread.start()
        begun.wait(60)
    assert torch.get_num_threads() == 3  # each thread has its own number
    assert torch.get_float32_matmul_precision() == "high"  # the other one still computes
    end.set()
    thread.join()
    assert now() == before
    assert seen[0][:2] == (1, "high") and seen[1] == 3
