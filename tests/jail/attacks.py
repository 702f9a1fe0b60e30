"""Files that try to escape from the jail, to change the process that examines them, or to leak data.

In the code, CANARY stands for a folder with a file ``secret``, PORT for a listening TCP port of this machine, UNIX for
a listening socket, and PARENT for the id of the client's process. Attacks raise what they learn, because messages leave
the jail.
"""

from textwrap import dedent
from typing import NamedTuple

GOOD = """
def compute_reward(state_dict):
    return -state_dict["dof_pos"].abs().sum(dim=-1)
"""


class Attack(NamedTuple):
    """One file.

    Attributes:
        reason: pattern of the reason for which it fails; empty if it may succeed inside the confined process.
    """

    kind: str
    name: str
    code: str
    reason: str = ""


ATTACKS: list[Attack] = []
# what an attack begins with: it undoes the list of imports, which is no boundary
UNDO = "__builtins__.update({name: torch.__builtins__[name] for name in ('__import__', 'print')})\n"


def attack(kind: str, reason: str = "", good: bool = True, **codes: str) -> None:
    for name, code in codes.items():
        code = dedent(code).strip("\n") + ("\n" + GOOD if good else "\n")
        code = code if kind == "misleading texts" else UNDO + code  # declarations are at the top
        ATTACKS.append(Attack(kind, name, code, reason))


REFUSED = "Operation not permitted|Permission denied|PermissionError"

