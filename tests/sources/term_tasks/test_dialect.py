"""What frameworks of terms share, driven by a small one that is unlike mjlab: dicts, ``policy`` and other managers."""

import dict_framework as framework
import pytest
import torch
from dict_framework import DictDialect, LineTask, registered

from envcoder_bench.sources.term_tasks.faults import PatchError
from envcoder_bench.sources.term_tasks.patches import patched_one
from envcoder_bench.sources.term_tasks.sections import TermSections
from envcoder_bench.sources.term_tasks.words import sections_in_words
from envcoder_bench.sources.term_tasks.world import World

N = 4
OTHERS = [
    {"rewards": {"near": 3.0, "fast": None}},
    {"rewards": {"near": {"params": {"width": 2.0}}, "mine": framework.fast}},
    {"terminations": {"far": {"params": {"limit": 0.7}}}},
    {"observations": {"policy": {"scale": 0.5, "place": None}, "critic": {"goal": None}}},
    {"events": {"begin": {"params": {"reach": 0.2}}}, "commands": {"goal": {"reach": 5.0}}},
    {"observations": {"again": framework.place}},
]


def patched(**sections):
    before = registered()
    changed = patched_one(DictDialect(), before, sections, "policy")
    assert before == registered()  # other candidates have it
    return changed


def test_dicts_of_candidates_change_dicts_of_the_framework():
    cfg = patched(rewards={"near": 2, "fast": None, "smooth": {"weight": -1.0}, "mine": framework.near})
    assert list(cfg["rewards"]) == ["near", "smooth", "mine"]
    assert cfg["rewards"]["near"] == {"func": framework.near, "params": {"width": 0.5}, "weight": 2.0}
    assert cfg["rewards"]["mine"] == {"func": framework.near, "params": {}, "weight": 1.0}
    cfg = patched(events={"push": {"func": framework.put_at_random, "mode": "interval", "params": {"reach": 2.0}}})
    assert cfg["events"]["push"]["mode"] == "interval" and cfg["events"]["push"]["params"] == {"reach": 2.0}


def test_terms_outside_of_a_group_are_of_the_policy_and_attributes_are_beside_the_terms():
    cfg = patched(observations={"speed": None, "more": framework.goal, "critic": {"scale": 3.0, "place": None}})
    assert list(cfg["observations"]["policy"]) == ["scale", "place", "more"]
    assert cfg["observations"]["critic"] == {"scale": 3.0, "goal": registered()["observations"]["critic"]["goal"]}


@pytest.mark.parametrize(
    "sections, message",
    [
        ({"rewards": {"naer": 1.0}}, r"rewards has no term 'naer' \(did you mean near\?\)"),
        ({"rewards": {"near": {"wieght": 1.0}}}, r"rewards\['near'\] has no 'wieght' \(did you mean weight\?\)"),
        ({"rewards": {"near": "much"}}, r"must be a number, None, a dict of rewards, a dict or a function"),
        ({"observations": {"polic": {"scale": 1.0}}}, "no group or term 'polic'.* there are the groups policy, critic"),
    ],
)
def test_what_does_not_fit_is_named(sections, message):
    with pytest.raises(PatchError, match=message):
        patched(**sections)


def pushes(count):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(N, generator=generator) for _ in range(count)]


@pytest.mark.parametrize("group", range(len(OTHERS)))
def test_a_group_among_others_has_the_bits_of_the_group_alone(group):
    seeds = [5 + k for k in range(len(OTHERS))]
    among, alone = LineTask(N, OTHERS, seeds=seeds), LineTask(N, [OTHERS[group]], seeds=[seeds[group]])
    assert len(among.blocks) == 3  # that of the events and commands, and those before and after it
    ends = 0
    for push in pushes(40):
        results, expected = among.of_group(among.step(push), group), alone.step(push)
        ends += int(expected["ends"].sum())
        assert all(torch.equal(results[name], expected[name]) for name in expected)
    assert ends > 10 and not among.faults and len(set(expected["reward"].tolist())) > 1


