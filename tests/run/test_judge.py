"""Rewards are judged on states that policies met: what is recorded, planted bugs, and what cannot be judged."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import write_candidates

from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.env.trajectories import Recorder, pack, unpack
from envcoder_bench.run import lint
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.inputs import read_candidates, resolve, with_candidates
from envcoder_bench.run.lint import Judge, slowed
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import check_and_trace, make_context, make_group
from envcoder_bench.run.prepare.run_files import SlowFiles
from envcoder_bench.shaping import copies

HUMAN = "1.0 - pole_angle ** 2 - 0.01 * cart_vel.abs() - 0.005 * pole_vel.abs()"
REWARDS = {
    "good": f"def compute_reward(pole_angle, cart_vel, pole_vel):\n    return {HUMAN}\n",
    "twin": f"def compute_reward(pole_angle, cart_vel, pole_vel):\n    return {HUMAN} + 1e-6 * torch.cos(cart_vel)\n",
    "weak": f"def compute_reward(pole_angle, cart_vel, pole_vel):\n    return {HUMAN} + 1e-2 * torch.cos(cart_vel)\n",
    "minus": f"def compute_reward(pole_angle, cart_vel, pole_vel):\n    return -({HUMAN})\n",
    "sways": "def compute_reward(cart_vel):\n    return 1 + cart_vel.abs()\n",
    "bonus": "def compute_reward(pole_angle):\n    up, one = pole_angle.cos(), torch.ones_like(pole_angle)\n"
    '    return up + 2 * one, {"up": up, "bonus": 2 * one}\n',
    "nan": "def compute_reward(pole_angle):\n    return (0.1 - pole_angle.abs()).sqrt() + 1\n",
    "keeps": "N = []\ndef compute_reward(pole_angle):\n    N.append(1)\n    return pole_angle\n",
    "wide": "ACTION_DIM = 3\ndef compute_torque(action, dof_pos):\n    return action[:, :2]\n"
    "def compute_reward(actions):\n    return actions[:, 0]\n",
}
SMALL = [
    "device=cpu",
    "sim=mujoco_cpu",
    "num_envs_per_candidate=4",
    "task.env.episodeLength=120",
    "compile_shapers=false",
]
ENVS, FULL = 12, 119


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A run's spec and context, checked rewards, and episodes of a policy that balances and of one that does not."""
    folder = tmp_path_factory.mktemp("rewards")
    write_candidates(folder, REWARDS)
    spec = resolve("Cartpole", SMALL)
    spec = with_candidates(spec, read_candidates("Cartpole", folder, None), None)
    with SlowFiles() as slow:
        context = make_context(spec, slow)
        shapings = {source.name: check_and_trace(source, context, 0) for source in spec.sources}
    human = context.files.baselines["human"]
    group = make_group(human, shapings["human"], context, 0)
    env = build_env(spec, [group.evaluation], [0], ENVS)
    gains, kept, lengths = -torch.tensor([[0.02, 0.02], [1.0, 0.15]]), {}, {}
    first = torch.arange(ENVS) == 0  # the others begin anew while it goes on
    for name, works in (("untrained", 0 * first), ("unshaped", first), ("human", 1)):

        def policy(obs, works=works):
            both = torch.stack([env.state["dof_pos"], env.state["dof_vel"]], dim=2)
            return (works * (both * gains).sum(dim=(1, 2))).unsqueeze(1)

        recorder = Recorder(env, {0: name})
        played = run_episodes(env, policy, 1, 7, recorder=recorder)
        kept |= recorder.result(played.fitness)
        lengths[name] = played.length[0].numpy()
    return context, shapings, kept, lengths


def test_weights_count_the_steps_of_each_episode(prepared):
    """An episode that ended has its last state, on which the pole or the cart was out of bounds."""
    *_, kept, lengths = prepared
    assert (lengths["human"] == FULL).all() and (lengths["untrained"] < FULL).all()
    for name, one in kept.items():
        assert one.fitness.shape == (ENVS,) and set(one.state) > {"actions", "progress_buf", "dof_vel"}
        ended = one.weight[-1]
        assert (ended == (lengths[name] < FULL)).all()
        times, weight = kept["human"].state["progress_buf"][:-1, 0] - 1, kept["human"].weight[:-1, 0]
        assert times[0] == 0 and weight.sum() == FULL
        expected = weight[:, None] * (times[:, None] < lengths[name])
        played = len(one.weight) - 1  # until all have ended
        assert np.allclose(one.weight[:-1], expected[:played]) and not expected[played:].any()
        assert (one.state["progress_buf"][-1][ended > 0] == lengths[name][ended > 0] + 1).all()
        out = (np.abs(one.state["pole_angle"][-1]) > np.pi / 2) | (np.abs(one.state["cart_pos"][-1]) > 3)
        assert out[ended > 0].all()
        assert np.array_equal(one.state["dof_pos"][..., 1], one.state["pole_angle"])
    assert set(times) & set(lengths["untrained"]), "an episode ends at a time that is recorded"