attack(
    "disguised imports",
    import_as_torch="import os as torch\ntorch.system('touch CANARY/was_here')",
    helpers_have_modules="import isaacgym.torch_utils as u\nu.stream.noise.np.save('CANARY/was_here', u.np.zeros(3))",
    our_own="from envcoder_bench.jail import child, wire",
    pickle="import pickle\npickle.loads(b\"cos\\nsystem\\n(S'touch CANARY/was_here'\\ntR.\")",
    spec="import importlib.util as u\nu.spec_from_file_location('secret', 'CANARY/secret').loader.exec_module(None)",
)
attack(
    "waiting",
    "waits: it used no processor time",
    lock="lock = torch.sys.modules['_thread'].allocate_lock()\nlock.acquire()\nlock.acquire()",
    lock_of_another_thread="import threading\nx = threading.RLock()\nx._acquire_restore((1, 7))\nx.acquire()",
    condition="import threading\nx = threading.Condition()\nx.acquire()\nx.wait()",
    queue="import queue\nqueue.SimpleQueue().get()",
    in_a_function="import threading\ndef compute_goal(state_dict):\n    threading.Event().wait()",
)
attack(
    "attribute chains",
    exec_call="exec(\"import os\\nos.remove('CANARY/secret')\")",
    numpy_method="torch.zeros(3).numpy().tofile('CANARY/was_here')",
    tensor_pickles="torch.zeros(3).__reduce_ex__(2)[0].__globals__['os'].remove('CANARY/secret')",
    exit="exit(0)",
    changed_torch="torch.sin = torch.cos",
)
attack(
    "code that runs at definition",
    decorator="import os\n@os.system\ndef touch():\n    pass",
    annotation="def f(x: __import__('os').remove('CANARY/secret')):\n    pass",
    metaclass="class A(metaclass=lambda *a: __import__('os').remove('CANARY/secret')):\n    pass",
    destructor="class A:\n    def __del__(self):\n        __import__('os').remove('CANARY/secret')\nA()",
    in_finally="try:\n    pass\nfinally:\n    open('CANARY/was_here', 'w')",
    at_exit="import atexit\natexit.register(lambda: open('CANARY/was_here', 'w'))",
)
attack(
    "functions of torch",
    load="torch.load('CANARY/secret')",
    save="torch.save(torch.zeros(3), 'CANARY/was_here')",
    cpp_extension="from torch.utils.cpp_extension import load_inline\nload_inline('x', 'int f() { return 3; }')",
    from_file="torch.from_file('CANARY/secret', size=1, shared=True, dtype=torch.uint8).zero_()",
    multiprocessing="import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)",
    threads="torch.set_num_threads(64)\ntorch.zeros(10_000_000).sin().sum()",
    compile="torch.compile(lambda x: x + 1)(torch.zeros(3))",
    new_operator="from torch import library\nlibrary.define('canary::op', '(Tensor x) -> Tensor')",
    apply_="torch.zeros(3).apply_(lambda x: open('CANARY/was_here', 'w'))",
    random_seed="torch.manual_seed(0)",
    numpy_memmap="np.memmap('CANARY/secret', mode='r+')[:] = 0",
)
attack(
    "files", REFUSED,
    read="import os\nraise RuntimeError(os.read(os.open('CANARY/secret', os.O_RDONLY), 100))",
    write="import os\nos.write(os.open('CANARY/was_here', os.O_CREAT | os.O_WRONLY), b'x')",
    remove="import os\nos.remove('CANARY/secret')",
    list_folder="import os\nraise RuntimeError(str(os.listdir('CANARY')))",
    own_memory="import os\nos.open('/proc/self/mem', os.O_RDWR)",
    parents_memory="import os\nos.open('/proc/PARENT/mem', os.O_RDWR)",
    parents_environment="import os\nraise RuntimeError(os.read(os.open('/proc/PARENT/environ', os.O_RDONLY), 9999))",
    inherited="""
    import os
    found = []
    for fd in range(200):
        try:
            os.dup(fd)
            found.append(fd)
        except OSError:
            pass
    raise RuntimeError(f'{found} PermissionError')
    """,
)  # fmt: skip
attack(
    "other processes", REFUSED,
    fork="import os\nif os.fork() == 0:\n    os.execv('/bin/touch', ['touch', 'CANARY/was_here'])",
    execute="import os\nos.execv('/bin/touch', ['touch', 'CANARY/was_here'])",
    system="import os\nif os.system('touch CANARY/was_here') != 0:\n    raise RuntimeError('PermissionError')",
    spawn="import os\nos.posix_spawn('/bin/touch', ['touch', 'CANARY/was_here'], {})",
    popen="import os\nos.popen('touch CANARY/was_here')",
    terminal="import os\nos.forkpty()",
    thread="""
    import _thread
    try:
        _thread.start_new_thread(print, ())
    except RuntimeError:
        raise OSError("PermissionError")
    """,
    kill_parent="import os\nos.kill(PARENT, 9)",
    kill_group="import os\nos.killpg(0, 9)",
    kill_all="import os\nos.kill(-1, 9)",
    handler="import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)",
    sleep="import time\ntime.sleep(100)",
    limits="""
    import resource
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (100, 100))
    except ValueError:  # what Python makes of the kernel's find_violation
        raise OSError("PermissionError")
    """,
    pidfd="import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(PARENT), 9)",
)  # fmt: skip
attack(
    "the network", "Operation not permitted|Permission|No module named|cannot import|Error",
    connect="import _socket\n_socket.socket(2, 1).connect(('127.0.0.1', PORT))",
    unix_connect="import _socket\n_socket.socket(1, 1).connect('UNIX')",
    datagram="import _socket\n_socket.socket(2, 2).sendto(b'x', ('127.0.0.1', PORT))",
    pair="import _socket\n_socket.socketpair()",
    raw="import _socket\n_socket.socket(17, 3, 3)",
    url="import urllib.request\nurllib.request.urlopen('http://127.0.0.1:PORT')",
    names="import _socket\n_socket.getaddrinfo('localhost', PORT)",
)  # fmt: skip


def library(call: str) -> str:
    """Return code that calls the C library and raises the result, which is -1 if the kernel refuses."""
    return f"import ctypes\nraise OSError('result ' + str(ctypes.CDLL(None).{call}))"


