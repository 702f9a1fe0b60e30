"""Loading of candidate files and their functions."""

import ast
import functools
import importlib
import inspect
import itertools
import linecache
import math
import sys
import warnings
import weakref
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

import numpy as np
import torch

from envcoder_bench.core import noise, stream
from envcoder_bench.core.errors import near_matches
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.core.run_log import printer
from envcoder_bench.shaping.contract import (
    MAX_ACTION_DIM,
    Candidate,
    CandidateError,
    CandidateFunction,
    CandidateWarning,
    with_patches,
)
from envcoder_bench.shaping.faults import FAULTS, by_user, from_exception, line_in, one_line
from envcoder_bench.shaping.kinds import ACTION_TYPES, ALIASES, KINDS, REWARD, SECTION_TYPES, SHAPER_TYPES, near_type
from envcoder_bench.shaping.scan import Scan
from envcoder_bench.shaping.scan import parse as parse_tree
from envcoder_bench.shaping.shared import shared_settings
from envcoder_bench.shaping.text import MAX_BYTES, misleading, unreadable
from envcoder_bench.tasks.spec import Functions, Patches

# names that candidate files use without importing
GIVEN: dict[str, object] = {
    "torch": torch, "Tensor": torch.Tensor, "math": math, "np": np,
    "Dict": dict, "List": list, "Optional": Optional, "Tuple": tuple,
}  # fmt: skip
_SCRIPT_NUMBERS = {"FloatType": float, "IntType": int, "BoolType": bool}
_loaded = itertools.count()
# whose objects a candidate does not get
FRAMEWORKS = ("gym", "gymnasium", "isaaclab", "isaaclab_tasks", "legged_gym", "mjlab", "omni", "rsl_rl")
MOST_SHOWN = 200  # characters of a line with a syntax error
Complete = Callable[[Mapping[str, Any], str], tuple[Functions, Patches]]


