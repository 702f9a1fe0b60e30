"""The candidates of ``--terms`` and ``--sweep``: variants of other candidates, made from their texts.

The terms of a reward are read from its recorded program. Untrusted code runs in the jail, as in the run itself.
"""

import contextlib
import itertools
import logging
import math
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from envcoder_bench.compile.terms import Terms, find_terms, recorded_reward
from envcoder_bench.core.errors import UserError, near_matches, user_input
from envcoder_bench.core.settings import Settings, dotted_keys, merged, nested
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.core.words import counted
from envcoder_bench.run.config import trainer_keys
from envcoder_bench.run.config_checks import check_training
from envcoder_bench.run.inputs import baseline_sources
from envcoder_bench.run.prepare.environments import in_small_simulation
from envcoder_bench.run.prepare.groups import PrepareContext, check_and_trace, make_context
from envcoder_bench.run.prepare.run_files import SlowFiles
from envcoder_bench.run.spec import PARAMS, CandidateSource, RunSpec
from envcoder_bench.shaping import variants as texts
from envcoder_bench.shaping.contract import CandidateError, Shaping
from envcoder_bench.shaping.faults import of_candidate
from envcoder_bench.shaping.kinds import ALIASES, REWARD
from envcoder_bench.shaping.source import Source, UnsupportedCode
from envcoder_bench.shaping.text import definitions
from envcoder_bench.shaping.variants import SWEEP, TERMS, Variant
from envcoder_bench.tasks.base import BASELINES, HUMAN, UNSHAPED
from envcoder_bench.trainers.registry import trainer_class

log = logging.getLogger(__name__)
MOST = 2_000  # variants of a run


class Unvaried(UserError):
    """What is asked for cannot be made of a candidate's text; of several candidates, the others are varied."""


@dataclass(frozen=True)
class Asked:
    """What variants are asked for.

    Attributes:
        terms: whether every term is left out, halved and doubled, and every function left out.
        sweep: values by the name of a term, a declared number or a key of the trainer's config.
        points: of the grid of a sweep, take so many points, as a Latin hypercube; None for all.
    """

    terms: bool = False
    sweep: Mapping[str, Sequence[str]] = field(default_factory=dict)
    points: int | None = None

    @property
    def flag(self) -> str:
        return TERMS if self.terms else SWEEP

    @classmethod
    def of(cls, terms: bool, sweep: Mapping[str, Any] | Sequence[str] | None, points: int | None) -> "Asked | None":
        """Read the values of the flags, or the arguments from Python; None if nothing is asked for.

        Raises UserError if a value is not valid.
        """
        # texts of the command line, or a mapping from Python
        named: list[tuple[str, Any]] = []
        for word in [sweep] if isinstance(sweep, str) else [] if isinstance(sweep, Mapping) else sweep or ():
            name, is_named, values = word.partition("=")
            if not (is_named and name):
                raise UserError(f"{SWEEP} {word}: write NAME=VALUE,VALUE,..., e.g. {SWEEP} effort=0,0.5,1,2")
            named.append((name, values))
        named += sweep.items() if isinstance(sweep, Mapping) else []
        if len({name for name, _ in named}) < len(named):
            raise UserError(f"{SWEEP}: {named[-1][0]} is given twice: write all of its values behind one =")
        # which flags go together
        if points is not None and not named:
            raise UserError(f"--sweep_points {points} is for {SWEEP}, which is not given")
        if not terms and not named:
            return None
        if terms and named:
            raise UserError(f"{TERMS} and {SWEEP} make different variants: give one of them")
        if points is not None and (type(points) is not int or points < 2):
            raise UserError(f"--sweep_points {points}: it must be at least 2")
        return cls(terms, {name: texts.parse_values(name, values) for name, values in named}, points)


@dataclass(frozen=True)
class _Original:
    """A checked candidate, and the terms of its reward.

    Attributes:
        source: its file.
        functions: the functions that a run takes from it, by their names in the file.
        reward, why: the terms of its reward; None, and the reason, if they are not known.
        state: the keys of the state.
    """

    source: CandidateSource
    shaping: Shaping
    functions: Sequence[str]
    reward: Terms | None
    why: str
    state: frozenset[str]

    @property
    def terms(self) -> list[str]:
        return [] if self.reward is None else list(self.reward.weights)


