"""The common parts of the command lines: the parser, flags for keys of cfg/, and key=value overrides."""

import argparse
import difflib
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from envcoder_bench import __version__
from envcoder_bench.cli.json_output import FLAG, is_json, json_output, put
from envcoder_bench.cli.overrides import split_overrides
from envcoder_bench.core import SIMULATORS
from envcoder_bench.core.errors import UserError, near_matches, user_input
from envcoder_bench.core.files import disk_trouble
from envcoder_bench.core.folders import PACKAGE
from envcoder_bench.core.plain_text import one_line, own_codes, visible
from envcoder_bench.core.run_log import RepeatHandler, listening
from envcoder_bench.core.settings import Keys, fields
from envcoder_bench.core.shell import invocation
from envcoder_bench.core.words import join_words, with_addresses
from envcoder_bench.run.spec import RunConfig, without_aliases
from envcoder_bench.sources.registry import check_task_name, task_names, with_task_config

VERSION = f"EnvCoderBench {__version__}"


class Parser(argparse.ArgumentParser):
    """A parser that names near matches of unknown flags and raises UserError; help keeps its line breaks.

    Help shows the command as it was started, also for COMMAND in ``epilog``, so that its examples can be pasted.

    Args:
        prog: the command, and its verb if it has verbs: ``"envcoder-bench list"``.
    """

    def __init__(self, prog: str, description: str, epilog: str) -> None:
        name, _, verb = prog.partition(" ")
        started = f"{invocation(name)} {verb}".rstrip()
        super().__init__(
            prog=started,
            description=description,
            epilog=epilog.replace("COMMAND", started),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_argument("--version", action="version", version=VERSION, help="show the version and exit")
        self.add_argument(
            FLAG, action="store_true", help="print one JSON document; messages and progress are JSON lines on stderr"
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse empty words: as a path, one would be the working folder."""
        words = sys.argv[1:] if args is None else list(args)
        if "" in words:
            before = " ".join(words[: words.index("")][-1:])
            raise UserError(f"an argument is empty{f', after {before}' if before else ''}: is a variable not set?")
        return super().parse_known_args(words, namespace)

    def error(self, message: str):
        words = message.split(": ", 1)[-1].split() if message.startswith("unrecognized arguments") else []
        hints = "".join(self._near(word) for word in words if word.startswith("-"))
        raise UserError(f"{message}{hints}", advice="see --help")

    def _near(self, word: str) -> str:
        """Return a hint at the flag or the key that a word may have been meant to be."""
        name = word.split("=")[0].lstrip("-")
        if hasattr(self, "_keys") and name in RunConfig.model_fields:
            return f" (did you mean {name}=VALUE, without dashes?)"
        return near_matches(f"--{name}", [flag for action in self._actions for flag in action.option_strings])

    def add_overrides(
        self,
        text: str = "override a key of cfg/, anywhere on the line; unknown keys are errors (a file with = is ./a=b.py)",
        keys: Collection[str] = (),
    ) -> None:
        """Take key=value overrides, with a help text; ``keys`` as of ``split_overrides``."""
        self._keys = keys
        self.add_argument("overrides", nargs="*", metavar="key=value", help=text)

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse; key=value may be anywhere, also after a flag that takes several values."""
        rest, overrides = split_overrides(self, words, self._keys)
        args = self.parse_args(rest)
        for word in args.overrides:
            hint = (_flag_for(word) if hasattr(args, "candidates") else "") or self._near(word)
            raise UserError(f"'{word}' is neither a flag nor key=value{hint}; see --help")
        args.overrides = overrides
        return args


def verb_parser(verb: str, text: str) -> Parser:
    """Return the parser of a verb, whose help begins with the first line of ``text`` and ends with the rest."""
    description, _, epilog = text.partition("\n\n")
    return Parser(f"envcoder-bench {verb}", description, epilog)


def _flag_for(word: str) -> str:
    """Return a hint at the flag whose value was given without it: a task's name, or a candidate file."""
    tasks = {name.lower(): name for name in task_names()}
    near = difflib.get_close_matches(word.lower(), tasks, n=1, cutoff=0.8)
    if near:
        return f" (did you mean --task {tasks[near[0]]}?)"
    return f" (did you mean --candidates {word}?)" if word.endswith(".py") or Path(word).exists() else ""


def command(name: str, run: Callable[[list[str]], int], words: Sequence[str]) -> int:
    """Run a command and return its exit code; user errors, a stop and a full disk give one line on stderr.

    A closed pipe or terminal affects neither the run nor its exit code.
    """
    with best_effort_output(json=FLAG in words):
        try:
            with shown_messages():
                return run(list(words))
        except UserError as error:
            why, message, code = error, str(error), 2
        except OSError as error:
            why, message, code = error, disk_trouble(error), 2
            if not message:
                raise
        except (MemoryError, RuntimeError) as error:  # torch's have no class of their own on a CPU
            why, message, code = error, "out of memory; give fewer environments", 2
            if "allocate" not in f"{error}" and not isinstance(error, MemoryError):
                raise
        except KeyboardInterrupt as stop:
            why, message, code = stop, str(stop) or "stopped", 130
        if is_json():
            from envcoder_bench.serve.documents import error_document  # it imports torch, which --help does not need

            put(lambda: error_document(why, message, code))
        else:
            print(f"{name}: {'error: ' * (code == 2)}{one_line(message)}", file=sys.stderr)
        return code


@contextmanager
def shown_messages() -> Iterator[None]:
    """Print the package's messages and Python's warnings on stderr, repeated warnings on one line."""
    handler = RepeatHandler(_print_message)
    logging.captureWarnings(True)  # so that they go through the handler, too
    try:
        with listening(handler), _plain_warnings():
            yield
    finally:
        logging.captureWarnings(False)
        handler.flush()


def _print_message(text: str) -> None:
    """Print a message on stderr, above the progress bar if there is one."""
    bars = sys.modules.get("tqdm")
    if bars is None:
        print(text, file=sys.stderr, flush=True)
    else:
        bars.tqdm.write(visible(text), file=own_codes(sys.stderr))


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print warnings of this package on one line, without the place in its code."""
    before = warnings.formatwarning

    def formatted(message: Any, category: Any, filename: str, *rest: Any) -> str:
        is_own = PACKAGE in Path(filename).resolve().parents
        return f"warning: {message}\n" if is_own else before(message, category, filename, *rest)

    warnings.formatwarning = formatted
    try:
        yield
    finally:
        warnings.formatwarning = before


def add_key(group: Any, key: str, model: type[Keys] = RunConfig, **options: Any) -> None:
    """Add the flag for a key of the config, with its description as help and ``options`` of ``add_argument``."""
    info = fields(model)[key]
    default = "" if info.default is None or isinstance(info.default, (bool, Keys)) else f" (default: {info.default})"
    text = f"{info.description}{default}".replace("; null: ", "; default: ").replace("%", "%%")
    group.add_argument(f"--{key}", help=text, **options)


def add_training(group: Any) -> None:
    """Add the flags for the amount of training."""
    add_key(group, "learning_iterations", type=int, metavar="N")
    group.add_argument(
        "--trainer",
        metavar="NAME",
        help="ppo (default), sac (FlashSAC, which learns off-policy), sac_small (the same with small networks, for a"
        " CPU), or module:Class for one of your own (examples/elegantrl_trainer.py)",
    )
    add_key(group, "seeds", type=_seeds, metavar="K|auto")
    add_key(group, "seed", type=int)
    add_key(group, "race", action="store_true")


def _seeds(word: str) -> int | str:
    """Return a number, or ``auto``. Raises ArgumentTypeError."""
    if word == "auto":
        return word
    try:
        return int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"it must be a whole number of at least 1, or auto, got {word}") from None


def count(word: str) -> int:
    """Return a whole number, 0 or more. Raises ArgumentTypeError."""
    if not word.isdecimal():
        raise argparse.ArgumentTypeError(f"it must be a whole number, 0 or more, got {word}")
    return int(word)


def add_where(group: Any) -> None:
    """Add the flags for simulator, device and memory."""
    add_key(group, "sim", choices=("auto", *SIMULATORS))
    add_key(group, "device", metavar="auto|cpu|cuda:N")
    add_key(group, "devices", metavar="all|0,1|cpu:N")
    add_key(group, "ray", metavar="auto|HOST:PORT")
    group.add_argument("--gpu_id", type=int, metavar="N", help="short for --device cuda:N")
    add_key(group, "max_memory", metavar="SIZE")


def add_files(group: Any) -> None:
    """Add the flags for the user's own YAML files."""
    text = "of your own or of IsaacGymEnvs, whose values replace those in"
    group.add_argument("--task_config", metavar="FILE", help=f"a task YAML {text} cfg/task/<Task>.yaml")
    group.add_argument("--train_config", metavar="FILE", help=f"a train YAML {text} cfg/train/<Task>PPO.yaml")


def settle_task(args: argparse.Namespace) -> None:
    """Check the task of a new run or search, and that a candidate file parses, before a task is built.

    Other flags are checked before a task of another package, which takes a while to import.
    """
    if not args.task:
        raise UserError("no task: give --task NAME, e.g. --task Cartpole; see --help")
    args.task, args.task_config = with_task_config(args.task, args.task_config)
    with user_input():
        if args.shaper_types is not None:
            without_aliases(split_items(args.shaper_types), "--shaper_types")
        takes_a_while = ":" in args.task
        if not takes_a_while:
            check_task_name(args.task)
        if args.candidates:
            from envcoder_bench.run.inputs import read_candidates, refuse_unparsed

            refuse_unparsed(read_candidates(args.task, args.candidates, getattr(args, "candidate_idx", None)))
        if takes_a_while:
            if args.fitness is not None:
                from envcoder_bench.run.fitness import read_file

                read_file(args.fitness)
            check_task_name(args.task)


# flags that are keys of cfg/config.yaml, or stand for some
_OF_CONFIG = {*RunConfig.model_fields, "gpu_id", "trainer", "task_config", "train_config", "no_baselines", "half_step"}


def flag_words(args: argparse.Namespace) -> list[str]:
    """Return the flags as overrides of cfg/config.yaml, followed by the user's key=value overrides."""
    from envcoder_bench.run.inputs import override_words  # here, because --help does not need it

    names = _OF_CONFIG - {"task", "shaper_types"}
    values = {key: value for key, value in vars(args).items() if key in names}
    flags = {key: value for key, value in values.items() if value is not None and value is not False}
    single = next((f"--{name}" for name in ("device", "gpu_id") if name in flags), "")
    if single and {"devices", "ray"} & flags.keys():
        raise UserError(f"{single} chooses one device, and --devices or --ray several: give one of them")
    kinds = None if args.shaper_types is None else split_items(args.shaper_types)
    return override_words(args.task, args.overrides, kinds, flags)


def flags_in(words: Sequence[str]) -> list[str]:
    """Return the flags among the words of a command line."""
    return [word.split("=")[0] for word in words if word.startswith("--") and word != FLAG]


def refuse_others(
    args: argparse.Namespace, words: Sequence[str], flag: str, others: Sequence[str], folder: str
) -> None:
    """Raise UserError if ``flag``, which continues what is in a folder, is given with other flags than ``others``."""
    if set(flags_in(words)) - {flag, *others} or args.overrides:
        allowed = join_words(others)
        raise UserError(f"{flag} takes no other flag but {allowed}: the settings are those of {folder} config.yaml")


def as_words(values: Mapping[str, object]) -> list[str]:
    """Return the values that are not None as key=value."""
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def split_items(words: Sequence[str]) -> list[str]:
    """Return the items of a flag's values, which may be separated by spaces or commas: ``a,b c``."""
    return [item.strip() for word in words for item in word.split(",") if item.strip()]


# output that never fails


_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_PLAIN = str.maketrans({"±": "+-", "…": "...", "█": "#", "→": "->"})


class BestEffort:
    """A text stream that is abandoned silently when it can no longer be written to.

    It is then replaced by a stream that can be flushed, because Python flushes at exit and would report a failure. All
    other attributes are those of the stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = False

    def write(self, text: str) -> int:
        """Write a text; characters that the encoding lacks are replaced."""
        if not self._lost:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding or "ascii"
                encodable = text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
                self._attempt(lambda: self._stream.write(encodable))
            except (OSError, ValueError):  # ValueError: it is closed
                self._abandon()
        return len(text)

    def flush(self) -> None:
        if not self._lost:
            self._attempt(self._stream.flush)

    def _attempt(self, call: Any) -> None:
        try:
            call()
        except (OSError, ValueError):
            self._abandon()

    def _abandon(self) -> None:
        self._lost = True
        try:  # discard buffered output
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)
        except (OSError, ValueError):  # a stream that is not a file
            pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class VisibleText:
    """A text stream that prints all texts as ``plain_text.visible`` ones, and drops the colours of other libraries.

    It names pages of the manual by their addresses.

    Attributes:
        own_codes: the stream itself, for control codes of this program.
    """

    def __init__(self, stream: BestEffort) -> None:
        self.own_codes = stream

    def write(self, text: str) -> int:
        plain = _COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
        self.own_codes.write(with_addresses(visible(plain)))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own_codes, name)


@contextmanager
def best_effort_output(json: bool = False) -> Iterator[None]:
    """Print visible text only in this block; ignore failures of printing, and of the flush at its end.

    With ``json`` the streams are those of ``json_output``.
    """
    before = sys.stdout, sys.stderr
    opened = [_reopen(number) for number, stream in enumerate(before, 1) if stream is None]
    kept = iter(opened)
    streams: list[Any] = [VisibleText(BestEffort(next(kept) if stream is None else stream)) for stream in before]
    try:
        with ExitStack() as stack:
            sys.stdout, sys.stderr = stack.enter_context(json_output(*streams)) if json else streams
            yield
    finally:
        for stream in streams:
            stream.flush()
        sys.stdout, sys.stderr = before


def _reopen(number: int) -> TextIO:
    """Open a standard stream that was closed before the program began (``>&-``) to the null device.

    Otherwise the next opened file would get its number, and libraries would print into it.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    if null != number:
        try:
            os.fstat(number)
        except OSError:
            os.dup2(null, number)
    return open(null, "w", encoding="utf-8", closefd=False)
