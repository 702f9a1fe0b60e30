"""A robot's MJCF as one file with its assets, for MuJoCo without this package."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import re
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np

from envcoder_bench.sim.mujoco_model import load_robot, set_options


class PortableModel(NamedTuple):
    """A model for MuJoCo without this package.

    Attributes:
        xml: its MJCF.
        assets: the contents of the files that it names, by their paths relative to it.
    """

    xml: str
    assets: dict[str, bytes]


def portable_model(
    xml: str | Path,
    dt: float,
    substeps: int,
    effort: bool,
    stiffness: float | None = None,
    damping: float | None = None,
    options: Mapping[str, Any] | None = None,
    beside: Path | None = None,
) -> PortableModel:
    """Return the MJCF file ``xml`` as one text and its assets, for MuJoCo without this package.

    Its time step is ``dt / substeps``. An actuator's control is an effort, N m or N, if ``effort`` is True, and else a
    position target, rad or m. Sensors are left out. ``beside`` is the folder of the copy; assets do not take the names
    of other files there. For other arguments and errors see ``load_robot``.
    """
    robot = load_robot(xml, dt, substeps, stiffness, damping, options)
    spec = mujoco.MjSpec.from_file(str(xml))
    spec.option.timestep = dt / substeps
    set_options(spec, options or {})
    for sensor in list(spec.sensors):
        spec.delete(sensor)
    # controls are efforts or targets, as in the run
    for actuator, kp, kd in zip(spec.actuators, robot.stiffness, robot.damping):
        actuator.gainprm[0] = 1.0 if effort else kp
        actuator.biastype = mujoco.mjtBias.mjBIAS_NONE if effort else mujoco.mjtBias.mjBIAS_AFFINE
        actuator.biasprm[:3] = (0.0, 0.0, 0.0) if effort else (0.0, -kp, -kd)
    model = spec.compile()
    try:
        text, assets = self_contained(spec.to_xml(), spec, Path(xml), beside)
        check_copy(model, text, assets)
    except ValueError as error:
        raise ValueError(f"{xml}: {error}") from error
    return PortableModel(text, assets)


FOLDER = "assets"  # the folder of assets beside the copy
_SIDES = ("file", "fileright", "fileup", "fileleft", "filedown", "filefront", "fileback")  # sides of a texture's cube
_DIRS = {"mesh": "meshdir", "hfield": "meshdir", "skin": "meshdir", "texture": "texturedir"}
_DIGITS = 1e-4  # relative tolerance: MuJoCo writes six digits


@dataclass
class _Source:
    """An MJCF file with assets: the model, or a model that it attaches, with included files.

    Attributes:
        folder: the folder of the file, to which paths of assets are relative.
        names: names of its assets, each with its tag.
    """

    folder: Path
    names: set[tuple[str, str]] = field(default_factory=set)

    def has(self, tag: str, name: str) -> bool:
        """Return whether an asset of the model can be from this file; attached assets have a prefix."""
        return any(kind == tag and name.endswith(suffix) for kind, suffix in self.names)


def self_contained(text: str, spec: Any, xml: Path, beside: Path | None = None) -> tuple[str, dict[str, bytes]]:
    """Return an MJCF text whose assets are in the folder ``FOLDER`` beside it, and their contents by path there.

    Args:
        text: the text that a compiled ``spec`` writes.
        spec: the specification, which MuJoCo read from the file ``xml``.
        beside: the folder of the copy. Files in its ``FOLDER`` with other contents are not replaced: new ones get
            other names.

    Raises:
        ValueError: a file is not found.
    """
    root, sources = ET.fromstring(text), _sources(xml.absolute())
    contents: dict[str, bytes] = {}
    for tag, folder_key in _DIRS.items():
        elements = {asset.name: asset for asset in getattr(spec, "meshes" if tag == "mesh" else f"{tag}s")}
        for node in root.iter(tag):
            for side in [side for side in _SIDES if node.get(side)]:
                name = node.get("name", "")
                path = _find(tag, name, sources, _folder(spec, elements.get(name), folder_key), node.get(side, ""))
                node.set(side, _add_asset(path.name, path.read_bytes(), contents, beside))
    if not contents:
        return text, {}
    for compiler in root.iter("compiler"):
        for key in ("meshdir", "texturedir", "assetdir", "strippath"):
            compiler.attrib.pop(key, None)
    return ET.tostring(root, encoding="unicode") + "\n", contents


def check_copy(model: Any, text: str, contents: dict[str, bytes]) -> None:
    """Check that the copy of a model needs no other file, and equals the model. Raises ValueError."""
    # MuJoCo caches assets in memory by name, with a weak digest of their content: a new folder has new names
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FOLDER).mkdir()
        for name, content in contents.items():
            (Path(folder) / name).write_bytes(content)
        (Path(folder) / "model.xml").write_text(text, encoding="utf-8")
        copy = mujoco.MjModel.from_xml_path(str(Path(folder) / "model.xml"))
    for name in ("body_mass", "body_inertia", "mesh_vert", "hfield_data", "tex_data", "skin_vert"):
        mine, other = (np.asarray(getattr(either, name), dtype=np.float64) for either in (model, copy))
        if mine.shape != other.shape or not np.allclose(mine, other, rtol=_DIGITS, atol=_DIGITS * 1e-3):
            raise ValueError(f"its copy differs in {name}: give the assets of attached models names of their own")


def _sources(xml: Path) -> list[_Source]:
    """Return the sources of a model's assets, itself first."""
    source = _Source(xml.parent)
    sources = [source]
    todo, done = [xml], {xml}
    while todo:
        file = todo.pop(0)
        try:
            nodes = list(ET.parse(file).iter())
        except (ET.ParseError, OSError):  # MuJoCo's parser is more tolerant; all files are then sought in one folder
            continue
        for node in nodes:
            path = node.get("file", "")
            if node.tag in _DIRS and (path or node.get("name")):
                source.names.add((node.tag, node.get("name") or Path(_base(path)).stem))
            elif node.tag == "model" and path:
                sources += _sources(_beside(path, source.folder, file.parent))
            elif node.tag == "include" and path:
                included = _beside(path, source.folder, file.parent)
                todo += [included] * (included not in done)
                done.add(included)
    return sources


