"""Dicts in mjlab's words change a task's config, and only that of their candidate."""

import copy
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from envcoder_bench.sources.mjlab_tasks.dialect import MjlabDialect


def f(env):
    return env.x


def g(env):
    return 2.0 * env.x


@dataclass
class Ranges:
    speed: tuple[float, float] = (-1.0, 1.0)
    turn: tuple[float, float] = (-0.5, 0.5)


@dataclass
class ObservationGroup:
    terms: dict
    history_length: int | None = None


def base():
    from mjlab.managers.command_manager import CommandTermCfg
    from mjlab.managers.event_manager import EventTermCfg
    from mjlab.managers.observation_manager import ObservationTermCfg
    from mjlab.managers.reward_manager import RewardTermCfg
    from mjlab.managers.termination_manager import TerminationTermCfg

    @dataclass
    class Twist(CommandTermCfg):
        resampling_time_range: tuple[float, float] = (1.0, 2.0)
        ranges: Ranges = field(default_factory=Ranges)

        def build(self, env):
            return None

    terms = {"pos": ObservationTermCfg(func=f), "vel": ObservationTermCfg(func=g)}
    return SimpleNamespace(
        rewards={
            "up": RewardTermCfg(func=f, weight=1.0, params={"std": 0.5}),
            "slow": RewardTermCfg(func=g, weight=-2.0),
        },
        terminations={"fell": TerminationTermCfg(func=f, params={"angle": 1.0})},
        observations={"actor": ObservationGroup(terms), "critic": ObservationGroup(dict(terms))},
        commands={"twist": Twist()},
        events={"push": EventTermCfg(func=f, mode="reset", params={"force": 1.0})},
        curriculum={},
    )


def patched(**sections):
    from envcoder_bench.sources.term_tasks.patches import patched_one

    before = base()
    untouched = copy.deepcopy(before)
    cfg = patched_one(MjlabDialect(), before, sections, "actor")
    assert before == untouched  # other candidates have it
    return cfg


def test_rewards_are_weighted_removed_replaced_changed_and_added():
    from mjlab.managers.reward_manager import RewardTermCfg

    mine = RewardTermCfg(func=g, weight=0.5)
    cfg = patched(rewards={"up": 3, "slow": None, "mine": mine, "plain": g, "dict": {"func": g, "weight": -1.0}})
    assert list(cfg.rewards) == ["up", "mine", "plain", "dict"]
    assert (cfg.rewards["up"].weight, cfg.rewards["up"].params) == (3.0, {"std": 0.5})
    assert (cfg.rewards["plain"].func, cfg.rewards["plain"].weight, cfg.rewards["dict"].weight) == (g, 1.0, -1.0)
    cfg = patched(rewards={"up": {"params": {"std": 0.1}}, "slow": f})
    assert (cfg.rewards["up"].params, cfg.rewards["slow"].func, cfg.rewards["slow"].weight) == ({"std": 0.1}, f, -2.0)


def test_other_sections_are_patched():
    cfg = patched(
        terminations={"fell": {"params": {"angle": 0.5}}},
        commands={"twist": {"ranges": {"speed": (0.0, 2.0)}}},
        events={"push": {"params": {"force": 9.0}}, "more": {"func": g, "mode": "interval"}},
        observations={
            "actor": {"pos": None, "history_length": 4},
            "extra": g,
            "critic": {"vel": {"history_length": 2}},
        },
    )
    assert cfg.terminations["fell"].params == {"angle": 0.5}
    assert cfg.commands["twist"].ranges == Ranges(speed=(0.0, 2.0))
    assert cfg.events["push"].params == {"force": 9.0} and cfg.events["more"].mode == "interval"
    assert list(cfg.observations["actor"].terms) == ["vel", "extra"] and cfg.observations["actor"].history_length == 4
    assert cfg.observations["critic"].terms["vel"].history_length == 2