def load_source(path: Path) -> str:
    """Read a candidate file: UTF-8 with or without a byte order mark, line ends as ``\\n``.

    Invalid content is kept for ``unreadable`` to report: invalid UTF-8 as lone surrogates, and the beginning of a file
    that is too large. Raises OSError.
    """
    with open(path, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    text = content.decode("utf-8", "surrogateescape")
    if len(content) > MAX_BYTES:
        return text.replace("\r", "\n")  # keeps the length: a copy of the file is too long, too
    text = text[1:] if text.startswith("\ufeff") else text
    return text.replace("\r\n", "\n").replace("\r", "\n")


def load_candidate(
    name: str,
    source: str,
    file: str | Path,
    seed: int = 0,
    types: Sequence[str] = (*SHAPER_TYPES, *ALIASES),
    namespace: Mapping[str, object] = GIVEN,
    keeping: Container[str] = (),
    complete: Complete | None = None,
) -> Candidate:
    """Execute ``source`` as a new module, whose errors and tracebacks point into ``file``, and collect its functions.

    Each call creates a new module: load a file once per group, so that groups of one candidate share no global state.
    ``seed`` is for modules that draw random numbers while they are loaded. ``types`` are the functions to look for,
    ``namespace`` the names that it can use without importing them, and ``keeping`` the functions that are known to
    store something for their next call. ``complete`` makes functions of a file's dicts, see ``tasks.spec.Sections``.

    Raises:
        CandidateError: the file does not parse, raises, or violates the contract in a way that is found statically.
    """
    file = str(file)
    # static checks of the text
    scan = _scan(source, file)
    fault = misleading(source)
    if fault is not None:
        warnings.warn(CandidateWarning(replace(fault, file=file)), stacklevel=2)
    if scan.setter is not None:
        line, setting = scan.setter
        does = f"sets {setting}, which changes it" if "." in setting else f"uses {setting}, which changes torch"
        raise CandidateError(f"{does} for all candidates", file, line, remedy="remove it")
    # execute the module
    module = _execute(name, source, file, seed, namespace)
    scan.helpers = helper_names()
    # a task's dicts, and the functions that read the results of their terms
    added: Functions = {}
    patches: Patches = {}
    if complete is not None:
        added, patches = _completed(complete, module, source, scan, file)
    action_dim = _action_dim(module, scan, file)
    functions: dict[str, CandidateFunction] = {}
    for name_in_file in types:
        if name_in_file not in module and name_in_file not in added:
            continue
        call: Any = module.get(name_in_file, added.get(name_in_file))
        shaper_type = ALIASES.get(name_in_file, name_in_file)
        line, random_line, draws = scan.line(name_in_file), scan.random_line(name_in_file), scan.draws(name_in_file)
        if name_in_file not in module:
            line, random_line, draws = min(scan.line(section) for section in patches), None, False
        if shaper_type in functions:
            first = functions[shaper_type].line
            message = f"{name_in_file} and {shaper_type} (line {first}) are one function"
            raise CandidateError(message, file, line, remedy="keep one")
        functions[shaper_type] = CandidateFunction(
            type=shaper_type,
            file=file,
            line=line,
            call=call,
            parameters=_parameters(call, name_in_file, file, line),
            action_dim=action_dim if KINDS[shaper_type].acts else None,
            random_line=random_line,
            draws=draws,
            generator_line=None if random_line is None else scan.generator_line(name_in_file),
            stateful_line=line if shaper_type in keeping else None,
            module=module,
        )
    if functions or not patches:  # the functions beside the dicts of an untrusted file are not loaded here
        dicts = () if complete is None or REWARD not in types else tuple(SECTION_TYPES)
        _refuse_bad_sets(functions, action_dim, scan, file, types, dicts)
    _unload_after(functions.values(), str(module["__name__"]))
    return Candidate(name, file, source, with_patches(functions, patches, scan.line, file), action_dim)


def _completed(
    complete: Complete, module: dict[str, object], source: str, scan: Scan, file: str
) -> tuple[Functions, Patches]:
    """Return the functions that a task makes of the module's dicts, and the dicts. Raises CandidateError."""
    try:
        return complete(module, source)
    except FAULTS as error:
        section, key = getattr(error, "section", ""), getattr(error, "key", "")
        line = line_in(error.__cause__ or error, file) or scan.key_line(section, key)
        message = str(error) if isinstance(error, ValueError) else f"raised {one_line(error)} in the task's code"
        raise CandidateError(message, file, line) from error


@functools.lru_cache(maxsize=64)  # a file is loaded again for each of its groups
def _scan(source: str, file: str) -> Scan:
    return Scan(parse(source, file), loaded=sys.modules)


def parse(source: str, file: str) -> ast.Module:
    """Return the syntax tree of a candidate file.

    Raises:
        CandidateError: it cannot be parsed.
    """
    fault = unreadable(source)
    if fault is not None:
        raise CandidateError.of(replace(fault, file=file))
    try:
        return parse_tree(source)
    except SyntaxError as error:
        text = (error.text or "").strip()
        text = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
        message = f"syntax error: {error.msg}{f' at {text!r}' if text else ''}"
        raise CandidateError(message, file, error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:  # a null byte; code nested too deep
        raise CandidateError(f"cannot be parsed: {error}", file) from None


def _execute(name: str, source: str, file: str, seed: int, namespace: Mapping[str, object]) -> dict[str, object]:
    """Run the file's top level and return its globals."""
    redirect_helpers()
    # TorchScript and tracebacks read the source from linecache; without an mtime the entry is never checked on disk
    lines = [f"{line}\n" for line in source.split("\n")]  # splitlines splits at more characters than Python
    linecache.cache[file] = (len(source), None, lines, file)
    module = ModuleType(f"envcoder_candidate_{next(_loaded)}_{name}")
    module.__file__ = file
    vars(module).update(namespace)
    text = ""
    if "__builtins__" not in namespace:  # the jail has builtins of its own, which print and import nothing
        vars(module)["print"], text = printer(name), source
    sys.modules[module.__name__] = module  # dataclasses and TorchScript classes look up their module
    try:
        draws = stream.seeded(noise.stream_seed(seed, 0, Purpose.COMMAND))
        with shared_settings(_scan(source, file).imported, text), draws:
            exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    except BaseException as error:
        if by_user(error, file):
            raise
        fault = from_exception(error, None, file).fault
        if isinstance(error, ModuleNotFoundError) and str(error).startswith("No module named"):
            fault = replace(fault, remedy=_missing(error.name or ""))
        raise CandidateError.of(fault) from error
    return vars(module)


def _missing(module: str) -> str:
    """Return what to do about a module that cannot be imported."""
    framework = module.partition(".")[0]
    if framework in FRAMEWORKS:
        return f"read the keys of the state instead of {framework} (docs/coming_from.md)"
    return "a candidate is one file: torch, numpy and isaacgym.torch_utils can be imported"


def _unload_after(functions: Iterable[CandidateFunction], module: str) -> None:
    """Delete a module, and its tensors, once its last function is garbage."""
    alive = {id(function) for function in functions}

    def drop(function: int) -> None:
        alive.discard(function)
        if not alive:
            sys.modules.pop(module, None)

    for function in functions:
        weakref.finalize(function, drop, id(function)).atexit = False


def _parameters(call: Any, name: str, file: str, line: int) -> tuple[inspect.Parameter, ...]:
    if not callable(call):
        raise CandidateError(f"{name} must be a function, not {type(call).__name__}", file, line)
    if inspect.isclass(call):
        raise CandidateError(f"{name} must be a function or an object, not a class", file, line)
    unawaited = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(call) for is_kind in unawaited):
        remedy = "write it without async and yield"
        raise CandidateError("must return its result at once", file, line, name, remedy=remedy)
    if isinstance(call, torch.nn.Module):
        call = _called_by(call, name, file, line)
    if isinstance(call, (torch.jit.ScriptFunction, torch.ScriptMethod)):
        return _script_parameters(call)
    try:
        return tuple(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):
        raise CandidateError("has no readable parameters", file, line, name, remedy="define it with def") from None


def _called_by(module: torch.nn.Module, name: str, file: str, line: int) -> Any:
    """Return what receives the arguments of a call of ``module``: its ``forward``, or a ``__call__`` of its class."""
    if not isinstance(module, torch.jit.ScriptModule):
        if type(module).__call__ is not torch.nn.Module.__call__:
            return module
        if getattr(module.forward, "__func__", None) is torch.nn.Module.forward:
            raise CandidateError(f"{name} is a {type(module).__name__}, which has no forward", file, line)
    return module.forward


def _script_parameters(call: Any) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a TorchScript function or method, which ``inspect`` cannot see."""
    return tuple(
        inspect.Parameter(
            argument.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=argument.default_value if argument.has_default_value() else inspect.Parameter.empty,
            annotation=_SCRIPT_NUMBERS.get(argument.type.kind(), inspect.Parameter.empty),
        )
        for argument in call.schema.arguments[isinstance(call, torch.ScriptMethod) :]  # without self
    )


def _action_dim(module: dict[str, object], scan: Scan, file: str) -> int | None:
    value = module.get("ACTION_DIM")
    if value is None or (type(value) is int and 1 <= value <= MAX_ACTION_DIM):
        return value
    message = f"ACTION_DIM must be an int from 1 to {MAX_ACTION_DIM}, not {value!r}"
    raise CandidateError(message, file, scan.line("ACTION_DIM"))


def _refuse_bad_sets(
    functions: dict[str, CandidateFunction],
    action_dim: int | None,
    scan: Scan,
    file: str,
    types: Sequence[str],
    dicts: Sequence[str],
) -> None:
    # without a function: name what the file defines, and near matches
    if not functions:
        defined_here = {name: x for name, x in scan.definitions.items() if name not in scan.modules}
        near = {name: near_type(name, types) or near_matches(name, dicts) for name in defined_here}
        defined = [name for name, x in defined_here.items() if near[name] or isinstance(x[-1], ast.FunctionDef)]
        hints = [f"{name} (line {scan.line(name)}){near[name]}" for name in defined]
        has = f"; it has {', '.join(hints)}" if hints else ""
        sections = [name for name in SECTION_TYPES if name in scan.definitions]
        if sections and not dicts and REWARD in types:
            has += f"; the dict {sections[0]} is for tasks of mjlab and Isaac Lab"
        wanted = ", ".join([*(kind for kind in types if kind not in ALIASES), *dicts])
        raise CandidateError(f"{'defines none of' if len(types) > 1 else 'does not define'} {wanted}{has}", file)
    # two functions of one kind
    by_stage: dict[str, CandidateFunction] = {}
    for name, function in functions.items():
        other = by_stage.setdefault(KINDS[name].stage, function)
        if other is not function:
            raise CandidateError(f"defines both {other.type} and {name}", file, function.line, remedy="keep one")
    if action_dim is not None and not any(KINDS[name].acts for name in functions):
        message = f"ACTION_DIM is the width of the action of {' or '.join(ACTION_TYPES)}"
        raise CandidateError(message, file, scan.line("ACTION_DIM"), remedy="define one or remove it")


# Imports of IsaacGymEnvs' tensor helpers lead to our own if Isaac Gym is not installed. The finder is last in
# sys.meta_path, so that an installed original takes precedence. Without one, only isaacgym.torch_utils can be imported:
# code that tests for Isaac Gym should look for isaacgym.gymapi.

OURS = "envcoder_bench.torch_utils"
HELPER_MODULES = ("isaacgym.torch_utils", "isaacgymenvs.utils.torch_jit_utils")
PACKAGES = ("isaacgym", "isaacgymenvs", "isaacgymenvs.utils")


class _Redirect(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in HELPER_MODULES or fullname in PACKAGES:
            return ModuleSpec(fullname, self, is_package=fullname in PACKAGES)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in HELPER_MODULES:
            sys.modules[module.__name__] = importlib.import_module(OURS)


def redirect_helpers(first: bool = False) -> None:
    """Install the redirection, also of installed originals if ``first``; a second call does nothing."""
    if not any(isinstance(finder, _Redirect) for finder in sys.meta_path):
        sys.meta_path.insert(0 if first else len(sys.meta_path), _Redirect())


def helper_names() -> frozenset[str]:
    """Return the names of our helper module; none if an original was imported, which uses torch's generators."""
    ours = importlib.import_module(OURS)
    if any(sys.modules.get(name, ours) is not ours for name in HELPER_MODULES):
        return frozenset()
    return frozenset(name for name, value in vars(ours).items() if callable(value) and not name.startswith("_"))