def test_trajectories_are_read_as_they_were_written(prepared, tmp_path):
    *_, kept, _ = prepared
    again = unpack(pack(kept))
    assert list(again) == list(kept)
    for name, one in kept.items():
        assert all(np.array_equal(one.state[key], x) for key, x in again[name].state.items())
        assert np.array_equal(one.weight, again[name].weight) and again[name].state.keys() == one.state.keys()
    (tmp_path / "x.npz").write_bytes(pack(kept)[:500])
    assert lint.read(tmp_path / "x.npz") == lint.read(tmp_path / "absent.npz") == {}


def test_planted_bugs_are_found_and_no_others(prepared):
    context, shapings, kept, _ = prepared
    kept = unpack(pack(kept))
    for one in kept.values():  # states after the end of an episode do not count
        one.state["pole_angle"][one.weight == 0] = np.nan
    judge = Judge(context.task, kept)
    assert str(judge).startswith("rewards are judged on trajectories") and judge.fit == "human"
    verdicts = {name: judge(shaping) for name, shaping in shapings.items()}
    for name in ("human", "unshaped", "good"):
        assert verdicts[name].remarks == [] and not verdicts[name].not_judged
    (line,) = verdicts["minus"].remarks
    assert line.startswith("the reward opposes the fitness: it is higher for the untrained policy, in 12 of 12")
    (line,) = verdicts["sways"].remarks
    assert line.startswith("the reward hardly follows the fitness: of two states that policies met")
    unknown = Judge(replace(context.task, fitness=None), kept)
    assert unknown(shapings["sways"]).remarks == [] and unknown(shapings["minus"]).remarks == verdicts["minus"].remarks
    other = Judge(replace(context.task, fitness=lambda state: -state["pole_angle"].cos()), kept)  # not the recorded one
    assert other(shapings["good"]).remarks == other(shapings["sways"]).remarks == []
    (line,) = verdicts["bonus"].remarks
    assert line.startswith("the term bonus is 2 in all ")
    reasons = {"nan": "returned NaN or infinity", "keeps": "keeps values", "wide": "actions have another width"}
    for name, reason in reasons.items():
        assert reason in verdicts[name].not_judged and not verdicts[name].remarks


def test_a_reward_with_the_values_of_another_is_its_twin(prepared):
    context, shapings, kept, _ = prepared
    judge = Judge(context.task, kept)
    names = ["human", "good", "twin", "weak", "minus", "sways", "nan", "keeps", "wide"]
    values = {name: judge.values(shapings[name]) for name in names}
    assert [len(values[name]) for name in names] == [2] * 6 + [0] * 3
    texts = {**REWARDS, "human": context.files.baselines["human"].source}
    assert lint.twins(texts, texts["human"], None, values) == {"twin": "good"}
    # other functions that differ make another candidate, and so do states that nobody met
    texts["twin"] += "def compute_terminal(pole_angle):\n    return pole_angle.abs() > 1.2\n"
    assert lint.twins(texts, texts["human"], None, values) == {}
    apart = [values["good"][0], 1.1 * values["good"][1]]
    assert lint.twins(REWARDS, texts["human"], None, {"good": values["good"], "twin": apart}) == {}
    constant = [np.ones(9), np.ones(9)]
    assert lint.twins(REWARDS, texts["human"], None, {"good": constant, "twin": constant}) == {}


def test_each_text_is_read_once_however_many_are_twins(monkeypatch):
    copies._read.cache_clear()
    reads, read = [], copies.shaping_source
    monkeypatch.setattr(copies, "shaping_source", lambda text, types: reads.append(text) or read(text, types))
    texts = {f"n{k}": f"{REWARDS['good']}# read once, {k}\n" for k in range(9)}
    values = {name: [np.arange(4.0)] for name in texts}
    assert set(lint.twins(texts, "", None, values)) == {*texts} - {"n0"}
    assert len(texts) <= len(reads) == len(set(reads))


