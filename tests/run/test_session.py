"""A session trains with any trainer of the interface: here a random search in a separate file."""

import copy
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from helpers import (
    BREAKS_MIDWAY,
    CARTPOLE_QUICK,
    FIVE_ACTIONS,
    TINY_WORDS,
    refused,
    results,
    run,
    stopped_at,
    write_candidates,
)

from envcoder_bench.cli import eval_shapers
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.results.logs import RunLogs
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.plan import MemoryPlanner
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.run.train.session import Session, Shared, Wave
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.trainers.base import Trainer

CANDIDATES = {"five_actions": FIVE_ACTIONS, "breaks_midway": BREAKS_MIDWAY.replace("25", "3")}
MINE = ["train.params.algo.name=test_session:RandomSearch"]


class RandomSearch(Trainer):
    """A linear policy for each group: perturbed, and kept where the rollout's reward was the best so far."""

    wants_final_obs = True
    made = 0

    def __init__(self, layout, obs_dims, action_dims, seeds, params, device):
        type(self).made += 1
        self.layout, self.horizon = layout, params["config"]["horizon_length"]
        self.dims = list(zip(obs_dims, action_dims))
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.best = [torch.zeros(a, o) for o, a in self.dims]
        self.tried = [torch.randn(each.shape, generator=own) for each, own in zip(self.best, self.generators)]
        self.score = torch.full((layout.num_groups,), -torch.inf)
        self.reward = torch.zeros(layout.num_groups)
        self.alive = [True] * layout.num_groups

    @classmethod
    def check(cls, params, num_envs):
        if params["config"]["horizon_length"] > 99:
            raise ValueError("params.config.horizon_length: random search wants at most 99")

    @classmethod
    def memory(cls, params, num_envs, num_seeds, device):
        return lambda widths: sum(8 * obs * act for obs, act in widths)

    def set_alive(self, alive):
        self.alive = list(alive)

    def _actions(self, layout, obs, weights):
        actions = torch.zeros(*layout.split(obs).shape[:2], max(a for _, a in self.dims))
        for g, (own, (o, a)) in enumerate(zip(weights, self.dims)):
            if self.alive[g]:
                actions[g, :, :a] = (layout.split(obs)[g, :, :o] @ own.T).clamp(-1.0, 1.0)
        return layout.merge(actions)

    def act(self, obs):
        return self._actions(self.layout, obs, self.tried)

    def record(self, step):
        assert step.final_obs.shape == step.obs.shape
        self.reward += self.layout.split(step.reward).mean(dim=1)

    def learn(self, last_obs):
        for g, own in enumerate(self.alive):
            if own and self.reward[g] > self.score[g]:
                self.best[g], self.score[g] = self.tried[g], self.reward[g]
            self.tried[g] = self.best[g] + torch.randn(self.best[g].shape, generator=self.generators[g])
        self.reward.zero_()
        dead = torch.tensor(self.alive).logical_not()
        return {"score": self.score.masked_fill(dead, torch.nan)}

    def policy(self, layout):
        return lambda obs: self._actions(layout, obs, self.best)

    def export(self, group):
        return {"model": {"weight": self.best[group].clone()}}

    def get_state(self):
        return {
            "best": [each.clone() for each in self.best],
            "tried": [each.clone() for each in self.tried],
            "score": self.score.clone(),
            "generators": [each.get_state() for each in self.generators],
        }

    def set_state(self, state):
        self.best, self.tried = ([each.clone() for each in state[key]] for key in ("best", "tried"))
        self.score = state["score"].clone()
        for generator, own in zip(self.generators, state["generators"]):
            generator.set_state(own)


def words(folder, iterations=4):
    files = write_candidates(folder / "files", CANDIDATES)
    size = ["--num_envs_per_candidate", 8, "--learning_iterations", iterations]
    return [*CARTPOLE_QUICK, *TINY_WORDS, *size, "--candidates", *files, *MINE]