@pytest.mark.parametrize(
    "sections, message",
    [
        ({"rewards": {"upp": 1.0}}, r"rewards has no term 'upp' \(did you mean up\?\); there are up, slow"),
        ({"rewards": {"gone": None}}, "rewards has no term 'gone'; there are up, slow"),
        ({"rewards": {"up": "much"}}, r"rewards\['up'\] must be a number, None, a RewardTermCfg, a dict or a function"),
        ({"rewards": {"up": {"wieght": 2.0}}}, r"rewards\['up'\] has no 'wieght' \(did you mean weight\?\)"),
        ({"curriculum": {"speed": None}}, "curriculum has no term 'speed'; there is none"),
        ({"commands": {"twist": {"ranges": {"sped": (0, 1)}}}}, r"has no 'sped' \(did you mean speed\?\)"),
        ({"rewards": {"up": float("nan")}}, r"the weight of rewards\['up'\] must be finite, not nan"),
        ({"rewards": {"up": {"weight": "2"}}}, "must be finite, not '2'"),
        ({"observations": {"crtic": {"pos": None}}}, r"no group or term 'crtic' \(did you mean critic\?\)"),
        ({"rewards": {"up": {"__class__": 1}}}, r"rewards\['up'\] has no '__class__'"),
        ({"rewards": {"up": {"__dict__": {"weight": 2.0}}}}, r"rewards\['up'\] has no '__dict__'"),
        ({"commands": {"twist": {"__class__": {"build": None}}}}, r"commands\['twist'\] has no '__class__'"),
        ({"commands": {"twist": {"build": None}}}, r"commands\['twist'\] has no 'build'"),
        ({"commands": {"twist": {"ranges": {"__doc__": None}}}}, r"commands\['twist'\] has no '__doc__'"),
        ({"observations": {"actor": {"__class__": 1}}}, "observations has no term .__class__."),
        ({"observations": {"actor": {"terms": None}}}, "takes its terms by their names"),
        ({"terminations": {"fell": 2.0}}, r"terminations\['fell'\] must be None, a TerminationTermCfg"),
    ],
)
def test_what_does_not_fit_is_named(sections, message):
    from envcoder_bench.sources.term_tasks.faults import PatchError

    with pytest.raises(PatchError, match=message) as error:
        patched(**sections)
    assert error.value.section in sections


def test_a_class_that_a_config_holds_is_not_changed_and_a_frozen_config_is_copied():
    from envcoder_bench.sources.term_tasks.patches import _with

    @dataclass(frozen=True)
    class Frozen:
        speed: float = 1.0

    @dataclass
    class Config:
        kind: type = Frozen
        frozen: Frozen = Frozen()

    before = Config()
    changed = _with(MjlabDialect(), "commands", "twist", before, {"kind": {"speed": 3.0}, "frozen": {"speed": 2.0}})
    assert (Frozen.speed, before.frozen.speed, changed.frozen.speed) == (1.0, 1.0, 2.0)


def test_groups_share_what_they_do_not_change():
    from envcoder_bench.sources.term_tasks.patches import patched as patched_all

    before, patch = base(), {"rewards": {"up": 2.0}}
    first, second, third = patched_all(MjlabDialect(), before, [{}, patch, patch], "actor")
    assert first is before and second is third
    assert second.rewards["slow"] is before.rewards["slow"] and second.events is before.events


def test_the_dicts_of_a_module_and_what_contradicts_them():
    from envcoder_bench.sources.term_tasks.faults import PatchError
    from envcoder_bench.sources.term_tasks.patches import in_module, only_weights

    assert in_module({"rewards": {"up": 1.0}, "torch": 1}) == {"rewards": {"up": 1.0}}
    for module in ({"rewards": [1]}, {"rewards": {}, "compute_reward": f}, {"events": {1: None}}):
        with pytest.raises(PatchError):
            in_module(module)
    assert only_weights({"rewards": {"up": 1.0}}) and not only_weights({"rewards": {"up": None}})