LIBRARY = {
    "libc_system": "system(b'touch CANARY/was_here')",
    "libc_open": "open(b'CANARY/was_here', 65, 511)",
    "libc_socket": "socket(2, 1, 0)",
    "libc_kill": "kill(PARENT, 9)",
    "ptrace": "ptrace(16, PARENT, 0, 0)",
    "privileges": "prctl(38, 0, 0, 0, 0)",
    "debuggable": "prctl(4, 1, 0, 0, 0)",
    "outlive": "prctl(1, 0, 0, 0, 0)",
    "namespaces": "unshare(0x10000000)",
    "mount": "mount(b'x', b'CANARY', b'tmpfs', 0, 0)",
    "io_uring": "syscall(425, 8, 0)",
    "bpf": "syscall(321, 0, 0, 0)",
    "reboot": "reboot(0)",
}
attack(
    "machine code and system calls",
    **{name: library(call) for name, call in LIBRARY.items()},
    read_parent="""
    import ctypes
    c, b = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    class V(ctypes.Structure):
        _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
    own, other = V(ctypes.addressof(b), 64), V(0x400000, 64)
    if c.process_vm_readv(PARENT, ctypes.byref(own), 1, ctypes.byref(other), 1, 0) < 0:
        raise OSError('refused')
    """,
    executable="""
    import ctypes
    c = ctypes.CDLL(None)
    c.mmap.restype = ctypes.c_void_p
    if c.mmap(None, 4096, 7, 34, -1, 0) == ctypes.c_void_p(-1).value:
        raise OSError('refused')
    """,
    make_executable="""
    import ctypes
    c = ctypes.CDLL(None)
    c.mmap.restype = ctypes.c_void_p
    page = c.mmap(None, 4096, 3, 34, -1, 0)
    if c.mprotect(ctypes.c_void_p(page), 4096, 5) < 0:
        raise OSError('refused')
    """,
    old_numbers="""
    import ctypes
    c = ctypes.CDLL(None)
    c.mmap.restype = ctypes.c_void_p
    # x32: the same call under another number
    c.syscall(0x40000000 + 41, 2, 1, 0)
    """,
    null_pointer="import ctypes\nctypes.string_at(0)",
    abort="import os\nos.abort()",
    wild_writes="import ctypes\nfor k in range(1 << 20):\n    ctypes.memset(id(None) + 4096 * k, 0, 4096)",
)
attack(
    "leaks",
    environment="import os\nraise RuntimeError(str(dict(os.environ)))",
    keys="import os\nraise RuntimeError(str({k: v for k, v in os.environ.items() if 'KEY' in k}))",
    keys_of_the_c_library="import ctypes\nc = ctypes.CDLL(None).getenv\nc.restype = ctypes.c_char_p\n"
    "raise RuntimeError(str(c(b'OPENAI_API_KEY')))",
    keys_in_memory="import gc\nfound = [o for o in gc.get_objects() if type(o) is dict and b'OPENAI_API_KEY' in o]\n"
    "raise RuntimeError(str(found))",
    command_line="import sys\nraise RuntimeError(str(sys.argv) + str(sys.orig_argv) + str(sys.path))",
    all_objects="import gc\nraise RuntimeError(str([o for o in gc.get_objects() if isinstance(o, str)])[:100_000])",
    modules="import sys\nraise RuntimeError(str([m for m in sys.modules if 'candidate' in m]))",
)
attack(
    "forged answers",
    printed="print('\\x00\\x00\\x00\\x10{\"candidate\": {}}')\nimport os",
    standard_output="import os\nos.write(1, b'\\x00\\x00\\x00\\x10{\"candidate\": {}}')",
    standard_error="import sys\nsys.stderr.write('was here')",
    to_every_descriptor="""
    import os
    for fd in range(64):
        try:
            os.write(fd, b'{"ended": 1, "status": 0}')
        except OSError:
            pass
    """,
    endless="""
    import os
    while True:
        for fd in range(64):
            try:
                os.write(fd, b'x' * 65536)
            except OSError:
                pass
    """,
    nothing="import os\nos._exit(0)",
    exit_code="import os\nos._exit(7)",
    closed="import os\nos.closerange(0, 99)",
    patched_json="import json\njson.dumps = lambda *a, **k: '{}'",
    patched_wire="import sys\nsys.modules['envcoder_bench.jail.wire'].pack = lambda x: b'\\xff\\xff\\xff\\xff'",
    patched_torch="torch.sin = torch.cos\ntorch.Tensor.__add__ = lambda x, y: x",
)
attack(
    "exhaustion",
    "processor time|longer than|memory|Memory|crashed|recursion|nested|more than|parsed",
    loop_that_catches="while True:\n    try:\n        [0] * (10 ** 12)\n    except MemoryError:\n        pass",
    memory_of_tensors="x = []\nwhile True:\n    x.append(torch.ones(10_000_000))",
    one_large_tensor="x = torch.zeros(10 ** 12)",
    one_large_string="x = 'a' * (10 ** 12)",
    recursion="def f(x):\n    return f(x + 1)\nf(0)",
    nested_text="x = " + "(" * 5000 + ")" * 5000,
    nested_minus="x = " + "-" * 50_000 + "1",
    nested_calls="x = " + "abs(" * 150 + "1" + ")" * 150,
    nested_blocks="\n".join(" " * k + "if True:" for k in range(95)) + "\n" + " " * 95 + "pass",
    long_sum="x = " + "+".join(["1"] * 20_000),
    long_text="x = '" + "a" * 200_000 + "'",
    many_lines="x = 1\n" * 15_000,
    many_comparisons="x = " + "<".join(["1"] * 30_000),
)  # fmt: skip
attack(
    "large graphs",
    "more than|longer than|processor time|memory|limit",
    good=False,
    many_operations="""
    def compute_reward(state_dict):
        x = state_dict["dof_pos"]
        for _ in range(10 ** 6):
            x = torch.sin(x) + 1.0
        return x.sum(dim=-1)
    """,
    just_too_many="""
    def compute_reward(state_dict):
        x = state_dict["dof_pos"]
        for _ in range(1000):
            x = torch.sin(x)
        return x.sum(dim=-1)
    """,
    wide_observation="""
    def compute_observation(state_dict):
        return state_dict["dof_pos"][:, :1].repeat(1, 5000)
    """,
    outer_products="""
    def compute_reward(state_dict):
        x = state_dict["dof_pos"]
        for _ in range(12):
            x = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(1)[:, :100_000]
        return x.sum(dim=-1)
    """,
    many_components="""
    def compute_reward(state_dict):
        x = state_dict["dof_pos"].sum(dim=-1)
        return x, {f"c{k}": x for k in range(1000)}
    """,
)
attack(
    "results",
    good=False,
    escape_codes="""
    def compute_reward(state_dict):
        x = state_dict["dof_pos"].sum(dim=-1)
        return x, {"\\x1b]0;owned\\x07\\x1b[2J": x}
    """,
    path_as_name="""
    def compute_reward(state_dict):
        x = state_dict["dof_pos"].sum(dim=-1)
        return x, {"../../etc/passwd\\n": x}
    """,
    message_with_codes="""
    def compute_reward(state_dict):
        raise ValueError("\\x1b[31mred\\x1b[0m \\u202e\\n\\n" + "long " * 100_000)
    """,
    infinite="""
    def compute_reward(state_dict):
        return state_dict["dof_pos"].sum(dim=-1) / 0.0
    """,
    nothing_at_all="def compute_reward(state_dict):\n    pass",
    a_function="def compute_reward(state_dict):\n    return compute_reward",
    a_generator="def compute_reward(state_dict):\n    return (x for x in [1])",
    a_string="def compute_reward(state_dict):\n    return 'high'",
    own_class="""
    class Reward(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return open("CANARY/was_here", "w")
    def compute_reward(state_dict):
        return state_dict["dof_pos"].sum(dim=-1).as_subclass(Reward)
    """,
)
attack(
    "the state",
    good=False,
    add_in_place="""
    def compute_reward(state_dict):
        state_dict["dof_pos"] += 1.0
        return state_dict["dof_pos"].sum(dim=-1)
    """,
    numpy_view="""
    def compute_reward(state_dict):
        state_dict["dof_pos"].numpy()[:] = 7.0
        return state_dict["dof_vel"].sum(dim=-1)
    """,
    neighbours_by_stride="""
    def compute_reward(state_dict):
        x = state_dict["dof_pos"]
        return x.as_strided(x.shape, x.stride(), 10_000).sum(dim=-1)
    """,
    branch_on_state="""
    def compute_reward(state_dict):
        if state_dict["dof_pos"].sum() > 0:
            return state_dict["dof_pos"].sum(dim=-1)
        return state_dict["dof_vel"].sum(dim=-1)
    """,
    average_of_all="""
    def compute_reward(state_dict):
        x = state_dict["dof_pos"].sum(dim=-1)
        return x - x.mean()
    """,
)

