"""Files that change the process that examines them: memory, classes, modules, frames, names, texts.

Importing this module adds them to ``attacks.ATTACKS``. Without ``scan`` they may succeed inside the process; with it
they are refused, so that a program is what its text says.
"""

from textwrap import dedent

from attacks import GOOD, MAY_NOT, attack

attack(
    "addresses of memory",
    MAY_NOT,
    negative_offset="x = np.ndarray((4,), np.int64, bytearray(64), -4096)\nx[:] = 0",
    by_keyword="import numpy\nx = numpy.ndarray(shape=(9,), dtype=float, buffer=bytearray(8), offset=-64)",
    by_its_type="x = type(np.zeros(3))((9,), float, bytearray(8), -64)",
    by_a_map="x = list(map(type, [np.zeros(3)]))[0]((9,), float, bytearray(8), -64)",
    by_the_class="x = np.zeros(3).__class__((9,), float, bytearray(8), -64)",
    by_a_subclass="class A(np.ndarray):\n    pass\nA((9,), float, bytearray(8), -64)",
    by_another_subclass="x = np.recarray((9,), float, bytearray(8), -64)",
    by_a_matrix="x = type(np.matrix([[1.0]]))([[1.0]])",
    by_an_alias="from numpy.typing import NDArray\nx = NDArray((9,), float, bytearray(8), -64)",
    strides="x = np.lib.stride_tricks.as_strided(np.zeros(3), (1 << 20,), (8,))\nx[:] = 0",
    strides_by_import="from numpy.lib.stride_tricks import as_strided\n"
    "as_strided(np.zeros(3), (1 << 20,), (8,))[:] = 0",
    frombuffer="x = np.frombuffer(bytearray(64), np.int64, 1, 8)",
    torch_strides="x = torch.as_strided(torch.zeros(3), (1 << 20,), (1,))",
    torch_frombuffer="x = torch.frombuffer(bytearray(64), dtype=torch.int64)",
    method_by_getattr="x = getattr(torch.zeros(3), 'as_' + 'strided')((1 << 20,), (1,))",
    method_by_class="f = torch.Tensor.as_strided",
    ctypes_of_an_array="c = np.zeros(3).ctypes\nc.data_as(c._ctypes.py_object)",
    freed_by_resize="a = np.zeros(1000)\nv = a[:]\na.resize(1 << 20, refcheck=False)\nv[:] = 1.0",
    freed_by_torch="a = torch.zeros(1000)\nv = a[:]\na.resize_(0)\nv.fill_(1.0)",
    storage="x = torch.zeros(3).untyped_storage().data_ptr()",
    sparse="x = torch.sparse_coo_tensor([[9999999]], [1.0], (3,)).to_dense()",
    interface="class A:\n"
    "    __array_interface__ = {'data': (4096, False), 'shape': (8,), 'typestr': '<f8', 'version': 3}\n"
    "np.asarray(A())",
    interface_of_a_namespace="from types import SimpleNamespace\nkey = '__array_' + 'interface__'\n"
    "np.asarray(SimpleNamespace(**{key: {'data': (4096, False), 'shape': (8,), 'typestr': '<f8', 'version': 3}}))",
    interface_by_setattr="class A: pass\na = A()\nsetattr(a, '__array_' + 'interface__', {})\nnp.asarray(a)",
    interface_by_text="class A: pass\na = A()\nsetattr(a, '__array_interface__', {})",
    interface_of_an_enum="from enum import Enum\nkey = '__array_' + 'interface__'\nA = Enum('A', {key: {}, 'X': 1})",
    interface_of_a_class="key = '__array_' + 'interface__'\nA = type('A', (), {key: {}})",
    interface_by_abc="from abc import ABCMeta\nkey = '__array_' + 'interface__'\nA = ABCMeta('A', (), {key: {}})",
    interface_of_dataclass="from dataclasses import make_dataclass\nA = make_dataclass('A', ['__array_interface__'])",
    interface_by_cache="""
    from functools import cached_property
    class A:
        x = cached = cached_property(lambda a: {'data': (4096, False), 'shape': (8,), 'typestr': '<f8', 'version': 3})
    A.cached.attrname = '__array_' + 'interface__'
    a = A()
    a.x
    np.asarray(a)
    """,
    interface_by_a_field="""
    from dataclasses import dataclass, fields
    @dataclass
    class A:
        x: object = None
    fields(A)[0].name = '__array_' + 'interface__'
    @dataclass
    class B(A):
        pass
    np.asarray(B({'data': (4096, False), 'shape': (8,), 'typestr': '<f8', 'version': 3}))
    """,
    pivots="x = torch.linalg.lu_solve(torch.eye(2), torch.tensor([9999999, 1], dtype=torch.int32), torch.ones(2, 1))",
    group_norm="x = torch.native_group_norm(torch.zeros(4), None, None, 1, 1 << 20, 1, 1, 1e-5)",
    lying_string="""
    class Name(str):
        def __eq__(self, other):
            return False
        def __hash__(self):
            return 0
        def __str__(self):
            return self
        def __getitem__(self, k):
            return 'x'
    x = getattr(torch.zeros(3), Name('untyped_storage'))()
    """,
)
attack(
    "code out of text",
    f"{MAY_NOT}|Type names and field names",
    fields_name="""
    from dataclasses import dataclass, fields
    @dataclass
    class A:
        x: int = 0
    fields(A)[0].name = "x=().__class__.__base__.__subclasses__()"
    @dataclass
    class B(A):
        y: int = 1
    raise RuntimeError(str(B().x))
    """,
    fields_lying_name="""
    from dataclasses import dataclass, fields
    class Name(str):
        def isidentifier(self):
            return True
        def __format__(self, spec):
            return "x=print(().__class__)"
    @dataclass
    class A:
        x: int = 0
    fields(A)[0].name = Name("x")
    @dataclass
    class B(A):
        y: int = 1
    """,
    annotations="from dataclasses import dataclass\n@dataclass\nclass A:\n    __annotations__ = {'x=print(1)': int}",
    type_hints="import typing\ndef f(x: 'print(().__class__)'): pass\ntyping.get_type_hints(f)",
    forward_ref="import typing\ntyping.ForwardRef('().__class__')",
    dispatch="import functools\n@functools.singledispatch\ndef f(x): pass\n@f.register\n"
    "def g(x: '().__class__'): pass",
    tuples="from collections import namedtuple\nA = namedtuple('A', ['x=print(1)'])",
)  # fmt: skip
attack(
    "tampering with what traces",
    f"{MAY_NOT}|has no attribute '(_module|buffer)'",
    torch_by_an_alias="T = torch.Tensor\nT.sum = lambda x, *a, **k: x[..., 0]",
    torch_in_a_loop="for T in [torch.Tensor]:\n    T.__add__ = lambda x, y: x",
    torch_by_setattr="setattr(torch.Tensor, 'sum', lambda x, *a, **k: x[..., 0])",
    torch_by_delattr="delattr(torch.Tensor, 'norm')",
    module_by_alias="t = torch\nt.sin = t.cos",
    module_by_setattr="setattr(torch, 'sin', torch.cos)",
    module_made_anew="torch.__init__('os')\ntorch.system('touch CANARY/was_here')",
    state_dict="def compute_terminal(state_dict):\n    S = type(state_dict)\n    S.copy = lambda x: {}\n"
    "    return state_dict['dof_pos'][:, 0] > 9.0",
    helpers="import isaacgym.torch_utils as u\nu.quat_mul = lambda a, b: a",
    helpers_code="from isaacgym.torch_utils import quat_mul\ndef f(a, b): return a\nquat_mul.__code__ = f.__code__",
    helpers_by_wraps="import functools\nfrom isaacgym.torch_utils import quat_mul\n"
    "functools.update_wrapper(quat_mul, lambda a, b: a, assigned=('__co' + 'de__',), updated=())",
    helpers_defaults="from isaacgym.torch_utils import normalize\nsetattr(normalize, '__defaults__', (7.0,))",
    baselines="from envcoder_bench.tasks.anymal.human import compute_reward as own\nown.weight = 3",
    builtins_of_a_function="def f(): pass\nf.__builtins__['print'] = open",
    wire="import envcoder_bench.jail.wire as wire\nwire.pack = lambda x: b'forged'",
    modules="from sys import modules\nmodules['envcoder_bench.jail.wire'].pack = lambda x: b'forged'",
    sys_by_logging="import logging\nlogging.sys.modules",
    sys_by_warnings="import warnings\nwarnings.catch_warnings()._module.sys.modules\nopen",
    descriptor_by_logging="import logging\nraw = logging.StreamHandler().stream.buffer.raw\n"
    "type(raw)(4, 'w').write(b'forged')\nopen",
    descriptor_by_redirect="import contextlib\nr = contextlib.redirect_stdout(None)\nwith r:\n"
    "    r._old_targets[0].buffer.raw",
    collector="import gc\n[x for x in gc.get_objects() if hasattr(x, 'examine')]",
    frames="import inspect\ninspect.currentframe()",
    frames_of_a_traceback="""
    class C:
        def __enter__(self): pass
        def __exit__(self, kind, error, traceback):
            raise RuntimeError(str(traceback.tb_frame.f_back))
    with C():
        1 / 0
    """,
    frames_by_a_pattern="""
    def f():
        yield
    match f():
        case object(gi_frame=frame):
            raise RuntimeError(str(frame.f_back))
    """,
    class_by_a_pattern="match ():\n    case object(__class__=c):\n        pass",
    frames_by_getattr="def f():\n    yield\nframe = getattr(f(), 'gi_' + 'frame')",
    bases_by_mro="class A: pass\nfor c in A.mro(): pass",
    bases_by_getattr="class A: pass\nbase = getattr(A, '__ba' + 'se__')",
    metaclass="class M(type):\n    def __new__(m, name, bases, space):\n"
    "        return type.__new__(m, name, bases, space)\n"
    "class A(metaclass=M): pass",
    destructor="class A:\n    def __del__(self):\n        pass\nA()",
    reduces="class A:\n    def __reduce__(self):\n        return print, ()\nimport copy\ncopy.copy(A())",
    own_tensor="class T(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, f, types, a=(), k=None):\n"
    "        return a[0]",
    attribute_hook="class A:\n    def __getattribute__(self, name):\n        return 3",
    subclass_hook="class A:\n    def __init_subclass__(cls):\n        pass",
    set_name="class A:\n    def __set_name__(self, owner, name):\n        pass",
    through_vars="vars(torch)['load']('CANARY/secret')",
    through_attrgetter="import operator\noperator.attrgetter('__globals__')(lambda: 0)",
    through_reduce="import functools\nfunctools.reduce(getattr, ['__class__', '__base__'], ())",
    through_partial="import functools\nfunctools.partial(getattr, (), '__cla' + 'ss__')()",
    through_formatter="import string\nstring.Formatter().get_field('0.__class__', ((),), {})",
    through_an_error="try:\n    torch.load\nexcept AttributeError as e:\n    e.obj.load('CANARY/secret')",
    through_a_missing_name="try:\n    torch.unheard_of\nexcept AttributeError as e:\n"
    "    e.obj.save(1, 'CANARY/was_here')",
)
attack(
    "floods",
    "processor time|longer than",
    "processor time|longer than|memory|Memory",
    prints="text = 'x' * 1_000_000\nwhile True:\n    print(text, flush=True)",
    logs="import logging\nlogging.basicConfig(level=0)\nwhile True:\n    logging.warning('x' * 1_000_000)",
)
attack(
    "false exits",
    f"{MAY_NOT}|ended the process|raised|must return",
    "ended the process|raised|must return",
    good=False,
    interrupt="def compute_reward(state_dict):\n    raise KeyboardInterrupt",
    own_end="class End(BaseException):\n    pass\ndef compute_reward(state_dict):\n    raise End",
    generator_exit="def compute_reward(state_dict):\n    raise GeneratorExit",
    endless_finally="""
    def compute_reward(state_dict):
        try:
            raise SystemExit
        finally:
            raise KeyboardInterrupt
    """,
    a_generator="def compute_reward(state_dict):\n    try:\n        yield state_dict['dof_pos'].sum(dim=-1)\n"
    "    finally:\n        raise KeyboardInterrupt",
)
attack(
    "misleading texts",
    "encoding|character|UTF-8|MiB",
    "encoding|character|UTF-8|MiB",
    rot13="# coding: rot13\n",
    utf_7="# -*- coding: utf-7 -*-\nSAFE = True  # +AAo-import os+AAo-\n",
    unicode_escape="# coding: unicode_escape\nx = 1  # \\x0aimport os\n",
    punycode="# vim: set fileencoding=punycode :\n",
    second_line="'''A reward.'''\n# coding=hex\n",
    half_a_pair="x = '\ud800'\n",
    bytes_that_are_none="x = 1  # \udcff\udcfe\n",
    nul="x = 1\0\n",
    escape="# \x1b[2K\x1b[1A a comment that hides the line above\n",
    backspace="x = 1  # \x08\x08\x08\x08\n",
    carriage_return="import os\r# a comment\n",
    right_to_left="access = 'none\u202e\u2066# if admin\u2069 \u2066'\n",
    line_separator="# one comment\u2028import os\n",
    next_line="# one comment\x85import os\n",
)

