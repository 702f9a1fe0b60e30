"""Immutable settings: nested mappings with attribute access and dotted keys, and typed keys."""

import math
import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic.fields import FieldInfo

from envcoder_bench.core.errors import UnknownKey, UserError, near_matches


class Settings(Mapping[str, Any]):
    """A frozen mapping whose keys are attributes, too; mappings in it are Settings, lists are tuples."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", {key: _frozen(value) for key, value in values.items()})

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):  # copy and pickle read such names before the values are set
            raise AttributeError(key)
        try:
            return self._values[key]
        except KeyError:
            raise AttributeError(f"unknown key {key}; the keys are {', '.join(self._values)}") from None

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
    """Return nested mappings, keys and sequences as dicts and lists, which can be changed."""
    if isinstance(value, Keys):
        return value.plain()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


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


# typed keys


class Expected(NamedTuple):
    """A description of the values that a key takes, where its type does not say it."""

    words: str


def as_tuple(value: Any) -> Any:
    """Take lists for tuples, which cannot be changed."""
    return tuple(value) if isinstance(value, list) else value


def _mapping(value: Any) -> Settings:
    if not isinstance(value, Mapping):
        raise ValueError("not a mapping")
    return value if isinstance(value, Settings) else Settings(value)


Tree = Annotated[Settings, BeforeValidator(_mapping), PlainSerializer(plain)]
Names = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
Numbers = Annotated[tuple[int | float, ...], BeforeValidator(as_tuple)]
Count = Annotated[int, Field(ge=1)]
Number = int | float  # a number in a file: 2 stays an integer


def key(default: Any, description: str) -> Any:
    """Return the default of a key with its description."""
    return Field(default=default, description=description)


class Keys(BaseModel):
    """Keys of a config: frozen, with strict types; unknown ones are errors.

    Attributes:
        file: the file with the defaults, for messages.
    """

    file: ClassVar[str] = ""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)

    def plain(self) -> dict[str, Any]:
        """Return the keys as dicts and lists, in their order."""
        return {key: plain(value) for key, value in self}

    @classmethod
    def checked(cls, values: Mapping[str, Any]) -> Self:
        """Return the keys with these values, and defaults for absent ones. Raises UserError naming the key."""
        try:
            return cls.model_validate(plain(values))
        except ValidationError as error:
            raise UserError(_message(cls, values, error)) from None


def fields(model: type[Keys], prefix: str = "") -> dict[str, FieldInfo]:
    """Return the fields of a config by dotted keys, groups of keys before their own keys; ``*`` is any name."""
    flat: dict[str, FieldInfo] = {}
    for key, info in model.model_fields.items():
        flat[f"{prefix}{key}"] = info
        group = _group(info)
        if group is not None:
            flat.update(fields(group, f"{prefix}{key}.*." if _is_named(info) else f"{prefix}{key}."))
    return flat


def _group(info: FieldInfo) -> type[Keys] | None:
    """Return the model of a key that has keys of its own, or names with keys of their own."""
    kind = get_args(info.annotation)[-1] if _is_named(info) else info.annotation
    kind = next((member for member in get_args(kind) if member is not NoneType), kind)  # the part of X | None
    return kind if isinstance(kind, type) and issubclass(kind, Keys) else None


def _is_named(info: FieldInfo) -> bool:
    return get_origin(info.annotation) is dict


def _message(whole: type[Keys], values: Mapping[str, Any], error: ValidationError) -> str:
    """Return a message for the first invalid value: its key, what it must be, and the value. Raises UnknownKey."""
    first, model = error.errors()[0], whole
    path, value = "", values
    parts = map(str, first["loc"])
    # go down the groups of keys to the wrong value
    for part in parts:
        info = model.model_fields.get(part)
        if info is None:
            key = f"{path}{part}"
            hint = near_matches(key, [*fields(whole)])
            raise UnknownKey(key, f"unknown key '{key}'{hint}; the keys are those of {whole.file}") from None
        if part not in value:
            return f"{path}{part} is missing"
        path, value, group, words = f"{path}{part}", value[part], _group(info), words_for(info)
        # the user chooses the names in this group
        if group is not None and _is_named(info) and isinstance(value, Mapping):
            name = next(parts)
            path, value, words = f"{path}.{name}", value[name], _phrases(group, ())[0]
        if group is None or not isinstance(value, Mapping):
            reason = first.get("ctx", {}).get("error")
            if isinstance(reason, ValueError) and info.annotation is not Settings:
                return str(reason)
            return f"{path} must be {words}, got {plain(value)}{_near(first)}"
        model, path = group, f"{path}."
    return f"{path}: {first['msg']}"


def _near(error: Any) -> str:
    """Return near matches of a word among the words that a key takes."""
    is_word = error["type"] == "literal_error" and isinstance(error["input"], str)
    return near_matches(error["input"], re.findall(r"'(.*?)'", error["ctx"]["expected"])) if is_word else ""


def words_for(info: FieldInfo) -> str:
    """Return the values that a key takes as words: ``a whole number of at least 1, or null``."""
    annotation = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
    return ", or ".join(_phrases(annotation, ()))


_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_WORDS = {bool: "true or false", str: "a text", Settings: "a mapping of keys to values", NoneType: "null"}


def _phrases(annotation: Any, metadata: tuple[Any, ...]) -> list[str]:
    """Return a phrase for each kind of value in an annotation; ``metadata`` comes from the annotations around it."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _phrases(args[0], (*args[1:], *metadata))
    words = next((entry.words for entry in metadata if isinstance(entry, Expected)), None)
    if words is not None:
        return [words]
    # numbers with their bounds
    if annotation == Number or annotation in (int, float):
        constraints = [x for entry in metadata for x in getattr(entry, "metadata", (entry,))]
        bounds = [(words, getattr(x, name)) for name, words in _BOUNDS.items() for x in constraints if hasattr(x, name)]
        limits = " and ".join(f"{words} {bound:,.10g}" for words, bound in bounds if math.isfinite(bound))
        limits = f"of {limits}" if limits.startswith("at") else limits
        return [f"{'a whole number' if annotation is int else 'a number'} {limits}".strip()]
    # alternatives
    if origin in (Union, UnionType):
        return [phrase for member in args for phrase in _phrases(member, metadata)]
    if origin is Literal:
        *others, last = map(str, args)
        return [f"{', '.join(others)} or {last}" if others else last]
    if origin is dict:
        return ["a mapping of names to their values"]
    if isinstance(annotation, type) and issubclass(annotation, Keys):
        return [f"a mapping with the keys {', '.join(annotation.model_fields)}"]
    return [_WORDS.get(annotation, "a list")]