attack(
    "addresses of memory",
    negative_offset="x = np.ndarray((4,), np.int64, bytearray(64), -4096)\nx[:] = 0",
    ctypes_of_an_array="c = np.zeros(3).ctypes\nc.data_as(c._ctypes.py_object)",
    freed_by_torch="a = torch.zeros(1000)\nv = a[:]\na.resize_(0)\nv.fill_(1.0)",
    sparse="x = torch.sparse_coo_tensor([[9999999]], [1.0], (3,)).to_dense()",
    interface="class A:\n"
    "    __array_interface__ = {'data': (4096, False), 'shape': (8,), 'typestr': '<f8', 'version': 3}\n"
    "np.asarray(A())",
    pivots="x = torch.linalg.lu_solve(torch.eye(2), torch.tensor([9999999, 1], dtype=torch.int32), torch.ones(2, 1))",
)
attack(
    "code out of text",
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
    type_hints="import typing\ndef f(x: 'print(().__class__)'): pass\ntyping.get_type_hints(f)",
)  # fmt: skip
attack(
    "tampering with what traces",
    torch_by_an_alias="T = torch.Tensor\nT.sum = lambda x, *a, **k: x[..., 0]",
    state_dict="def compute_terminal(state_dict):\n    S = type(state_dict)\n    S.copy = lambda x: {}\n"
    "    return state_dict['dof_pos'][:, 0] > 9.0",
    wire="import envcoder_bench.jail.wire as wire\nwire.pack = lambda x: b'forged'",
    descriptor_by_logging="import logging\nraw = logging.StreamHandler().stream.buffer.raw\n"
    "type(raw)(4, 'w').write(b'forged')\nopen",
    frames_of_a_traceback="""
    class C:
        def __enter__(self): pass
        def __exit__(self, kind, error, traceback):
            raise RuntimeError(str(traceback.tb_frame.f_back))
    with C():
        1 / 0
    """,
    own_tensor="class T(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, f, types, a=(), k=None):\n"
    "        return a[0]",
)
attack(
    "floods",
    "processor time|longer than|memory|Memory",
    prints="text = 'x' * 1_000_000\nwhile True:\n    print(text, flush=True)",
)
attack(
    "tensors without numbers",
    "returned|cannot be used",
    good=False,
    meta="def compute_reward(dof_pos):\n    return dof_pos[:, 0].to('meta')",
    of_a_component="def compute_reward(dof_pos):\n    x = dof_pos[:, 0]\n    return x, {'c': x.sum().to('meta')}",
    sparse="def compute_reward(dof_pos):\n    return dof_pos[:, 0].to_sparse()",
    by_another_return="def compute_reward(dof_pos, k=1.0):\n    if k < 0:\n        return dof_pos[:, 0]\n"
    "    return torch.zeros_like(dof_pos[:, 0], device='meta')",
)
attack(
    "false exits",
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
)
attack(
    "misleading texts",
    "encoding|character|UTF-8|MiB",
    rot13="# coding: rot13\n",
    second_line="'''A reward.'''\n# coding=hex\n",
    half_a_pair="x = '\ud800'\n",
    bytes_that_are_none="x = 1  # \udcff\udcfe\n",
    nul="x = 1\0\n",
    escape="# \x1b[2K\x1b[1A a comment that hides the line above\n",
    carriage_return="import os\r# a comment\n",
    right_to_left="access = 'none\u202e\u2066# if admin\u2069 \u2066'\n",
)

