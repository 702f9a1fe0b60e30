"""Settings: nested mappings with attribute access that cannot be changed, and dotted keys."""

from collections.abc import Iterator, Mapping
from typing import Any


class Settings(Mapping[str, Any]):
    """A frozen mapping whose keys are attributes, too; mappings in it are Settings, lists are tuples."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", {key: _frozen(value) for key, value in values.items()})

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):  # asked for by copy and pickle before there are values
            raise AttributeError(key)
        try:
            return self._values[key]
        except KeyError:
            raise AttributeError(f"there is no key {key}; there are {', '.join(self._values)}") from None

    def __setattr__(self, key: str, value: Any) -> None:
        raise AttributeError(f"{key}: settings cannot be changed: make new ones with merged()")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(plain(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Settings, (self._values,)

    def __copy__(self) -> "Settings":
        return self

    def __deepcopy__(self, _memo: Any) -> "Settings":
        return self


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value if isinstance(value, Settings) else Settings(value)
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def plain(value: Any) -> Any:
    """Return nested mappings and sequences as dicts and lists, which can be changed."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    """Return ``base`` with the values of ``changes``; mappings that are in both are merged."""
    result = dict(base)
    for key, value in changes.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = merged(before, value)
        result[key] = value
    return Settings(result)


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted keys as nested mappings."""
    tree: dict[str, Any] = {}
    for key, value in leaves.items():
        *path, last = key.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return tree


def select(tree: Any, key: str, default: Any = None) -> Any:
    """Return the value of a dotted key, or ``default`` if it is missing."""
    node = tree
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return default
        node = node[part]
    return node


def dotted(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings by dotted keys; empty mappings and lists are leaves."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            leaves.update(dotted(value, f"{prefix}{key}."))
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def dotted_keys(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return all keys of nested mappings in dotted form, leaves and branches."""
    keys: list[str] = []
    for key, value in tree.items():
        keys.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            keys += dotted_keys(value, f"{prefix}{key}.")
    return keys
