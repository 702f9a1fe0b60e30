"""--terms and --sweep: which variants are made, of which candidates, and what is refused."""

import re

import numpy as np
import pytest
from odd_files import TEXTS

from envcoder_bench.compile.c_code import write_c
from envcoder_bench.compile.kernels import GroupProgram, divide
from envcoder_bench.core.errors import UserError
from envcoder_bench.run.folder.ranked import variants_in
from envcoder_bench.run.folder.tracking import hyperparameters
from envcoder_bench.run.inputs import baseline_sources, read_candidates, resolve, with_candidates
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.variants import MOST, Asked, with_variants
from envcoder_bench.tasks.base import BASELINES

SMALL = ["sim=mujoco_cpu", "device=cpu", "num_envs_per_candidate=2", "evaluation.num_envs=1"]
MINE = """
WEIGHTS = {"swing": 0.1}
LIMIT = 1.5
SCALE = 2 * 3.0
def compute_reward(pole_angle, pole_vel, cart_pos):
    terms = {"upright": torch.cos(pole_angle), "swing": -WEIGHTS["swing"] * torch.abs(pole_vel)}
    terms["centre"] = -torch.abs(cart_pos / LIMIT)
    return torch.where(torch.abs(pole_angle) > 1.5, -2.0, sum(terms.values())), terms
"""
RATE, DECAY = "train.params.config.learning_rate", "train.params.config.weight_decay"
OBSERVED = """
def compute_observation(cart_pos, pole_angle):
    return torch.stack([cart_pos, pole_angle], dim=-1)
def compute_done(pole_angle):
    return torch.abs(pole_angle) > 1.0
"""
PRODUCT = """def compute_reward(pole_angle, cart_pos):
    x, y = pole_angle.cos(), cart_pos.cos()
    return x * y, {"x": x, "y": y}
"""
PLAIN = "def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n"


@pytest.fixture(scope="module")
def cartpole():
    return resolve("Cartpole", SMALL)


def made(spec, texts, **asked):
    candidates = read_candidates("Cartpole", texts) if texts else []
    return with_variants(spec, candidates, Asked.of(asked.get("terms", False), asked.get("sweep"), asked.get("points")))


def names(sources):
    return [source.name for source in sources]


def test_every_term_is_left_out_halved_and_doubled_and_every_function_left_out(cartpole):
    sources = made(cartpole, {"mine": MINE + OBSERVED}, terms=True)
    assert names(sources) == [
        "mine",
        *(f"mine.{term}_x{factor}" for term in ("upright", "swing", "centre") for factor in ("0", "0.5", "2")),
        *(f"mine.without_{function}" for function in ("reward", "observation", "terminal")),
    ]
    groups, faults = prepare(with_candidates(cartpole, sources))
    assert not faults and len(groups) == len(sources) + 2
    by_name = {group.name: group.shaping for group in groups}
    assert by_name["mine"].obs_dim == 2 and by_name["mine.without_observation"].obs_dim == 4
    assert by_name["mine.without_reward"].components == ()


def test_variants_that_differ_in_weights_share_one_kernel_with_one_program(cartpole):
    sweep = {"upright": [2, 3, 4], "centre": [2, 3, 4], "swing": [0.2, 0.3]}
    sources = made(cartpole, {"mine": MINE}, sweep=sweep, points=None)[1:]
    assert len(sources) == 18  # more programs than a kernel has otherwise
    groups, _ = prepare(with_candidates(cartpole.changed(baselines=False), sources))
    programs = [group.shaping.programs["reward"] for group in groups]
    codes = [write_c(program, dict.fromkeys(program.outputs, "O = {value};")) for program in programs]
    kernels = divide([GroupProgram(k, 0, code) for k, code in enumerate(codes)], [])
    assert len({code.constants for code in codes}) == len(codes)
    assert len(kernels) == 1 and len(kernels[0].codes) == 1


