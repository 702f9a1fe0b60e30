"""YAML in OmegaConf's dialect, read by LibYAML: OmegaConf takes 0.1 s for the config of a run, LibYAML 2 ms."""

import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.constructor import ConstructorError

_MOST_BRACKETS, _LONGEST_LINE = 500, 1000  # a text nested deeper would overflow the stack of PyYAML's binding
_LEFT = ("&", "!", "\t")  # aliases and tags; LibYAML takes tabs that PyYAML refuses
_FLOAT = re.compile(r"[-+]?\d+(?:_\d+)*(?:\.[\d_]*(?:[eE][-+]?\d+)?|[eE][-+]?\d+)$", re.ASCII)


_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Safe):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        if len({key.value for key, _ in node.value if isinstance(key.value, str)}) < len(node.value):
            raise ConstructorError(None, None, "a key is there twice, or is not a text", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789"))


def plain_yaml(text: str) -> dict[str, Any] | None:
    """Return a mapping of plain values, references as texts; None for what OmegaConf must read, or refuse."""
    if not hasattr(yaml, "CSafeLoader") or any(mark in text for mark in _LEFT):
        return None
    if text.count("[") + text.count("{") > _MOST_BRACKETS or max(map(len, text.split("\n"))) > _LONGEST_LINE:
        return None
    try:
        tree = yaml.load(text, Loader=_Loader)
        return tree if isinstance(tree, dict) and _is_plain(tree) else None
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and _is_plain(each) for key, each in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, float, bool)
