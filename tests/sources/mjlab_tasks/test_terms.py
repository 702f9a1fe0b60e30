"""Distinct terms are evaluated once, for the groups that use them."""

from types import SimpleNamespace

import pytest
import torch

from envcoder_bench.sources.mjlab_tasks.dialect import MjlabDialect

N = 3  # environments of a group


def table_of(configs, attributes=()):
    from envcoder_bench.sources.term_tasks.terms import TermTable

    def make_env(rows):
        n = rows.stop - rows.start
        return SimpleNamespace(num_envs=n, rows=rows, scene={"robot": None}, x=torch.arange(rows.start, rows.stop))

    return TermTable(MjlabDialect(), "rewards", configs, N, attributes, make_env, torch.device("cpu"))


def reward(func, weight=1.0, **params):
    from mjlab.managers.reward_manager import RewardTermCfg

    return RewardTermCfg(func=func, weight=weight, params=params)


def counted(calls, name):
    def func(env, scale=1.0):
        calls.append((name, env.num_envs))
        return scale * env.x.float()

    return func


@pytest.mark.parametrize("groups", [1, 1000])
def test_a_thousand_settings_of_weights_evaluate_each_term_once(groups):
    calls = []
    a, b = counted(calls, "a"), counted(calls, "b")
    table = table_of([{"a": reward(a, float(k)), "b": reward(b, -1.0, scale=2.0)} for k in range(groups)])
    calls.clear()
    assert len(table.terms) == 2
    for term in table.terms:
        term()
    assert calls == [("a", groups * N), ("b", groups * N)]


def test_other_parameters_or_another_function_are_another_term_of_its_groups_alone():
    calls = []
    a, b = counted(calls, "a"), counted(calls, "b")
    base = {"a": reward(a), "end": reward(b)}
    table = table_of([base, {**base, "a": reward(a, scale=3.0)}, base, {**base, "mine": reward(b, scale=2.0)}])
    calls.clear()
    shapes = {(term.name, term.cfg.params.get("scale", 1.0)): tuple(term().shape) for term in table.terms}
    assert shapes == {("a", 1.0): (4 * N,), ("a", 3.0): (N,), ("end", 1.0): (4 * N,), ("mine", 2.0): (N,)}
    assert [name for name, _ in calls].count("a") == 2
    used = {term.name: sorted(term.groups) for term in table.terms if term.name != "a"}
    assert used == {"end": [0, 1, 2, 3], "mine": [3]}


def test_the_order_of_each_config_is_kept():
    from envcoder_bench.sources.term_tasks.terms import merged_order

    configs = [{"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 9, "c": 3, "d": 4}, {"b": 2, "c": 3}]
    order = merged_order(configs, lambda x: x)
    for config in configs:
        places = [order.index(item) for item in config.items()]
        assert places == sorted(places)
    assert len(order) == 5


def test_equal_parameters_are_one_term_although_they_are_other_objects():
    from mjlab.managers.scene_entity_config import SceneEntityCfg

    calls = []
    a = counted(calls, "a")
    func = lambda env, cfg, std: a(env)  # noqa: E731
    configs = [{"a": reward(func, cfg=SceneEntityCfg("robot"), std={"x": [1.0, 2.0]})} for _ in range(3)]
    assert len(table_of(configs).terms) == 1
    configs[1]["a"].params["std"] = {"x": [1.0, 2.5]}
    assert len(table_of(configs).terms) == 2


def test_a_class_has_an_instance_for_its_environments_and_is_reset():
    class Count:
        def __init__(self, cfg, env):
            self.n = torch.zeros(env.num_envs)

        def __call__(self, env):
            self.n += 1.0
            return self.n.clone()

        def reset(self, env_ids):
            self.n[env_ids] = 0.0

    table = table_of([{"a": reward(Count)}, {"a": reward(Count), "b": reward(Count, x=1)}][:1] * 2)
    (term,) = table.terms
    term(), term()
    table.reset(lambda rows: torch.tensor([0]))
    assert term().tolist() == [1.0] + [3.0] * 5


@pytest.mark.parametrize("value", [lambda env: env.x[:, None].float(), lambda env: env.x[:1], lambda env: 1.0])
def test_a_term_of_another_shape_is_named(value):
    from envcoder_bench.sources.term_tasks.faults import PatchError

    (term,) = table_of([{"wide": reward(value)}]).terms
    with pytest.raises(PatchError, match=r"the term 'wide' returns .*; for 3 environments it must be \(3,\)"):
        term()