def test_functions_that_shaper_types_leave_out_are_not_varied(cartpole):
    only = cartpole.changed(shaper_types=("compute_reward",))
    assert len(made(only, {"mine": MINE + OBSERVED}, terms=True)) == 1 + 9
    with pytest.raises(UserError, match="its compute_reward is not used"):
        made(cartpole.changed(shaper_types=("compute_observation",)), {"mine": MINE + OBSERVED}, terms=True)


def test_human_baseline_without_candidates(cartpole):
    sources = made(cartpole, {}, terms=True)
    functions = ("reward", "observation", "torque", "terminal", "initial_state")
    assert set(names(sources)) <= {f"human.without_{name}" for name in functions}
    by_name = {one.name: one.source for one in baseline_sources(cartpole.task)}
    first = sources[0]
    assert first.source.startswith(by_name["unshaped"].rstrip()), "what the unshaped task has in its place"
    assert first.variant.original == "human"
    groups, faults = prepare(with_candidates(cartpole, sources))
    assert not faults
    used = {group.name: group.shaping.functions for group in groups}
    for source in sources:
        theirs = [one.type for one in used[source.name].values() if one.file == source.file]
        assert theirs == [source.variant.function]
    with pytest.raises(UserError, match="--no_baselines leaves out"):
        made(cartpole.changed(baselines=False), {}, terms=True)
    with pytest.raises(UserError, match="leave out --baseline unshaped, or --shaper_types"):
        made(cartpole.changed(shaper_types=("compute_reward",), baseline="unshaped"), {}, terms=True)
    kinds = {source.variant.function for source in sources}
    assert set(names(made(cartpole.changed(shaper_types=tuple(kinds)), {}, terms=True))) == set(names(sources))
    with pytest.raises(UserError, match="there is nothing to vary"):
        made(
            cartpole.changed(shaper_types=tuple({"compute_goal", "compute_reward", "compute_observation"} - kinds)),
            {},
            terms=True,
        )


@pytest.mark.slow
def test_terms_of_human_baselines_are_those_of_their_rewards():
    spec = resolve("Anymal", SMALL)
    sources = made(spec, {}, terms=True)
    terms = {one.variant.term for one in sources} - {""}
    assert terms == {"lin_vel_xy", "ang_vel_z", "torque"} and not set(names(sources)) & set(BASELINES)


@pytest.mark.slow
def test_grid_of_a_sweep_leaves_out_the_original(cartpole):
    sources = made(cartpole, {"mine": MINE}, sweep=["swing=0,0.1,1", "upright=1,2"])
    assert names(sources) == [
        "mine", "mine.swing=0+upright=1", "mine.swing=0+upright=2", "mine.swing=0.1+upright=2",
        "mine.swing=1+upright=1", "mine.swing=1+upright=2",
    ]  # fmt: skip
    assert 'WEIGHTS = {"swing": 0}' in sources[1].source and "REWARD_FACTORS" not in sources[0].source
    variant = sources[3].variant
    assert variant.values == {"swing": 0.1, "upright": 2.0} and variant.usual == {"swing": 0.1, "upright": 1.0}
    assert not prepare(with_candidates(cartpole, sources))[1]


def test_sweep_of_a_key_of_the_trainer_leaves_the_text_and_overrides_the_config(cartpole):
    original, *variants = made(cartpole, {"mine": PLAIN}, sweep=[f"{RATE}=1e-4,3e-4", f"{DECAY}=0,0.1"])
    names_of_variants = ["0.0001+weight_decay=0", "0.0001+weight_decay=0.1", "0.0003+weight_decay=0.1"]
    assert names(variants) == [f"mine.learning_rate={name}" for name in names_of_variants]
    assert [one.overrides for one in variants] == [{RATE: 1e-4}, {RATE: 1e-4, DECAY: 0.1}, {DECAY: 0.1}]
    tracked = hyperparameters(cartpole.config, [original, *variants])
    assert [one["weight_decay"] for one in tracked.values()] == [0.0, 0.0, 0.1, 0.1]
    assert all(one.source.startswith(original.source) for one in variants) and not original.overrides
    assert variants_in([original, *variants]).keys() == {one.name for one in variants}
    assert f"with {RATE}=0.0001 {DECAY}=0.1, by" in variants[1].source  # a copy trains with another run's numbers
    groups, _ = prepare(with_candidates(cartpole, made(cartpole, {}, sweep=f"{RATE}=1e-4")))
    by_name = {group.name: group for group in groups}
    assert by_name["human.learning_rate=0.0001"].overrides == {RATE: 1e-4} and not by_name["human"].overrides