@pytest.mark.slow
def test_external_trainer_is_trained_ranked_and_exported(tmp_path):
    RandomSearch.made = 0
    output = run(tmp_path / "run", *words(tmp_path))
    assert RandomSearch.made == 2  # one of the wave, and one of the untrained policy
    rows = results(output)
    assert rows.loc["breaks_midway", "status"] == "failed" and "on purpose" in rows.loc["breaks_midway", "error"]
    assert set(rows.drop("breaks_midway")["status"]) == {"ok"}
    for name, width in (("human", 1), ("five_actions", 5)):
        saved = torch.load(output / "candidates" / name / "policy.pth", weights_only=True)
        assert saved["model"]["weight"].shape[0] == width and saved["model"]["weight"].abs().sum() > 0
    curves = pd.read_csv(output / "curves.csv")
    assert curves["shaped_return"].notna().any()
    assert curves[["kl", "learning_rate", "entropy", "value_loss"]].isna().all().all()  # which it does not have


def test_external_trainer_defines_its_parameters_and_memory(tmp_path, capsys):
    wrong = [*words(tmp_path), "train.params.config.horizon_length=100", "--output_dir", tmp_path / "run"]
    told = refused(eval_shapers.main, wrong, capsys)
    assert "train.params.config.horizon_length: random search wants at most 99" in told
    ppo, mine = (
        MemoryPlanner(RunSpec.of(compose_config("Cartpole", ["sim=mujoco_cpu", "device=cpu", *more])))
        for more in ([], MINE)
    )
    assert ppo.bytes([(500, 9), (3, 1)]) > mine.bytes([(500, 9), (3, 1)])
    assert mine.bytes([(500, 9), (3, 2)]) - mine.bytes([(500, 9), (3, 1)]) == 8 * 3


# a session by itself


class Ears(Reporter):
    def __init__(self):
        self.heard = []

    def wave_began(self, number, waves, iteration, iterations):
        self.heard.append(("began", number, waves, iteration, iterations))

    def iteration_done(self, iteration, env_steps, best):
        self.heard.append((iteration, env_steps))

    def wave_ended(self):
        self.heard.append("ended")


LENGTHS = {"Cartpole": "task.env.episodeLength=20", "Anymal": "task.env.learn.episodeLength_s=0.4"}


def make_session(folder, total=6, overrides=(), task="Cartpole", **more):
    """A session of both baselines, and the states that it saves."""
    size = [f"learning_iterations={total}", "num_envs_per_candidate=4", "evaluation.points=2", "evaluation.num_envs=2"]
    size += ["evaluation.final_episodes=4", "train.params.config.mini_epochs=2", LENGTHS[task]]
    size += ["compile_shapers=false", "train.params.config.horizon_length=4", "train.params.network.mlp.units=[16,16]"]
    cfg = compose_config(task, ["sim=mujoco_cpu", "device=cpu", *size, *overrides])
    spec = RunSpec.of(cfg, baseline_sources(find_spec(task)))
    groups, _ = prepare(spec)
    evaluated, saved = [], []
    folder.mkdir(exist_ok=True)
    session = Session(
        spec, Wave(groups), Shared(RunLogs.begin(folder), **more),
        lambda own: evaluated.append(own.iteration), lambda state: saved.append(copy.deepcopy(state)),
    )  # fmt: skip
    return session, evaluated, saved


def weights(session):
    exported = [session.trainer.export(g)["model"] for g in range(len(session.groups))]
    return {f"{g}.{key}": x for g, own in enumerate(exported) for key, x in own.items()}


@pytest.mark.slow
def test_iterating_by_hand_equals_train(tmp_path):
    ears = Ears()
    by_hand, evaluated, _ = make_session(tmp_path / "a")
    trained, *_ = make_session(tmp_path / "b", reporter=ears)
    while not by_hand.complete:
        by_hand.iterate()
    trained.train()
    assert evaluated == [3, 6]
    assert ears.heard == [("began", 1, 1, 0, 6), *[(k, k * 2 * 4 * 4) for k in range(1, 7)], "ended"]
    assert torch.equal(by_hand.episodes.fitness, trained.episodes.fitness)
    assert all(torch.equal(x, weights(trained)[key]) for key, x in weights(by_hand).items())
    again = run_episodes(by_hand.evaluation, by_hand.trainer.policy(by_hand.evaluation.layout), 1, 0)
    assert again.fitness.shape == (2, 2)