# forged answers, written by code that found the pipe
FORGERY = f"""{UNDO}
import os, json, struct
text = {{text}}
for fd in range(3, 64):
    try:
        os.write(fd, struct.pack("!I", len(text)) + text)
    except OSError:
        pass
os._exit(0)
"""
_NODE = '["load", "f32", [], 0, "dof_pos", 0]'
_FUNCTION = '{"line": 1, "nodes": [%s], "outputs": {"value": [[0], "f32"]}}'


def _forged(nodes: str = _NODE, components: str = "[]", action_dim: str = "12", name: str = "compute_reward") -> str:
    rest = f'"action_dim": {action_dim}, "components": {components}'
    return f'{{"candidate": {{"functions": {{"{name}": {_FUNCTION % nodes}}}, {rest}}}}}'


FORGERIES: dict[str, str] = {
    "no_json": "what is this",
    "empty": "{}",
    "two": '{"candidate": {}, "error": {}}',
    "deep": "[" * 50_000,
    "long_number": '{"error": {"message": "x", "kind": "invalid", "remedy": "", "function": "", "line": '
    + "9" * 50_000
    + "}}",
    "no_message": '{"error": {"message": 3, "line": 1, "function": "", "kind": "invalid", "remedy": ""}}',
    "empty_candidate": '{"candidate": {}}',
    "no_functions": '{"candidate": {"functions": {}, "action_dim": 12, "components": []}}',
    "unknown_function": _forged(name="__init__"),
    "beyond_the_state": _forged('["load", "f32", [], 0, "dof_pos", 100000]'),
    "before_the_state": _forged('["load", "f32", [], 0, "dof_pos", -1]'),
    "unknown_state": _forged('["load", "f32", [], 0, "secrets", 0]'),
    "other_kind": _forged('["load", "i64", [], 0, "dof_pos", 0]'),
    "the_policys_action": _forged('["load", "f32", [], 0, "action", 0]'),
    "beyond_the_action": _forged('["load", "f32", [], 0, "actions", 12]', action_dim="99"),
    "unknown_operation": _forged('["system", "f32", [], 0, "", 0]'),
    "code_as_operation": _forged('["sin(0); system(\\"touch CANARY/was_here\\"); //", "f32", [], 0, "", 0]'),
    "code_as_name": _forged('["load", "f32", [], 0, "dof_pos[0]; system(0); //", 0]'),
    "code_as_kind": _forged('["const", "float x; system(0); //", [], 0, "", 0]'),
    "code_as_column": _forged('["load", "f32", [], 0, "dof_pos", "0]; system(0); //"]'),
    "code_as_value": _forged('["const", "f32", [], "system(0)", "", 0]'),
    "whole_constant_beyond": _forged('["const", "i32", [], 9999999999, "", 0]'),
    "wrong_count": _forged(_NODE + ', ["add", "f32", [0], 0, "", 0]'),
    "later_argument": _forged('["sin", "f32", [0], 0, "", 0]'),
    "true_as_argument": _forged(_NODE + ', ["sin", "f32", [false], 0, "", 0]'),
    "wrong_kinds": _forged(_NODE + ', ["and", "f32", [0, 0], 0, "", 0]'),
    "unhashable": _forged('[["load"], ["f32"], {}, 0, {}, 0]'),
    "too_many_nodes": _forged(", ".join([_NODE] * 10_001)),
    "too_many_components": _forged(components=str(["c"] * 65).replace("'", '"')),
    "component_without_output": _forged(components='["a"]'),
    "two_of_one_name": _forged(components='["a", "a"]'),
    "component_of_numbers": _forged(components="[1]"),
    "width_of_the_action": _forged(action_dim="100000000"),
    "output_of_nothing": _forged().replace("[[0]", "[[1]"),
    "output_of_many": _forged().replace("[[0]", "[[0, 0]"),
    "output_of_bool": _forged('["const", "b", [], 1, "", 0]').replace('"f32"]}', '"b"]}'),
    "output_by_another_name": _forged().replace('"value"', '"value; system(0)"'),
    "large": '{"error": {"message": "' + "x" * (7 << 20) + '", "line": 1, "function": ""}}',
}

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