@pytest.mark.slow
def test_latin_hypercube_has_each_value_equally_often(cartpole):
    sweep = {"swing": [0.2, 0.3, 0.4, 0.5], "upright": [2, 3], "LIMIT": range(2, 22)}
    sources = made(cartpole, {"mine": MINE}, sweep=sweep, points=4)[1:]
    values = [source.variant.values for source in sources]
    assert sorted(one["swing"] for one in values) == [0.2, 0.3, 0.4, 0.5]
    assert sorted(one["upright"] for one in values) == [2, 2, 3, 3]
    assert np.ptp([one["LIMIT"] for one in values]) >= 15
    assert names(sources) == names(made(cartpole, {"mine": MINE}, sweep=sweep, points=4)[1:])
    alike = {"swing": range(2, 12), "LIMIT": range(2, 12)}
    points = [one.variant.values for one in made(cartpole, {"mine": MINE}, sweep=alike, points=10)[1:]]
    assert any(one["swing"] != one["LIMIT"] for one in points), "the values are combined at random"


@pytest.mark.slow
def test_candidate_with_a_fault_costs_only_its_own_variants(cartpole, caplog):
    texts = {"mine": MINE, "broken": "def compute_reward(pole_angel):\n    return pole_angel\n", "plain": PLAIN}
    with caplog.at_level("WARNING", logger="envcoder_bench"):
        sources = made(cartpole, texts, terms=True)
    assert len(sources) == 3 + 9 and {"broken", "plain"} < set(names(sources))
    assert "candidate broken has no variants" in caplog.text and "returns no components" in caplog.text


@pytest.mark.slow
def test_candidate_whose_text_cannot_be_read_or_changed_costs_only_its_own_variants(cartpole, caplog):
    chosen = ("sum of 2,500 terms", "2,800 elif", "number of 400 digits", "full-width name")
    texts = {f"odd{k}": TEXTS[name] for k, name in enumerate(chosen)}
    with caplog.at_level("WARNING", logger="envcoder_bench"):
        sources = made(cartpole, {**texts, "mine": MINE}, sweep="swing=0,2")
    assert {"mine", *texts} < set(names(sources)) and any(name.startswith("mine.") for name in names(sources))
    assert "candidate odd0 has no variants" in caplog.text
    with pytest.raises(UserError, match="unknown term or number 'swng'"):
        made(cartpole, {"mine": MINE, "other": MINE}, sweep="swng=1,2")


