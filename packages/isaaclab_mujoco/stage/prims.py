"""The stage as a dict of paths.

Environments are alike, so that the stage has only the prims of the first one, ``/World/envs/env_0``; queries return
those of the others as copies. What is spawned is recorded for the simulation, which is built when it starts.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isaaclab_mujoco.fakes import Fake

_ENV = re.compile(r"^/World/envs/env_(\.\*|\*|\[0-9\]\+|\d+)(?=/|$)")
FIRST = "/World/envs/env_0"


class Prim:
    """A path with what is known of it; it is its own path, as ``GetPath`` returns it."""

    def __init__(self, path: str, kind: str = "Xform", **data: Any) -> None:
        self.path, self.kind, self.data = path, kind, data

    def GetPath(self) -> "Prim":
        return self

    GetPrimPath = GetPrim = GetPath

    @property
    def pathString(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    def GetName(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    def GetTypeName(self) -> str:
        return self.kind

    def IsValid(self) -> bool:
        return True

    def IsInstance(self) -> bool:
        return False

    def GetParent(self) -> Any:
        return STAGE.GetPrimAtPath(self.path.rsplit("/", 1)[0])

    def GetChildren(self) -> list["Prim"]:
        depth = self.path.count("/") + 1
        return [prim for prim in STAGE.below(self.path) if prim.path.count("/") == depth]

    def HasAPI(self, api: Any) -> bool:
        """Return whether a schema applies; those of the physics are known by their names."""
        held = {
            "ArticulationRootAPI": "articulation" in self.data,
            "RigidBodyAPI": "body" in self.data,
            "PhysxContactReportAPI": bool(self.data.get("contacts")),
            "PhysxSceneAPI": "scene" in self.data,
        }
        return held.get(getattr(api, "__name__", ""), False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Fake()


@dataclass
class Spawned:
    """An articulation or rigid object of an environment, or a shape that does not move."""

    path: str
    cfg: Any
    asset: Any
    position: tuple[float, ...]
    orientation: tuple[float, ...]  # wxyz


@dataclass
class Ground:
    """A plane (``mesh`` is None) or a mesh of triangles, with its material's config or None."""

    path: str
    material: Any
    mesh: Any = None
    height: float = 0.0


@dataclass
class Stage:
    """The prims, and what was spawned.

    Attributes:
        prims: by path, those of the first environment and global ones.
        spawned, grounds: in the order in which they were made.
        sensors: the configs of contact sensors.
        origins: ``(num_envs, 3)`` of the environments, set by the cloner.
    """

    prims: dict[str, Prim] = field(default_factory=dict)
    spawned: list[Spawned] = field(default_factory=list)
    grounds: list[Ground] = field(default_factory=list)
    sensors: list[Any] = field(default_factory=list)
    origins: np.ndarray = field(default_factory=lambda: np.zeros((1, 3)))

    def clear(self) -> None:
        self.prims, self.spawned, self.grounds, self.sensors = {}, [], [], []
        self.origins = np.zeros((1, 3))

    @property
    def num_envs(self) -> int:
        return len(self.origins)

    def add(self, path: Any, kind: str = "Xform", **data: Any) -> Prim:
        """Add a prim; a path of any or all environments is that of the first one."""
        path = template(str(path))
        self.prims[path] = Prim(path, kind, **data)
        return self.prims[path]

    def find(self, pattern: str) -> list[Prim]:
        """Return the prims of all environments whose path matches, token by token, an expression of Isaac Lab."""
        tokens, found = [re.compile(token) for token in pattern.strip("/").split("/")], []
        prims = [p for p in self.prims.values() if p.path.count("/") == len(tokens)]
        for env in range(self.num_envs):
            for prim in prims:
                copied = prim.path.startswith(FIRST)
                if env and not copied:
                    continue
                path = of_env(prim.path, env)
                if all(token.fullmatch(part) for token, part in zip(tokens, path.strip("/").split("/"))):
                    found.append(prim if path == prim.path else Prim(path, prim.kind, **prim.data))
        return found

    def below(self, path: Any, predicate: Callable[[Prim], bool] | None = None) -> list[Prim]:
        """Return the prim of a path and those below it."""
        path = template(str(path))
        prims = [p for q, p in self.prims.items() if q == path or q.startswith(path + "/")]
        return [p for p in prims if predicate is None or predicate(p)]

    # what code asks of a stage of USD

    def DefinePrim(self, path: Any, kind: str = "Xform") -> Prim:
        path = template(str(path))
        return self.prims.get(path) or self.add(path, kind)

    def GetPrimAtPath(self, path: Any) -> Any:
        return self.prims.get(template(str(path))) or NO_PRIM

    def Traverse(self) -> list[Prim]:
        return list(self.prims.values())

    def GetRootLayer(self) -> Any:
        return Fake()

    GetPseudoRoot = GetSessionLayer = GetRootLayer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Fake()


class _NoPrim(Fake):
    """What a path without a prim gives: false and not valid."""

    dotted = "pxr.Usd.Prim"

    def IsValid(self) -> bool:
        return False


STAGE = Stage()
NO_PRIM = _NoPrim()


def template(path: str) -> str:
    """Return a path of any environment as that of the first one."""
    return _ENV.sub(FIRST, path)


def of_env(path: str, env: int) -> str:
    """Return a path of the first environment as that of another one."""
    return path.replace(FIRST, f"/World/envs/env_{env}", 1) if path.startswith(FIRST) else path