def test_rewards_are_weighted_sums_of_terms_times_the_step():
    task = LineTask(N, [{}, {"rewards": {"near": 3.0, "fast": None}}])
    for push in pushes(3):
        results = task.step(push)
        first, second = (task.of_group(results, group) for group in range(2))
        assert torch.allclose(first["reward"], first["terms"].sum(dim=1), atol=1e-6)
        assert torch.allclose(second["terms"][:, 0], 3.0 * first["terms"][:, 0]) and not second["terms"][:, 2:].any()
        assert bool((first["terms"][:, 1] <= 0.0).all()) and first["terms"][:, 0].max() <= framework.DT


def test_a_distinct_term_is_evaluated_once_for_all_groups():
    calls = []

    def counted(env):
        calls.append(env.num_envs)
        return env.place()

    cfg = registered()
    cfg["rewards"] = {"counted": {"func": counted, "params": {}, "weight": 1.0}}
    task = LineTask(N, [{"rewards": {"counted": float(k)}} for k in range(5)], cfg=cfg)
    calls.clear()
    results = task.step(torch.ones(N))
    assert calls == [5 * N] and not results["reward"][:N].any() and results["reward"][N:].any()


def test_a_candidates_term_that_raises_stops_its_group_alone():
    def broken(env):
        if env.world.steps > 1:
            raise RuntimeError("no place")
        return env.place()

    task = LineTask(N, [OTHERS[4], {"rewards": {"bad": broken}}, {}])
    assert [list(block.groups) for block in task.blocks] == [[0], [1, 2]]
    alone = {0: LineTask(N, [OTHERS[4]]), 2: LineTask(N)}
    for push in pushes(4):
        results = task.step(push)
        for group, own in alone.items():
            assert torch.equal(task.of_group(results, group)["reward"], own.step(push)["reward"])
    assert list(task.faults) == [1] and str(task.faults[1]) == "the term 'bad' raised RuntimeError: no place"


def test_a_term_of_some_groups_may_need_what_the_first_episode_begins_with():
    def gait(env):
        assert env.world.steps, "nothing was drawn yet"
        return env.place()

    cfg = registered()
    cfg["rewards"]["gait"] = {"func": gait, "params": {}, "weight": 1.0}
    task = LineTask(N, [{}, {"rewards": {"gait": None}}], cfg=cfg)
    task.step(torch.ones(N))
    assert not task.faults


def test_a_curriculum_sets_weights_of_its_own_groups():
    easier = {"easier": {"func": framework.make_easier, "params": {"term": "near", "weight": 9.0}}}
    task = LineTask(N, [{}, {"curriculum": easier}])
    results = task.step(torch.zeros(N))
    first, second = (task.of_group(results, group)["terms"][:, 0] for group in range(2))
    assert torch.allclose(second, 9.0 * first) and first.any()


def test_a_changed_number_of_a_config_is_noticed_once():
    later = {"later": {"func": framework.make_easier_later, "params": {"term": "near", "weight": 9.0}}}
    task, noticed, weights = LineTask(N, [{"curriculum": later}]), [], []
    block = task.blocks[0]
    before = task.get_state()
    for push in pushes(14):
        noticed.append(block.has_new_settings())
        weights.append(block.rewards.terms[0].cfg["weight"])
        task.step(push)
    changes = [a != b for a, b in zip(weights[1:], weights)]
    assert noticed == [True, *changes] and sum(changes) == 1  # the first time there is nothing to compare with
    block.has_new_settings()
    task.set_state(before)
    assert block.has_new_settings() and not block.has_new_settings()
    assert not LineTask(N).blocks[0].has_new_settings()


def test_a_replaced_config_is_noticed_each_time():
    def heavier(env, env_ids):
        cfg = env.reward_manager.get_term_cfg("near")
        env.reward_manager.set_term_cfg("near", {**cfg, "weight": cfg["weight"] + 1.0})

    task, noticed = LineTask(N, [{"curriculum": {"heavier": {"func": heavier, "params": {}}}}]), []
    for push in pushes(3):
        task.step(push)
        noticed.append(task.blocks[0].has_new_settings())
    assert noticed == [True] * 3


