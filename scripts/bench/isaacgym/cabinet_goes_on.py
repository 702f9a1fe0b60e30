"""FrankaCabinet with its own reward, and with episodes that do not end when the drawer is open."""

import torch


def compute_terminal(reset_buf):
    return torch.zeros_like(reset_buf)