def with_variants(spec: RunSpec, candidates: Sequence[CandidateSource], asked: Asked) -> list[CandidateSource]:
    """Return candidates, each followed by its variants; without any candidates, variants of the human baseline.

    The task's code is run when what is asked for has been checked.

    Raises UserError if nothing can be varied as it was asked, or there would be too many variants.
    """
    if not candidates:
        _refuse_human(spec, asked)
    numbers = _trainer_numbers(spec) if asked.sweep else {}
    settings = _settings(spec, asked, numbers)
    divides = asked.terms or len(settings) < len(asked.sweep)
    with user_input():
        spec.try_code()
    baselines = baseline_sources(spec.task, spec.config.task)
    originals = candidates or [source for source in baselines if source.name == HUMAN]
    # names of files, which some file systems do not tell apart by capital letters
    taken = {name.casefold() for name in (*BASELINES, *(source.name for source in candidates))}
    variants: list[CandidateSource] = []
    sources: list[CandidateSource] = []
    reasons: list[str] = []
    refusals: list[str] = []
    # terms must be told apart, unless only the trainer's numbers are swept
    examined = _examined(spec, originals, divides)
    for source in originals:
        sources += [] if source.name == HUMAN else [source]
        original = examined.get(source.name)
        if original is None:
            continue
        try:
            with of_candidate(source.file):
                if asked.terms:
                    new = [*_of_terms(original, taken), *_of_functions(spec, original, taken)]
                else:
                    new = _of_sweep(spec, original, asked, settings, numbers, taken, len(variants))
        except (CandidateError, Unvaried) as error:
            if len(originals) == 1:
                raise UserError(str(error)) from None
            log.warning("candidate %s has no variants: %s", source.name, error)
            refusals.append(str(error))
            continue
        if asked.terms and not original.terms:
            reasons.append(f"the terms of {original.source.name} are not varied: its {REWARD} {original.why}")
            if new or len(originals) > 1:
                log.warning(reasons[-1])
        _refuse_too_many(len(variants) + len(new), asked)
        variants += new
        sources += new
    # a single reason is told; several were logged
    if not variants and refusals:
        raise UserError(refusals[0])
    if not variants:
        why = f": {reasons[0]}, and there is no other function to leave out" if len(reasons) == 1 else ", see above"
        why = ": all values are those of the candidate" if asked.sweep and len(examined) == len(originals) else why
        raise UserError(f"{asked.flag}: there is nothing to vary{why}")
    of = ", ".join(examined)
    log.info("%s: %s of %s", asked.flag, counted(len(variants), "variant"), of)
    return sources


def _refuse_human(spec: RunSpec, asked: Asked) -> None:
    """Raise UserError if a run cannot vary the human baseline."""
    if not spec.config.baselines:
        raise UserError(
            f"{asked.flag} without --candidates is for the {HUMAN} baseline, which --no_baselines leaves out"
        )
    if spec.config.shaper_types is not None and spec.config.baseline != HUMAN:
        raise UserError(
            f"{asked.flag} with --shaper_types compares with {HUMAN}, which has all its functions: leave out --baseline"
            f" {spec.config.baseline}, or --shaper_types"
        )


# what is known of the candidates


def _examined(spec: RunSpec, originals: Sequence[CandidateSource], divides: bool) -> dict[str, _Original]:
    """Check candidates and find the terms of their rewards, if they matter; leave out those with a fault."""
    spec = in_small_simulation(spec)
    others = [original for original in originals if original.name != HUMAN]
    spec = replace(spec, sources=(*baseline_sources(spec.task, spec.config.task), *others))
    examined: dict[str, _Original] = {}
    with SlowFiles() as slow, _quiet():
        context = make_context(spec, slow)
        for source in originals:
            try:
                with of_candidate(source.file):
                    examined[source.name] = _examine(spec, context, source, divides)
            except CandidateError as error:
                if len(originals) == 1:
                    raise UserError(f"candidate {source.name} cannot be evaluated: {error}") from None
                log.warning("candidate %s has no variants, because it cannot be evaluated: %s", source.name, error)
    return examined


