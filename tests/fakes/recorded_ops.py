"""A stand-in for CUDA graphs on a CPU: operators and Warp's launches of a call, executed again in the same memory."""

import torch
import warp as wp
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
# operators that wait for a CUDA device
_WAITING = {aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten._unique2, aten._linalg_eigh}
_INDEXING = {aten.index, aten.index_put, aten.index_put_}


class _Record(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops, self.written = [], []

    def __enter__(self):
        self._launch, wp.launch = wp.launch, self._launched
        return super().__enter__()

    def __exit__(self, *error):
        wp.launch = self._launch
        return super().__exit__(*error)

    def _launched(self, *args, **kwargs):
        self._launch(*args, **kwargs)
        self.ops.append((self._launch, args, kwargs, None))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        indexing = func.overloadpacket in _INDEXING
        masks = indexing and any(x is not None and x.dtype == torch.bool for x in args[1])
        assert func.overloadpacket not in _WAITING and not masks, "a number is read"
        for declared, x in zip(func._schema.arguments, args):
            if declared.alias_info is not None and declared.alias_info.is_write and isinstance(x, Tensor):
                self.written.append((x, x.clone()))
        self.written += [(x, x.clone()) for name, x in kwargs.items() if name == "out"]
        result = func(*args, **kwargs)
        self.ops.append((func, args, kwargs, result))
        return result


def capture(call):
    """Return a function that does what ``call`` did; as in a capture, nothing has changed before it is called."""
    try:
        with _Record() as record:
            call()
    finally:  # a capture that fails changes nothing either
        for x, before in reversed(record.written):
            x.copy_(before)

    def replay():
        for func, args, kwargs, result in record.ops:
            new = func(*args, **kwargs)
            for x, own in zip(tree_leaves(new), tree_leaves(result)):
                if isinstance(x, Tensor) and x.data_ptr() != own.data_ptr():
                    own.copy_(x)

    return replay
