"""The records of a file of ``torch.jit.save``, read as ``torch.jit.load`` reads them.

Python's zipfile may see other records in a crafted archive than torch does, so that this is torch's own reader, which
has no public name (https://github.com/pytorch/pytorch, caffe2/serialize/inline_container.h; torch 2.11 to 2.13).
"""

import io

import torch

_ZIP = b"PK\x03\x04"  # files that begin with something else are read by other loaders of torch


def archive_records(content: bytes) -> dict[str, bytes] | None:
    """Return the records of an archive by name; None if the content is no archive."""
    if not content.startswith(_ZIP):
        return None
    try:
        reader = torch._C.PyTorchFileReader(io.BytesIO(content))
        return {record: reader.get_record(record) for record in reader.get_all_records()}
    except RuntimeError:
        return None