@pytest.mark.slow
def test_curves_written_while_the_device_trains_are_those_written_at_once(tmp_path, monkeypatch):
    class After(Reporter):
        def iteration_done(self, iteration, env_steps, best):
            rows.append(session.logs.curves.rows)
            if iteration == 5:
                stop("enough")

    counts = []
    for name, overlaps in (("at_once", False), ("later", True)):
        monkeypatch.setattr(Session, "_overlaps", overlaps)
        rows, stop = [], StopRequest()
        session, *_ = make_session(tmp_path / name, total=8, reporter=After(), stop=stop)
        session.train()
        assert read_rows(tmp_path / name) == 10  # two groups; nothing is lost where training is stopped
        session.stop = StopRequest()
        session.train()
        session.logs.close()
        counts.append(rows)
    assert counts[0] == list(range(2, 17, 2))
    assert counts[1] == [0, 2, 4, 8, 8, 10, 12, 16]  # the fourth and the last iteration are evaluated
    for file in ("curves.csv", "components.csv"):
        assert (tmp_path / "at_once" / file).read_text() == (tmp_path / "later" / file).read_text()


def read_rows(folder):
    return len(pd.read_csv(folder / "curves.csv"))


@pytest.fixture(scope="module")
def of_full_episodes(tmp_path_factory):
    """A trained session whose evaluations all play full episodes, and the lengths of these at the first one."""
    session, *_ = make_session(tmp_path_factory.mktemp("full") / "a", overrides=["evaluation.point_steps=null"])
    lengths = []
    session.on_evaluation = lambda own: lengths.append(own.episodes.length)
    session.train()
    return session, lengths[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "steps"),
    [
        (["evaluation.point_steps=7"], 7),
        (["evaluation.point_steps=7", "evaluation.record=true"], 19),
        (["evaluation.point_steps=null"], 19),
        (["evaluation.point_steps=1000"], 19),
    ],
)
def test_intermediate_evaluations_play_the_beginning_of_the_episodes(tmp_path, of_full_episodes, overrides, steps):
    (straight, lengths), played = of_full_episodes, []
    session, *_ = make_session(tmp_path / "a", overrides=overrides)
    session.on_evaluation = lambda own: played.append(own.episodes)
    session.train()
    assert [own.length.shape[1] for own in played] == [2, 4]
    assert torch.equal(played[0].length, lengths.clamp(max=steps))
    assert torch.equal(session.episodes.fitness, straight.episodes.fitness)  # the last one is as it was
    assert all(torch.equal(x, weights(straight)[key]) for key, x in weights(session).items())


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"overrides": MINE}, {"task": "Anymal"}])  # which has goals of its own
def test_stopped_session_saves_a_state_that_another_resumes(tmp_path, more):
    straight, _, none = make_session(tmp_path / "a", **more)
    first, _, saved = make_session(tmp_path / "b", **stopped_at(4), **more)
    second, evaluated, _ = make_session(tmp_path / "c", **more)
    straight.train()
    first.train()
    assert (first.iteration, first.complete, len(saved), none) == (4, False, 1, [])
    torch.save(saved[0], tmp_path / "state.pth")  # plain data
    second.restore(torch.load(tmp_path / "state.pth", weights_only=True), tmp_path / "state.pth")
    assert (second.iteration, second.env_steps(0)) == (4, first.env_steps(0)) and first.env_steps(0) > 0
    assert torch.equal(second.episodes.fitness, first.episodes.fitness)
    second.train()
    assert evaluated == [6]
    assert all(torch.equal(x, weights(straight)[key]) for key, x in weights(second).items())
    assert torch.equal(second.episodes.fitness, straight.episodes.fitness)
    assert set(second.stats) == set(straight.stats) != set()


@pytest.mark.slow
@pytest.mark.parametrize("seconds, saved_after", [(0.1, [3, 6, 9]), (5.0, [3, 8])])
def test_checkpoints_take_at_most_a_twentieth_of_the_time(tmp_path, monkeypatch, seconds, saved_after):
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("envcoder_bench.run.train.session.time", clock)
    session, _, saved = make_session(tmp_path, 10, ["checkpoint_minutes=1"])
    keep, iterate = saved.append, session.iterate

    def slow(state):
        clock.now += seconds
        keep(state)

    def of_25_seconds():
        iterate()
        clock.now += 25.0

    session.save, session.iterate = slow, of_25_seconds
    session.train()
    assert [state["iteration"] for state in saved] == saved_after