# harmless files that look like attacks
HARMLESS: dict[str, str] = {
    name: dedent(code).strip("\n") + "\n" + GOOD
    for name, code in dict(
        prints_a_lot="for _ in range(2000):\n    print('x' * 1_000_000)",
        logs_a_lot="import logging\nfor _ in range(20_000):\n    logging.warning('x')",
        names_of_builtins="open = exec = eval = 3\ndef compile(input, type=None):\n    return input\nx = compile(open)",
        names_of_modules="def math(x):\n    return x\nx = math(3)",
        special_names="__all__ = ['compute_reward']\n__version__ = '1'\nx = __name__\ny = __doc__",
        imports_that_fail="for name in ('a', 'b'):\n    try:\n        import os\n    except ImportError:\n"
        "        os = None",
        attributes_of_its_own="def f():\n    pass\nf.shape = 3\nclass A:\n    pass\na = A()\na.x = A.y = 3\n"
        "setattr(a, 'z', 4)",
        annotations_of_numpy="from numpy.typing import NDArray\n"
        "def f(x: np.ndarray, y: 'NDArray[np.float32]') -> NDArray:\n"
        "    assert isinstance(x, np.ndarray) and type(x) is np.ndarray\n    return x\nf(np.zeros(3), None)",
        component_names="def compute_terminal(state_dict):\n    return state_dict['dof_pos'][:, 0] > 9.0",
        symbols="ω = 0.25  # ± → ² 🙂\nx = 'ἀρχή 日本'",
        form_feed="x = 1\n\x0c\ny = 2",
        declared="# -*- coding: utf-8 -*-",
        a_comment="# State encoding: base, joints",
    ).items()
}
