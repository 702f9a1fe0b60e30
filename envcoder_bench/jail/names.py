"""The modules, names and attributes that untrusted files may use, and hints for those that they may not.

Security comes from the confined process (``confine``). These lists give clear messages, and keep files from changing
the interpreter, memory or the modules that trace them, so that a file's program is what its text says.
"""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HELPERS = ("envcoder_bench.torch_utils", "isaacgym.torch_utils", "isaacgymenvs.utils.torch_jit_utils")

# modules of which a file may use all public names except submodules and EXCLUDED_NAMES
OPEN_MODULES = (
    "__future__", "abc", "bisect", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "enum",
    "functools", "heapq", "itertools", "logging", "math", "numbers", "numpy", "numpy.linalg", "operator", "string",
    "textwrap", "time", "torch", "torch.distributions", "torch.nn", "torch.nn.functional", "torch.linalg",
    "torch.special", "typing", "typing_extensions", "warnings",
)  # fmt: skip
# modules of which a file may use only these names
PARTIAL_MODULES: dict[str, frozenset[str]] = {
    "types": _words("SimpleNamespace MappingProxyType"),
    "torch.cuda": _words("is_available device_count"),
    "torch.jit": _words("script ignore unused export annotate is_scripting Final"),
    "numpy.typing": _words("ArrayLike DTypeLike NDArray"),
}

# allowed names of torch besides its tensor functions and dtypes
TORCH_NAMES = _words("""
Tensor FloatTensor DoubleTensor BoolTensor LongTensor IntTensor Size device dtype finfo iinfo pi e inf nan newaxis
is_tensor no_grad enable_grad inference_mode is_grad_enabled get_default_dtype vmap Generator
""")
# access memory, files, functions of other modules, or the program's text
EXCLUDED_NAMES: dict[str, frozenset[str]] = {
    "contextlib": _words("chdir redirect_stdout redirect_stderr"),
    "dataclasses": _words("make_dataclass"),
    "enum": _words("EnumMeta EnumType EnumDict global_enum global_str"),
    "functools": _words("update_wrapper singledispatch singledispatchmethod WRAPPER_ASSIGNMENTS WRAPPER_UPDATES"),
    "numpy": _words("""
        DataSource frombuffer fromfile fromregex genfromtxt get_include info load loadtxt memmap nested_iters nditer
        save savetxt savez savez_compressed seterrcall setbufsize show_config show_runtime source test
    """),
    "operator": _words("attrgetter methodcaller"),
    "string": _words("Formatter"),
    "time": _words("sleep clock_settime clock_settime_ns pthread_getcpuclockid"),
    "torch.nn": _words("DataParallel"),
    "typing": _words("ForwardRef evaluate_forward_ref get_type_hints"),
    "typing_extensions": _words("ForwardRef evaluate_forward_ref get_annotations get_type_hints"),
}  # fmt: skip
# functions of torch that return tensors over foreign or freed memory, or do not check their arguments
UNSAFE_TORCH = re.compile(
    r"as_strided|from_file|frombuffer|resize_|sparse|fbgemm|cudnn|miopen|mkldnn|quantize|unsafe|segment_reduce|dlpack"
    r"|embedding(?!_?loss)|ctc_?loss|unpool|lstm|gru|rnn|native_|lu_solve|lu_unpack|ldl_|orgqr|ormqr|householder",
    re.IGNORECASE,
)

# attributes that are refused on any object
REFUSED_ATTRIBUTES = _words("""
ag_await ag_code ag_frame cr_await cr_code cr_frame cr_origin f_back f_builtins f_code f_globals f_locals f_trace
gi_code gi_frame gi_yieldfrom mro tb_frame tb_next attrname
as_strided as_strided_ as_strided_copy as_strided_scatter ctypes data_ptr dump dumps from_file getfield resize resize_
resize_as_ resize_as_sparse_ set_ setfield share_memory_ storage tofile _typed_storage untyped_storage
""")

