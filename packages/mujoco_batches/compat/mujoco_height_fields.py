"""Contacts of spheres and capsules with height fields, for MuJoCo's C engine: those of ``sim/contacts``.

Replaces entries of the table of collision functions in MuJoCo's library, ``mjCOLLISIONFUNC``, in the process, by
``height_field_contacts.cpp``, compiled by Warp. That code needs the places of a few pointers in MuJoCo's structures,
which are looked up. Other shapes stay with MuJoCo.

Why: MuJoCo collides a shape with a prism under each triangle. A foot then also touches the edges between cells of one
slope, with normals that lean against its motion, and robots trip.

Upstream: google-deepmind/mujoco issue 2883 (closed) is about balls that such prisms pull in; no issue about the edges
was found.

Before the functions are used, the declarations in MuJoCo's header are compared with those expected, and a ball on a
slope must have one contact.
"""
# Warp evaluates annotations, so this module must not postpone them. MuJoCo's bindings and Warp's kernels have no types.
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false, reportIndexIssue=false

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from mujoco_batches.compat import warn_once

_SOURCE = Path(__file__).with_name("height_field_contacts.cpp")
_HFIELD = int(mujoco.mjtGeom.mjGEOM_HFIELD)
_SHAPES = (int(mujoco.mjtGeom.mjGEOM_SPHERE), int(mujoco.mjtGeom.mjGEOM_CAPSULE))
_KINDS = int(mujoco.mjtGeom.mjGEOM_SDF) + 1  # rows and columns of MuJoCo's table
_kept: list = []  # kernels, whose code is unloaded with them
_MODEL = {
    **{name: "int32" for name in ("geom_type", "geom_dataid", "hfield_nrow", "hfield_ncol", "hfield_adr")},
    **{"geom_size": "float64", "hfield_size": "float64", "hfield_data": "float32"},
}
_DATA = {"geom_xpos": "float64", "geom_xmat": "float64"}
# before the pointers; most of MjData's are statistics of solvers. In MuJoCo 4.0 the places are 304 and 20,114
_MOST_WORDS = {"mjModel": 1 << 10, "mjData": 1 << 15}
_SIGNATURE = "(const mjModel* m, mjData* d, mjPreContact* con, int g1, int g2, mjtNum margin);"
_CONTACT = "typedef struct mjPreContact_ { mjtNum dist; mjtNum pos[3]; mjtNum normal[3]; mjtNum tangent[3]; }"

# a ball 1 mm deep in a slope of 0.3, 1 mm beside an edge between two of its cells
_BALL = """<mujoco>
<asset><hfield name="f" nrow="3" ncol="3" size="1 1 0.6 1" elevation="0 .5 1 0 .5 1 0 .5 1"/></asset>
<worldbody>{}<geom type="hfield" hfield="f"/><body pos="{}"><freejoint/><geom size="0.03"/></body></worldbody>
</mujoco>"""
_OTHERS = "<light/><camera/><site/><body><joint/><geom size='0.1 0.1' type='capsule' pos='0 0 9'/></body>"
_UP = np.array([-0.3, 0.0, 1.0]) / np.hypot(0.3, 1.0)
_CENTER = np.array([0.001, 0.3, 0.3003]) + 0.029 * _UP


def install() -> None:
    """Let MuJoCo use exact contacts in this process from now on; warn once if that cannot be."""
    reason = _try_to_install()
    if reason:
        consequence = "contacts with height fields are MuJoCo's own, on which robots trip; results differ from those of"
        warn_once("MuJoCo's library", reason, f"{consequence} other machines (docs/eval_policies.md)")


@contextlib.contextmanager
def mujocos_own() -> Iterator[None]:
    """Let MuJoCo use its own contacts within a ``with`` block."""
    _try_to_install()  # else the first simulator in the block would do it, and its work would be undone afterwards
    table = _table()
    now = [table[_HFIELD][shape] for shape in _SHAPES]
    _put(_mujocos())
    try:
        yield
    finally:
        _put(now)


@functools.lru_cache(maxsize=1)
def _try_to_install() -> str:
    """Return why it cannot be, or nothing."""
    if not _fits(mujoco.__file__):
        return f"the collision functions of MuJoCo {mujoco.__version__} have another signature than 4.0's"
    try:
        usual = _mujocos()
        _put([_compiled()] * len(_SHAPES))
        try:
            contacts = _contacts_of_ball()
        except BaseException:
            _put(usual)
            raise
    except Exception as error:  # no compiler, another layout of the structures: MuJoCo's contacts remain
        return f"{type(error).__name__}: {error}"
    if len(contacts) == 1 and np.allclose(contacts[0], [-0.001, *_UP], atol=1e-6):
        return ""
    _put(usual)
    return f"a ball on a slope has the contacts {contacts}"