def test_a_term_counts_as_soon_as_a_curriculum_gives_it_a_weight_and_no_longer():
    def in_step_3(env, env_ids):
        env.reward_manager.get_term_cfg("near")["weight"] = 9.0 if env.world.steps == 3 else 0.0

    cfg = framework.registered()
    cfg["rewards"]["near"]["weight"] = 0.0
    task, sums = LineTask(N, [{"curriculum": {"later": {"func": in_step_3, "params": {}}}}], cfg=cfg), []
    for _ in range(5):
        sums.append(float(task.step(torch.zeros(N))["terms"][:, 0].abs().sum()))
    assert [x > 0 for x in sums] == [False, False, False, True, False]


def test_metrics_of_commands_begin_anew_with_an_episode():
    task, begun = LineTask(N), 0
    for push in pushes(40):
        ends, changes = task.step(push)["ends"], task.blocks[0].command_manager["goal"].metrics["changes"]
        assert (changes[ends] == 1).all()  # the command of the new episode
        begun += int(ends.sum())
    assert begun > 2 and changes.max() > 1


def test_a_task_goes_on_bitwise_from_a_checkpoint():
    later = {"later": {"func": framework.make_easier_later, "params": {"term": "near", "weight": 9.0}}}
    groups = [*OTHERS, {"curriculum": later}]
    task, other = LineTask(N, groups), LineTask(N, groups)
    steps = pushes(14)
    for push in steps[:7]:
        task.step(push)
    other.set_state(task.get_state())
    for push in steps[7:]:
        results, expected = other.step(push), task.step(push)
        assert all(torch.equal(results[name], expected[name]) for name in expected)


def test_dicts_get_functions_that_read_the_results_of_their_terms():
    sections = TermSections(framework.facts(), lambda num_envs: LineTask(num_envs))
    module = {"rewards": {"fast": None, "mine": framework.near}, "observations": {"place": None}}
    functions, patches = sections.complete(module, "")
    assert patches == module
    assert set(functions) == {
        *("compute_reward", "compute_observation", "compute_critic_observation", "compute_terminal"),
    }
    _, terms = functions["compute_reward"](torch.ones(2), torch.arange(8.0).view(2, 4))
    assert list(terms) == ["near", "smooth", "mine"] and terms["mine"].tolist() == [2.0, 6.0]
    assert functions["compute_observation"](torch.zeros(2, 8)).shape == (2, 1)
    with pytest.raises(PatchError, match="the observations 'policy' of the actor have no term"):
        sections.complete({"observations": {"policy": {"place": None, "speed": None}}}, "")
    with pytest.raises(PatchError, match=r"the term 'wide' returns shape \(11, 1\)"):
        sections.complete({"rewards": {"wide": framework.place}}, "")


def test_equal_dicts_are_tried_once():
    trial = LineTask(11)
    sections, tried = TermSections(framework.facts(), lambda num_envs: trial), []
    trial.try_step = lambda patches: tried.append(patches)
    later = {"later": {"func": framework.make_easier_later, "params": {"term": "near", "weight": 9.0}}}
    for weight in (1.0, 2.0, 1.0):
        sections.complete({"rewards": {"smooth": weight}, "curriculum": dict(later)}, "")
    for _ in range(2):  # loading a file again makes other functions, which may be others
        sections.complete({"rewards": {"mine": lambda env: framework.near(env)}}, "")
    assert [len(patches) for patches in tried] == [2, 2, 1, 1]


def test_terms_in_words():
    lines = list(sections_in_words(LineTask(2).blocks[0]))
    assert lines[0] == "Observation terms of `policy`, with their columns: place 1, speed 1."
    rewards = next(line for line in lines if "`rewards`" in line)
    assert "`near`: weight 1.0, width 0.5, near (How near the origin a body is)" in rewards


@pytest.mark.parametrize(
    "name",
    ["view", "part", "held", "get_simulation", "set_simulation", "sense", "sensed", "capturing", "replayed", "forget"],
)
def test_a_world_that_lacks_a_method_is_not_made(name):
    methods = dict.fromkeys(World.__abstractmethods__, lambda self: None)
    assert type("Whole", (World,), methods)()
    with pytest.raises(TypeError, match=name):
        type("Part", (World,), {each: x for each, x in methods.items() if each != name})()