# names with two underscores at both ends that a file may define or read; all others are refused
SPECIAL_NAMES = _words("""
__future__ __name__ __main__ __doc__ __file__ __all__ __version__ __author__ __email__ __license__ __copyright__
__date__ __status__ __slots__ __qualname__ __module__ __members__ __match_args__
__init__ __post_init__ __call__ __repr__ __str__ __format__ __len__ __iter__ __next__ __reversed__ __contains__
__getitem__ __setitem__ __delitem__ __missing__ __enter__ __exit__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__
__bool__ __int__ __float__ __index__ __neg__ __pos__ __abs__ __invert__ __round__ __floor__ __ceil__ __trunc__
__add__ __sub__ __mul__ __matmul__ __truediv__ __floordiv__ __mod__ __divmod__ __pow__ __and__ __or__ __xor__
__lshift__ __rshift__ __radd__ __rsub__ __rmul__ __rmatmul__ __rtruediv__ __rfloordiv__ __rmod__ __rpow__ __rand__
__ror__ __rxor__ __iadd__ __isub__ __imul__ __itruediv__ __iand__ __ior__
""")

_FILES = "a candidate cannot open files: write its numbers into the code"
_CODE = "write plain code instead"
_MEMORY = "use torch's tensor functions"
# by refused name: what to write instead
HINTS = {
    **dict.fromkeys(("os", "pathlib", "io", "json", "pickle", "yaml", "shutil", "glob", "tempfile", "open"), _FILES),
    **dict.fromkeys(("sys", "gc", "inspect", "ctypes", "importlib", "builtins", "ast", "traceback"), _CODE),
    **dict.fromkeys(("eval", "exec", "compile", "globals", "locals", "__import__"), _CODE),
    **dict.fromkeys(("threading", "multiprocessing", "subprocess", "socket", "asyncio"), "a candidate is one process"),
    **dict.fromkeys(("breakpoint", "help", "input", "exit", "quit"), "candidates are not interactive"),
    **dict.fromkeys(("time.sleep", "datetime"), "the time of an episode is progress_buf * dt"),
    **dict.fromkeys(("torch.load", "torch.save", "numpy.load", "numpy.save", "logging.FileHandler"), _FILES),
    **dict.fromkeys(("random", "numpy.random"), "use torch.rand or similar"),
    "torch.manual_seed": "remove it: every group has its own random stream",
    "torch.compile": "remove it: functions are compiled automatically",
    "torch.autograd": "remove it: candidates are not differentiated",
    "vars": "use dataclasses.asdict or name the attributes",
    "functools.update_wrapper": "use functools.wraps",
    "functools.singledispatch": "use isinstance",
    "dataclasses.make_dataclass": "use @dataclass",
    "operator.attrgetter": "use a lambda",
    "operator.methodcaller": "use a lambda",
    "numpy.ndarray": "make arrays with np.array",
    "__dict__": "use dataclasses.asdict or name the attributes",
    "__class__": "use type(x)",
    **dict.fromkeys(("__getattr__", "__setattr__", "__getattribute__", "__new__"), "use plain attributes and __init__"),
    **dict.fromkeys(("as_strided", "data_ptr", "storage", "untyped_storage", "set_", "resize_", "ctypes"), _MEMORY),
    "resize": "use reshape",
}

# remedies for functions that cannot be traced, by words of the tracer's reason
REMEDIES = {
    "control flow": "write torch.where(condition, a, b)",
    "joins the environments": "reduce with dim=-1; NaN stops a candidate without an assert or if",
    "an earlier call has kept": "read actions and progress_buf of the state; compute constants at the top of the file",
    "single environments": "compare torch.arange(n) and use torch.where",
    "library's generator": "use torch.rand or similar",
    "out of torch": "use the torch function",
}


def is_refused(name: str) -> bool:
    """Return whether a file may not use an attribute of this name, of any object."""
    return name in REFUSED_ATTRIBUTES or (name[:2] == name[-2:] == "__" and name not in SPECIAL_NAMES)


def hint(name: str) -> str:
    """Return what to write instead of a name, for the end of a message; empty if unknown."""
    found = HINTS.get(name) or HINTS.get(name.split(".")[0])
    return f" ({found})" if found else ""


def remedy(reason: str) -> str:
    """Return the remedy for a tracer's reason, for the end of a message; empty if unknown."""
    return next((f": {text}" for words, text in REMEDIES.items() if words in reason), "")
