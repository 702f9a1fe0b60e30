"""What is known of curricula by their code, and that groups with other ones do not depend on each other."""

import functools
import math
import random

import pytest
import torch
from dict_framework import LineTask, registered

from envcoder_bench.sources.term_tasks.curricula.of_groups import GroupCurricula
from envcoder_bench.sources.term_tasks.curricula.plain import Plain, plain

N, STEPS = 4, 60
kept = {"calls": 0}
HALF = 0.5


def each_fourth(env, env_ids):
    """As many forks' curricula: a number of a config is set each so many steps."""
    cfg = env.reward_manager.get_term_cfg("near")
    did = torch.mean(env.reward_manager._episode_sums["near"][env_ids]) / math.sqrt(4.0)
    if env.common_step_counter % 4 == 0:  # noqa: SIM102  as forks write it
        if did > 0.01:
            cfg["weight"] += HALF
    return did


def by_an_argument(env, env_ids, every=2 * 3):
    if env.common_step_counter % every == 0 and env.reward_manager.get_term_cfg("near")["weight"] < 4.0:
        env.reward_manager.get_term_cfg("near")["params"]["width"] *= 1.1


def at_any_step(env, env_ids):
    if torch.mean(env.reward_manager._episode_sums["near"][env_ids]) > 0.01:
        env.reward_manager.get_term_cfg("near")["weight"] *= 1.1
    return {"weight": env.reward_manager.get_term_cfg("near")["weight"]}


def from_the_left(env, env_ids):
    if 1e-1 * env.common_step_counter > 2.5:
        env.reward_manager.get_term_cfg("near")["weight"] = 3.0


def by_a_list(env, env_ids):
    env.reward_manager.get_term_cfg("near")["weight"] = [0.5, 1.0, 2.0][env.common_step_counter % 3]


def by_a_number_of_the_group(env, env_ids):
    if env.common_step_counter % env.command_manager.cfg.goal.period == 0:
        env.reward_manager.get_term_cfg("near")["weight"] = 3.0


def in_two_rhythms(env, env_ids):
    if env.common_step_counter % 4 == 0:
        env.reward_manager.get_term_cfg("near")["weight"] = 2.0
    if env.common_step_counter % 6 == 0:
        env.reward_manager.get_term_cfg("near")["weight"] = 1.0


def sets_the_environment(env, env_ids):
    env.best = torch.maximum(getattr(env, "best", torch.zeros(())), env.place().abs().max())
    if env.common_step_counter % 8 == 0:
        env.reward_manager.get_term_cfg("near")["weight"] = float(env.best)


def counts_in_a_dict(env, env_ids):
    kept["calls"] += 1
    env.reward_manager.get_term_cfg("near")["weight"] = 1.0 + 0.01 * env.common_step_counter


def draws(env, env_ids):
    env.reward_manager.get_term_cfg("near")["weight"] = 1.0 + random.random()


def sets_a_function(env, env_ids):
    env.reward_manager.get_term_cfg("near").func.gain = 2.0


def sets_a_command(env, env_ids):
    env.command_manager.get_term("goal").ranges.far = 2.0


def is_two_things(env, env_ids):
    cfg = env.reward_manager.get_term_cfg("near")
    if env.common_step_counter > 3:
        cfg = env.cfg
    cfg["weight"] = 2.0


def writes_in_place(env, env_ids):
    env.reward_manager._episode_sums["near"].zero_()


def hides_torch(env, env_ids, torch):
    env.reward_manager.get_term_cfg("near")["weight"] = torch.stack(env_ids)


def saves(env, env_ids):
    torch.save(env.place(), "place.pt")


def loops(env, env_ids):
    for _ in range(3):
        env.reward_manager.get_term_cfg("near")["weight"] *= 1.01


class Counts:
    def __init__(self):
        self.times = 0

    def __call__(self, env, env_ids):
        self.times += 1
        env.reward_manager.get_term_cfg("near")["weight"] = 1.0 + 0.01 * self.times


@pytest.mark.parametrize(
    "function, steps",
    [
        (each_fourth, [0, 4, 8]),
        (by_an_argument, [0, 6]),
        (at_any_step, list(range(10))),
        (from_the_left, list(range(10))),
        (by_a_list, list(range(10))),
        (by_a_number_of_the_group, list(range(10))),
        (in_two_rhythms, list(range(10))),
    ],
)
def test_a_function_that_sets_numbers_is_plain_and_is_called_where_it_may_set_some(function, steps):
    known = plain(function)
    assert isinstance(known, Plain) and [k for k in range(10) if known.may_act(k, None, {})] == steps


def test_the_period_is_that_of_the_parameters():
    known = plain(by_an_argument)
    assert [k for k in range(10) if known.may_act(k, None, {"every": 4})] == [0, 4, 8]
    assert all(known.may_act(k, None, {"every": 0}) for k in range(10))


@pytest.mark.parametrize(
    "function",
    [
        *(sets_the_environment, counts_in_a_dict, draws, sets_a_function, sets_a_command, is_two_things, loops),
        *(
            writes_in_place,
            hides_torch,
            saves,
            Counts(),
            functools.partial(by_an_argument, every=3),
            len,
            lambda env, env_ids: None,
        ),
    ],
)
def test_a_function_that_may_do_anything_else_is_not_plain(function):
    assert plain(function) is None


def driven(task, steps=STEPS):
    generator = torch.Generator().manual_seed(2)
    return [task.step(torch.randn(N, generator=generator)) for _ in range(steps)]


def patches_of(function):
    patches = {"curriculum": {"it": {"func": function, "params": {}}}}
    return [patches, {**patches, "rewards": {"smooth": None}}, patches]


@pytest.mark.parametrize("function", [each_fourth, by_an_argument])
def test_a_call_that_is_left_out_would_have_done_nothing(function, monkeypatch):
    task = LineTask(N, patches_of(function), seeds=[0, 0, 1], cfg=registered())
    assert len(task.blocks) == 1
    results = driven(task)
    monkeypatch.setattr(GroupCurricula, "_may_act", lambda self, name, steps: True)
    expected = driven(LineTask(N, patches_of(function), seeds=[0, 0, 1], cfg=registered()))
    for mine, others in zip(results, expected):
        assert all(torch.equal(mine[name], x) for name, x in others.items())
    without = driven(LineTask(N, [{}] * 3, seeds=[0, 0, 1], cfg=registered()))
    assert not torch.equal(results[-1]["reward"], without[-1]["reward"])


@pytest.mark.parametrize("function", [each_fourth, at_any_step, sets_the_environment, loops])
def test_a_group_is_alone_as_it_is_among_others(function):
    def made(patches, seeds):
        patches = [{**patch, "curriculum": {"it": {"func": function, "params": {}}}} for patch in patches]
        return LineTask(N, patches, seeds=seeds, cfg=registered())

    patches, seeds = [{}, {"rewards": {"smooth": None}}, {}], [0, 0, 1]
    among = made(patches, seeds)
    assert len(among.blocks) == (1 if plain(function) else 3)
    results = driven(among)
    for group in range(3):
        for mine, others in zip(driven(made(patches[group : group + 1], seeds[group : group + 1])), results):
            part = among.of_group(others, group)
            assert all(torch.equal(x[..., : part[name].shape[-1]], part[name]) for name, x in mine.items()), group
