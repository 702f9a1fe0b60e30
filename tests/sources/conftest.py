import pytest
import torch
from outside_files import folder, forgotten  # noqa: F401, fixtures


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