def _contacts_of_ball() -> list[tuple]:
    """Return distance and normal of the contacts of the ball in the slope, by the functions in MuJoCo's table."""
    model = mujoco.MjModel.from_xml_string(_BALL.format(_OTHERS, " ".join(map(str, _CENTER))))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return [(contact.dist, *contact.frame[:3]) for contact in data.contact]


def _fits(package: str) -> bool:
    """Return whether MuJoCo's own header declares what the C++ code expects."""
    header = Path(package).parent / "include" / "mujoco" / "mjdata.h"
    if not header.is_file():
        return False
    lines = (line.split("//")[0] for line in header.read_text(encoding="utf-8").splitlines())
    text = " ".join(" ".join(lines).split())
    return f"typedef int (*mjfCollision){_SIGNATURE}" in text and _CONTACT in text


@functools.lru_cache(maxsize=1)
def _table() -> Any:
    """Return MuJoCo's table of collision functions, by the kinds of two geoms, the smaller first."""
    library = ctypes.CDLL(_library())
    return (ctypes.c_void_p * _KINDS * _KINDS).in_dll(library, "mjCOLLISIONFUNC")


def _library() -> str:
    """Return the path of the library of MuJoCo that the bindings have loaded."""
    folder = Path(mujoco.__file__).parent
    paths = sorted(path for pattern in ("libmujoco*", "mujoco.dll") for path in folder.glob(pattern))
    if len(paths) != 1:
        raise OSError(f"there are {len(paths)} libraries of MuJoCo in {folder}")
    return str(paths[0])


@functools.lru_cache(maxsize=1)
def _mujocos() -> tuple:
    """Return MuJoCo's own functions; the first call is before ``_put``."""
    return tuple(_table()[_HFIELD][shape] for shape in _SHAPES)


def _put(functions: Any) -> None:
    for shape, function in zip(_SHAPES, functions):
        _table()[_HFIELD][shape] = function


@functools.lru_cache(maxsize=1)
def _compiled() -> int:
    """Return the address of the compiled function; Warp keeps it in its cache for later processes."""
    import warp as wp

    from mujoco_batches.compat.warp_start import start_warp

    start_warp()
    numbers = {f"WORD_{name}": word for name, word in _words().items()}
    numbers["CAPSULE"] = int(mujoco.mjtGeom.mjGEOM_CAPSULE)
    enum = ", ".join(f"{name} = {number}" for name, number in numbers.items())

    @wp.func_native(f"enum {{ {enum} }};\n{_SOURCE.read_text(encoding='utf-8')}")
    def address() -> wp.uint64: ...

    # no fused multiply-add: the same numbers on every machine
    @wp.kernel(enable_backward=False, module="unique", module_options={"fuse_fp": False})
    def write_address(out: wp.array(dtype=wp.uint64)):
        out[0] = address()

    out = wp.zeros(1, dtype=wp.uint64, device="cpu")
    wp.launch(write_address, dim=1, outputs=[out], device="cpu")
    _kept.append(write_address)
    return int(out.numpy()[0])


def _words() -> dict[str, int]:
    """Return the places of the pointers in MjModel and MjData, in words of 8 bytes."""
    model = mujoco.MjModel.from_xml_string(_BALL.format("", "0 0 0"))
    return {**_places("mjModel", model, _MODEL), **_places("mjData", mujoco.MjData(model), _DATA)}


def _places(structure: str, live: Any, dtypes: dict[str, str]) -> dict[str, int]:
    """Return where all the arrays' addresses lie as far apart as MuJoCo's description of the structure says.

    One address alone says too little, because an empty array has that of another one.
    """
    from mujoco.introspect.structs import STRUCTS  # slow to import

    number = {field.name: k for k, field in enumerate(STRUCTS[structure].fields)}
    arrays = {name: getattr(live, name) for name in dtypes}
    for name, dtype in dtypes.items():
        if arrays[name].dtype != dtype:
            raise TypeError(f"MuJoCo's {name} is {arrays[name].dtype}, not {dtype}")
    start = min(number[name] for name in dtypes)
    words = ctypes.cast(live._address, ctypes.POINTER(ctypes.c_uint64))
    addresses = {number[name] - start: array.ctypes.data for name, array in arrays.items()}
    for first in range(_MOST_WORDS[structure]):
        if all(words[first + k] == address for k, address in addresses.items()):
            return {name: first + number[name] - start for name in dtypes}
    raise LookupError(f"MuJoCo's {structure} is not as its description says")