@pytest.mark.parametrize(
    ("texts", "asked", "message"),
    [
        ({"a": PLAIN}, {"terms": True}, "terms of a are not varied: its compute_reward returns no components"),
        ({"a": PRODUCT}, {"terms": True}, r"has no terms: .*; x is multiplied by another component \(line 3\); y is"),
        ({"a": "def compute_reward(pole_angel): pass"}, {"terms": True}, r"a.py:1: .*did you mean pole_angle"),
        ({"a": MINE}, {"sweep": "swng=1,2"}, "did you mean swing"),
        ({"a": MINE}, {"sweep": "SCALE=1,2"}, "line 4: SCALE is"),
        ({"a": PLAIN.replace("angle)", "angle=0.5)", 1)}, {"sweep": "pole_angle=1"}, "line 1: .* a key of the state"),
        ({"a": MINE}, {"sweep": ["swing=1", "WEIGHTS.swing=2"]}, "a.py: swing and WEIGHTS.swing are one number"),
        ({"a": MINE}, {"sweep": "swing=1,x"}, "x is not a number"),
        ({"a": MINE}, {"sweep": "swing"}, "write NAME=VALUE"),
        ({"a": MINE}, {"sweep": ["swing=1", "swing=2"]}, "given twice"),
        ({"a": MINE}, {"sweep": "train.params.config.mini_epochs=2,4"}, "share this setting; run once for each value"),
        ({"a": MINE}, {"sweep": f"{RATE}s=1"}, f"unknown key .* .did you mean {RATE}.*swept: learning_rate, "),
        ({"a": MINE}, {"sweep": f"{RATE}=3e-4"}, "nothing to vary: all values are those of the candidate"),
        ({"a": MINE}, {"sweep": "learning_rate=1"}, f"did you mean {RATE}"),
        ({"a": MINE}, {"sweep": "train.params.config.gamma=0.9,2"}, "gamma: must be a number from 0 to 1, got 2"),
        ({"a": MINE}, {"sweep": "swing=1", "terms": True}, "give one of them"),
        ({"a": MINE}, {"points": 3}, "for --sweep"),
        ({"a": MINE}, {"sweep": "swing=1", "points": 1}, "at least 2"),
        ({"a": MINE}, {"sweep": {"swing": range(100), "LIMIT": range(100)}},
         f"makes 10,000 variants, and a run has at most {MOST:,}: take fewer values"),
    ],
)  # fmt: skip
def test_what_cannot_be_varied_is_refused(cartpole, texts, asked, message):
    with pytest.raises(UserError, match=message):
        made(cartpole, texts, **asked)


@pytest.mark.slow
def test_untrusted_candidates_are_divided_from_what_the_jail_returns(cartpole):
    sources = made(cartpole.changed(untrusted=True), {"mine": MINE}, terms=True)
    assert sources == made(cartpole, {"mine": MINE}, terms=True)


@pytest.mark.slow
def test_reward_of_a_variant_is_one_program_called_compiled_and_jailed(cartpole):
    sources = made(cartpole, {"mine": MINE}, sweep="upright=0.3")[1:]
    codes = []
    for settings in ({}, {"compile_shapers": False}, {"untrusted": True}):
        spec = with_candidates(cartpole.changed(baselines=False, **settings), sources)
        (group,), _ = prepare(spec)
        program = group.shaping.functions["reward"].program
        assert group.shaping.programs.get("reward", program) is program
        code = write_c(program, dict.fromkeys(program.outputs, "O = {value};"))
        codes.append((code.statements, code.constants))
    assert codes[0] == codes[1] == codes[2] and 0.3 in [round(x, 6) for x in codes[0][1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            MINE + "REWARD_FACTORS = {'swng': 2.0}\n",
            "mine.py:5: REWARD_FACTORS has 'swng', .*did you mean swing",
        ),
        (MINE + "REWARD_FACTORS = 3\n", "mine.py:9: REWARD_FACTORS must be a dict of numbers by the names of terms"),
        (
            OBSERVED + "REWARD_FACTORS = {'up': 2.0}\n",
            "mine.py: REWARD_FACTORS is for compute_reward, which",
        ),
    ],
)
def test_factors_that_cannot_be_used_are_faults_of_the_file(cartpole, text, message):
    _, faults = prepare(with_candidates(cartpole, read_candidates("Cartpole", {"mine": text})))
    assert re.match(message, str(faults["mine"])), faults["mine"]


def test_factors_of_a_reward_that_a_run_does_not_take_are_left_out(cartpole):
    text = MINE + OBSERVED + "REWARD_FACTORS = {'swing': 2.0}\n"
    spec = cartpole.changed(shaper_types=("compute_observation",))
    groups, faults = prepare(with_candidates(spec, read_candidates("Cartpole", {"mine": text})))
    assert not faults and all(group.shaping.functions["reward"].program is None for group in groups)


def test_copy_of_a_variant_is_a_candidate_like_any_other(cartpole):
    original, variant = made(cartpole, {"mine": MINE}, sweep="upright=2")
    assert list(variants_in([original, variant])) == [variant.name]
    assert not variants_in(read_candidates("Cartpole", {"mine": original.source, variant.name: variant.source}))