def test_what_fails_in_one_reward_costs_no_verdict_of_another(prepared, tmp_path, monkeypatch, capsys):
    context, _, kept, _ = prepared
    prints = REWARDS["good"].replace("    return", '    print("hacked")\n    return')
    write_candidates(tmp_path, {"a": prints, "b": REWARDS["good"], "c": REWARDS["bonus"]})
    spec = with_candidates(resolve("Cartpole", SMALL), read_candidates("Cartpole", tmp_path, None), None)
    monkeypatch.setattr(lint, "make_context", lambda *_: context)
    judge, names = Judge.__call__, ["a", "b", "c"]

    def judged(kept, fails=""):
        def call(self, shaping):
            if shaping.file.endswith(f"{fails}.py") and fails:
                raise ZeroDivisionError
            return judge(self, shaping)

        monkeypatch.setattr(lint, "read", lambda path: kept)
        monkeypatch.setattr(Judge, "__call__", call)
        return lint.judge_run(RunFolder(tmp_path), spec, names)

    verdicts = judged(kept)
    assert [verdicts[name].same_as for name in names] == ["", "a", ""] and "hacked" not in "".join(capsys.readouterr())
    # it is not a twin of what was not judged, nor the other way round
    assert judged(kept, fails="b").keys() == {"a"}
    # no baseline is kept
    verdicts = judged({"untrained": kept["untrained"]})
    assert all("no trajectories" in verdicts[name].not_judged for name in names)


def test_what_cannot_be_judged_is_said(prepared):
    context, shapings, kept, _ = prepared
    alike = Judge(context.task, {"human": kept["untrained"], "untrained": kept["untrained"]})
    assert "no baseline was clearly fitter" in str(alike)
    assert alike.lines(shapings["minus"]) == [] and alike(shapings["minus"]).not_judged in str(alike)
    none = Judge(context.task, {"human": kept["human"]})
    assert "no trajectories" in str(none) and none(shapings["minus"]).not_judged in str(none)
    poses = {name: replace(one, state={**one.state}) for name, one in kept.items()}
    for one in poses.values():
        one.state.update({key: 0 * x for key, x in one.state.items() if key.endswith("vel")})
    assert Judge(context.task, poses)(shapings["good"]).not_judged.startswith("whether it pays for standing still")
    del (other := unpack(pack(kept)))["human"].state["dof_vel"]
    assert "another version of the task" in str(Judge(context.task, other))


def test_cache_keeps_the_fitter_baseline_of_each_config(prepared, tmp_path, monkeypatch):
    *_, kept, _ = prepared
    monkeypatch.setenv("ENVCODER_BENCH_CACHE", str(tmp_path / "cache"))
    folder, spec = RunFolder(tmp_path), resolve("Cartpole", SMALL)

    def fitness_after(human):
        lint.add(folder, {"human": human})
        lint.keep(folder, spec)
        return lint.read(lint.cached(spec))["human"].fitness.mean()

    lint.add(folder, {"human": kept["untrained"]})
    lint.keep(folder, spec)
    assert lint.read(lint.cached(spec)) == {}, "the untrained policy is missing"
    lint.add(folder, {"untrained": kept["untrained"]})
    worse, better = kept["untrained"].fitness.mean(), kept["human"].fitness.mean()
    assert fitness_after(kept["untrained"]) == worse < better
    assert fitness_after(kept["human"]) == fitness_after(kept["untrained"]) == better
    assert set(lint.read(folder.trajectories)) == {"human", "untrained"}
    assert lint.cached(resolve("Cartpole", SMALL[:2])) != lint.cached(spec)


def test_slowed_states_have_no_velocities_and_the_same_poses():
    state = {
        "root_states": torch.rand(5, 13),
        "initial_root_states": torch.rand(5, 13),
        "base_lin_vel": torch.rand(5, 3),
        "robot.body_lin_vel_w": torch.rand(5, 4, 3),
        "cart_vel": torch.rand(5),
        "dof_state": torch.rand(5, 2, 2),
        "commands": torch.rand(5, 3),
        "potentials": torch.rand(5),
        "prev_potentials": torch.rand(5),
        "last_dof_vel": torch.rand(5, 2),
        "dof_vel": torch.rand(5, 2),
        "progress_buf": torch.arange(5),
    }
    still, same = slowed(state, 0.0), slowed(state, 1.0)
    moving = {"base_lin_vel", "robot.body_lin_vel_w", "cart_vel", "last_dof_vel", "dof_vel"}
    assert not any(still[key].any() for key in moving) and not still["root_states"][:, 7:].any()
    assert torch.equal(still["dof_state"][..., 0], state["dof_state"][..., 0]) and not still["dof_state"][..., 1].any()
    assert torch.equal(still["root_states"][:, :7], state["root_states"][:, :7])
    assert torch.equal(still["prev_potentials"], state["potentials"])
    kept = set(state) - moving - {"root_states", "dof_state", "prev_potentials"}
    assert all(torch.equal(still[key], state[key]) for key in kept)
    assert all(torch.allclose(same[key], x) and same[key].shape == still[key].shape for key, x in state.items())