def _beside(path: str, *folders: Path) -> Path:
    """Return a file in the first of the folders that has it."""
    candidates = [folder / path for folder in folders]
    return next((candidate for candidate in candidates if candidate.is_file()), candidates[0])


def _folder(spec: Any, element: Any, key: str) -> str:
    """Return ``meshdir`` or ``texturedir`` for an asset; attached models have their own."""
    setting = getattr(getattr(element, "compiler", None), key, None)
    return getattr(spec, key) if setting is None else setting


def _find(tag: str, name: str, sources: list[_Source], folder: str, file: str) -> Path:
    """Return the file of an asset. Raises ValueError."""
    first = [sources[0]]
    if (tag, name) not in sources[0].names:
        first = [source for source in sources[1:] if source.has(tag, name)]
    candidates = [source.folder / folder / file for source in [*first, *sources]]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ValueError(f"{tag} {name}: {candidates[0]} does not exist")


def _base(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _add_asset(name: str, content: bytes, contents: dict[str, bytes], beside: Path | None) -> str:
    """Add a file to ``contents`` and return its path; files whose names differ only in case get a number."""
    stem, suffix = Path(name).stem, Path(name).suffix
    count = 1
    while True:
        path = f"{FOLDER}/{stem}{f'_{count}' if count > 1 else ''}{suffix}"
        namesake = {other.lower(): other for other in contents}.get(path.lower())
        if namesake is not None and contents[namesake] == content:
            return namesake
        if namesake is None and _is_free(path, content, beside):
            contents[path] = content
            return path
        count += 1


def _is_free(path: str, content: bytes, beside: Path | None) -> bool:
    if beside is None or not (beside / path).exists():
        return True
    return (beside / path).is_file() and (beside / path).read_bytes() == content