def _examine(spec: RunSpec, context: PrepareContext, source: CandidateSource, divides: bool) -> _Original:
    """Check a candidate and find the terms of its reward. Raises CandidateError."""
    shaping = check_and_trace(source, context, spec.config.seed)
    terms, why = None, ""
    if divides and shaping.stages["reward"].file != source.file:
        why = "is not used" if REWARD in definitions(source.source).names else "is the baseline's"
    elif divides and not shaping.components:
        why = "returns no components: return (reward, {name: component})"
    elif divides:
        try:
            terms = find_terms(recorded_reward(shaping, context.task), shaping.components)
            why = f"has no terms: {terms}"
        except CandidateError as error:  # functions can be left out all the same
            why = error.fault.explanation
    state = frozenset((*context.task.state, *context.task.constants))
    return _Original(source, shaping, _functions(spec, source), terms, why, state)


def _functions(spec: RunSpec, source: CandidateSource) -> list[str]:
    """Return the names in its file of the functions that a run takes from a candidate."""
    types = None if source.name in BASELINES else spec.config.shaper_types
    return [name for name in definitions(source.source).names if types is None or ALIASES.get(name, name) in types]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what the run itself says of the same files, and use one thread."""
    with settings_kept(), warnings.catch_warnings():
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        yield


# --terms


def _of_terms(original: _Original, taken: set[str]) -> list[CandidateSource]:
    """Return the variants with a term left out, halved and doubled; none if they are not known."""
    source, terms = original.source, original.reward
    if terms is None:
        return []
    log.info("the reward of %s: %s", source.name, terms)
    variants = []
    for (term, weight), factor in itertools.product(terms.weights.items(), texts.FACTORS):
        what = Variant(source.name, TERMS, term, factor, weight=weight or 0.0)
        text = texts.with_factors(source.source, {term: factor})
        variants.append(_variant(what, text, f"{term}_x{texts.short(factor)}", taken))
    return variants


def _of_functions(spec: RunSpec, original: _Original, taken: set[str]) -> list[CandidateSource]:
    """Return the variants without one of the candidate's functions, which are the baseline's then.

    Those of the human baseline are the unshaped one's, where it fills in; one that is the same there has no variant.
    """
    source, names = original.source, [*original.functions]
    if source.name == HUMAN and spec.config.baseline == HUMAN:
        other = next(x for x in baseline_sources(spec.task, spec.config.task) if x.name == UNSHAPED)
        theirs, types = _functions(spec, other), spec.config.shaper_types
        names = [name for name in names if types is None or ALIASES.get(name, name) in types]
        names = [name for name in names if name in theirs and not _same(source.source, other.source, name)]
        by_name = {name: texts.without_function(other.source, [x for x in theirs if x != name]) for name in names}
    elif len(names) < 2:
        return []
    else:
        by_name = {name: _text(source, texts.without_function, [name]) for name in names}
    variants = []
    for name, text in by_name.items():
        kind = ALIASES.get(name, name)
        what = Variant(source.name, TERMS, function=kind)
        variants.append(_variant(what, text, f"without_{kind.removeprefix('compute_')}", taken))
    return variants


def _same(text: str, other: str, name: str) -> bool:
    """Return whether two files define a function alike, with all that it uses."""
    try:
        return Source(text).using([name]).fingerprint() == Source(other).using([name]).fingerprint()
    except UnsupportedCode:
        return False


# --sweep


_Numbers = Mapping[str, float | str]  # Trainer.group_numbers by their keys in the run's config


def _trainer_numbers(spec: RunSpec) -> _Numbers:
    check_training(spec)
    params = spec.config.params
    return {f"{PARAMS}{key}": value for key, value in trainer_class(params).group_numbers(params).items()}


def _settings(spec: RunSpec, asked: Asked, numbers: _Numbers) -> dict[str, float]:
    """Return those of the trainer's numbers that are swept, with their values in the config.

    Raises UserError if one of them cannot be swept, or a value is out of its range.
    """
    settings = {}
    for name in asked.sweep:
        if not name.startswith(texts.TRAIN):
            continue
        usual = numbers.get(name)
        every_key = (*dotted_keys(spec.config.train), *trainer_keys(spec.config.train))
        # a key that the trainer lacks, that is of the whole run, or that something else sets
        keys = dict.fromkeys([*numbers, *(f"{texts.TRAIN}{key}" for key in every_key)])
        if name not in keys:
            raise UserError(f"{SWEEP}: unknown key '{name}'{near_matches(name, keys)}; {_listed(numbers)}")
        if usual is None:
            raise UserError(
                f"{SWEEP} {name}: the candidates of a run share this setting; run once for each value with"
                f" {name}=VALUE, and compare with envcoder-bench compare; {_listed(numbers)}"
            )
        if isinstance(usual, str):
            raise UserError(f"{SWEEP} {name}: it has an effect {usual}")
        # each value is checked now, not when its group trains
        for value in asked.sweep[name]:
            changes = nested({name.removeprefix(texts.TRAIN): float(value)})
            check_training(spec.changed(train=merged(spec.config.train, changes)))
        settings[name] = usual
    return settings


def _listed(numbers: _Numbers) -> str:
    keys = ", ".join(key.removeprefix(f"{PARAMS}config.") for key in numbers)
    return f"keys of {PARAMS}config that can be swept: {keys}" if numbers else "no number of this trainer can be swept"


def _of_sweep(
    spec: RunSpec, original: _Original, asked: Asked, settings: Mapping[str, float], numbers: _Numbers,
    taken: set[str], before: int,
) -> list[CandidateSource]:  # fmt: skip
    source = original.source
    try:
        # a name is a term of the reward, or a number of the file
        names = {
            name: texts.resolve_name(name, source.source, original.terms, numbers, original.state)
            for name in asked.sweep
            if name not in settings
        }
        declared = texts.numbers(source.source) if names else {}
    except UserError as error:
        why = f"; its {REWARD} {original.why}" if not original.terms and original.why else ""
        raise Unvaried(f"{SWEEP}: {source.file}: {error}{why}") from None
    for first, other in itertools.combinations(names, 2):
        if names[first] == names[other]:
            raise Unvaried(
                f"{SWEEP}: {source.file}: {first} and {other} are one number: give all of its values to one name"
            )
    shaped = {name: 1.0 if is_term else declared[full] for name, (full, is_term) in names.items()}
    # the original's values, which no variant repeats; a term's is the factor 1
    usual = {name: {**settings, **shaped}[name] for name in asked.sweep}
    grid = math.prod(map(len, asked.sweep.values()))
    if asked.points is None:
        _refuse_too_many(before + grid, asked)
        points = [dict(zip(asked.sweep, values)) for values in itertools.product(*asked.sweep.values())]
    else:
        points = _latin(asked.sweep, min(asked.points, grid), spec.config.seed)
    points = [point for point in points if {name: float(value) for name, value in point.items()} != usual]
    # a term is scaled, a number is replaced, and a trainer's number becomes an override
    variants = []
    for point in points:
        values = {name: float(value) for name, value in point.items()}
        factors = {full: values[name] for name, (full, is_term) in names.items() if is_term}
        edits = {full: point[name] for name, (full, is_term) in names.items() if not is_term}
        text = _text(source, texts.with_numbers, edits) if edits else source.source
        text = texts.with_factors(text, factors) if factors else text
        title = "+".join(f"{texts.label(name)}={texts.short(value)}" for name, value in values.items())
        what = Variant(source.name, SWEEP, values=values, usual=usual, points=asked.points or 0)
        variants.append(_variant(what, text, title, taken)._replace(overrides=Settings(what.trainer_numbers)))
    return variants


def _latin(sweep: Mapping[str, Sequence[str]], count: int, seed: int) -> list[dict[str, str]]:
    """Return points in which each value of each name is as frequent as any other: a Latin hypercube."""
    draws = random.Random(seed)
    columns = []
    for values in sweep.values():
        step = max(1.0, len(values) / count)  # takes some of many values, evenly apart
        column = [values[int(k * step) % len(values)] for k in range(count)]
        draws.shuffle(column)
        columns.append(column)
    return [dict(zip(sweep, point)) for point in dict.fromkeys(zip(*columns))]


def _refuse_too_many(count: int, asked: Asked) -> None:
    if count > MOST:
        remedy = "take fewer values, or --sweep_points N of them" if asked.sweep else "give fewer candidates"
        raise UserError(f"{asked.flag} makes {count:,} variants, and a run has at most {MOST:,}: {remedy}")


# the sources


def _text(source: CandidateSource, make: Any, *arguments: Any) -> str:
    """Return a changed text. Raises Unvaried, which names the file."""
    try:
        return make(source.source, *arguments)
    except (UserError, UnsupportedCode) as error:
        raise Unvaried(f"{source.file}: {error}") from None


def _variant(what: Variant, text: str, title: str, taken: set[str]) -> CandidateSource:
    name = texts.variant_name(what.original, title, taken)
    taken.add(name.casefold())
    return CandidateSource(name, f"{name}.py", texts.with_settings(text, what), variant=what)
