"""Settings as YAML, in OmegaConf's dialect: 1e-3 is a number, and ``${key}`` refers to another key."""

import contextlib
import functools
import math
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import CollectionNode, MarkedYAMLError, Node, SafeLoader, YAMLError, compose, safe_load

from envcoder_bench.core.errors import message_line
from envcoder_bench.core.settings import Settings, plain

_MOST_VALUES = 100_000  # most values of a text with aliases
_REFERENCE = re.compile(r"(?<!\\)(?:\\\\)*\$\{")  # not escaped by a backslash


def read_yaml(path: Path) -> Settings:
    """Read a file with a YAML mapping. Raises ValueError with file and line, or OSError."""
    with faults_of(path):
        return Settings(_resolved(_load(path.read_text(encoding="utf-8"))))


def parse_yaml(text: str) -> Settings:
    """Parse what ``to_yaml`` wrote, which has no references. Raises ValueError with the line.

    Ten lines with references can stand for a billion values, and the text may be somebody else's.
    """
    with faults_of(None):
        return _recorded(text)


@functools.lru_cache(maxsize=64)  # each reader of a run's folder parses its config again; settings take 10 KB
def _recorded(text: str) -> Settings:
    tree = _load(text)
    _refuse_references(OmegaConf.to_container(tree))
    return Settings(_resolved(tree))


def parse_plain(text: str) -> Any:
    """Parse any YAML, without references. Raises ValueError with the line."""
    with faults_of(None):
        _refuse_bombs(text)
        return safe_load(text)


def unresolved(text: str) -> DictConfig | ListConfig:
    """Parse YAML, with references that are not yet resolved. Raises what ``faults_of`` converts."""
    _refuse_bombs(text)
    return OmegaConf.create(text)


def read_leaves(path: Path) -> dict[str, Any]:
    """Read the values of a YAML mapping by dotted keys; a reference to another file remains text.

    Raises ValueError with file and line, or OSError.
    """
    with faults_of(path):
        return _leaves(_load(path.read_text(encoding="utf-8")))


def to_yaml(tree: Mapping[str, Any]) -> str:
    """Return nested mappings as YAML; ``${`` in a text is escaped, so that it is not read as a reference."""
    return "".join(_section(key, pickle.dumps(value)) for key, value in plain(tree).items()) or "{}\n"


@functools.lru_cache(maxsize=64, typed=True)  # most sections of a process' runs are equal; the keys 1 and True are not
def _section(key: str, value: bytes) -> str:
    return OmegaConf.to_yaml(OmegaConf.create(_escaped({key: pickle.loads(value)})))


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _escaped(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_escaped, value))
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value


def overridden(settings: Settings, word: str) -> Settings:
    """Return the settings with a ``key=value``. Raises ValueError with one line if it is malformed."""
    tree = OmegaConf.create(plain(settings))
    try:
        tree.merge_with_dotlist([word])
        return Settings(_resolved(tree))
    except (OmegaConfBaseException, YAMLError, TypeError, AttributeError) as error:
        raise ValueError(f"cannot read the override {word}: {str(error).splitlines()[0]}") from error


def _refuse_bombs(text: str) -> None:
    """Raise ValueError if aliases (``*name``) multiply the values of a text: 700 bytes may stand for a billion."""
    if "&" not in text or "*" not in text:
        return
    sizes: dict[int, float] = {}

    def size(node: Node | tuple[Node, Node]) -> float:
        if id(node) not in sizes:
            sizes[id(node)] = math.inf  # until its parts are counted: a node within itself is infinite
            parts = node if isinstance(node, tuple) else node.value if isinstance(node, CollectionNode) else ()
            sizes[id(node)] = 1 + sum(map(size, parts))
        return sizes[id(node)]

    tree = compose(text, Loader=SafeLoader)
    if tree is not None and size(tree) > _MOST_VALUES:
        raise ValueError(f"its aliases stand for more than {_MOST_VALUES:,} values")


@functools.lru_cache(maxsize=64)  # the files of cfg/ are read for each config
def _load(text: str) -> DictConfig:
    """Parse a mapping, which no reader changes."""
    tree = unresolved(text)
    if not isinstance(tree, DictConfig):
        raise ValueError("it is not a YAML mapping of keys to values")
    return tree


def _resolved(tree: DictConfig | ListConfig) -> dict[str, Any]:
    values: Any = OmegaConf.to_container(tree, resolve=True)
    return values


def _refuse_references(value: Any, key: str = "") -> None:
    if isinstance(value, str) and _REFERENCE.search(value):
        raise ValueError(f"{key} is a reference, which a run does not write")
    for name, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        _refuse_references(part, f"{key}.{name}" if key else str(name))


def _leaves(tree: DictConfig, prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    texts: Any = OmegaConf.to_container(tree, resolve=False)
    for key, text in texts.items():
        try:
            value = tree[key]
        except OmegaConfBaseException:  # a reference to another file
            value = text
        if isinstance(value, DictConfig) and value:
            leaves.update(_leaves(value, f"{prefix}{key}."))
        else:
            leaves[f"{prefix}{key}"] = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    return leaves


@contextlib.contextmanager
def faults_of(path: Path | None) -> Iterator[None]:
    """Convert errors in a YAML text to ValueErrors with one line, which begins with the file if there is one."""
    where = "" if path is None else f"{path}: "
    try:
        yield
    except MarkedYAMLError as error:
        if error.problem_mark is not None:
            line = error.problem_mark.line + 1
            where = f"line {line}: " if path is None else f"{path}:{line}: "
        raise ValueError(f"{where}{error.problem}") from error
    except RecursionError as error:
        raise ValueError(f"{where}it is nested too deeply") from error
    except (YAMLError, OmegaConfBaseException, ValueError) as error:  # a UnicodeDecodeError is a ValueError
        raise ValueError(f"{where}{message_line(error)}") from error
