"""Groups go on in another wave, in another order and beside others, as if nothing had happened, to the last bit."""

from pathlib import Path

import pytest
import torch
from helpers import CANDIDATES, FIVE_ACTIONS, WIDE, write_candidates

from envcoder_bench.results.logs import RunLogs
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.inputs import read_candidates
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.run.train.rows import trained
from envcoder_bench.run.train.session import Session, Shared, Wave
from envcoder_bench.sources.shipped import shipped_class

SPLIT_AT, ITERATIONS = 2, 4
CARTPOLE = {
    "cosine": CANDIDATES["cosine"],
    "five_actions": FIVE_ACTIONS,
    "random_start": """
def compute_initial_state(state_dict):
    return {"dof_pos": 0.3 * torch.rand_like(state_dict["dof_pos"])}
""",
    "slow": """
def compute_reward(pole_angle, pole_vel):
    speed = 0.1 * pole_vel.abs()
    return torch.cos(pole_angle) - speed, {"speed": speed, "angle": pole_angle, "one": torch.ones_like(speed)}
""",
    "wide": WIDE,
}
ANYMAL = {
    "height": """
def compute_reward(root_states, torques):
    height = root_states[:, 2]
    return height - 1e-5 * torques.square().sum(dim=1), {"height": height}
""",
    "human_like": "def compute_goal(commands):\n    return {'commands': torch.rand_like(commands)}\n",
    "torque": """
ACTION_DIM = 12
def compute_torque(action):
    return 20.0 * action
""",
    "wide": """
def compute_observation(dof_pos, dof_vel, root_states, commands, actions):
    x = torch.cat([dof_pos, dof_vel, root_states, commands, actions], dim=1)
    return torch.cat([x, torch.sin(x)], dim=1)
""",
}


@pytest.fixture(autouse=True)
def one_thread():
    """As in a run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _config(task, *more):
    size = [f"learning_iterations={ITERATIONS}", "num_envs_per_candidate=6", "seeds=2", "log_points=4"]
    evaluation = ["evaluation.num_envs=3", "evaluation.final_episodes=3", "evaluation.points=2"]
    few = ["train.params.config.mini_epochs=2", "train.params.config.horizon_length=4", "compile_shapers=false"]
    return compose_config(task, ["sim=mujoco_cpu", "device=cpu", *few, *size, *evaluation, *more])


def _groups(cfg, files: dict[str, str], folder: Path):
    """Each session needs groups of its own."""
    paths = write_candidates(folder / "files", files)
    groups, faults = prepare(RunSpec.of(cfg, read_candidates(cfg.task.name, paths)))
    assert not faults
    return {(group.name, group.seed): group for group in groups}


def _session(cfg, groups, logs):
    return Session(RunSpec.of(cfg), Wave(groups), Shared(logs), lambda _: None, lambda _: None)


def _train(session, until):
    while session.iteration < until:
        session.iterate()


def _outcome(session):
    """Results, episodes and weights of each group."""
    found = {}
    for g, (group, row) in enumerate(zip(session.groups, trained(session))):
        model = session.trainer.export(g)["model"]
        found[group.name, group.seed] = row, session.episodes.fitness[g], model
    return found


def _rows(folder):
    return {name: sorted((folder / name).read_text().splitlines()) for name in ("curves.csv", "components.csv")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "task, files, more, regroups",
    [
        ("Cartpole", dict(list(CARTPOLE.items())[:3]), ["task.env.episodeLength=10"], False),
        (
            "Anymal",
            ANYMAL,
            ["task.env.learn.episodeLength_s=0.2", "train.params.network.mlp.units=[16,16]"],
            True,
        ),
    ],
)
def test_survivors_in_a_new_wave_are_bitwise_equal_to_an_uninterrupted_run(
    tmp_path, task, files, more, regroups, monkeypatch
):
    """Of a task whose state is not divided, to a run in which all episodes begin anew at this iteration."""
    cfg = _config(task, *more)
    monkeypatch.setattr(shipped_class(task), "regroups", regroups)
    names, dropped = list(files), list(files)[1::2]
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = _session(cfg, list(_groups(cfg, files, tmp_path).values()), RunLogs.begin(tmp_path / "whole"))
    if not regroups:
        _train(whole, SPLIT_AT)
        whole.env.stats._return.zero_()
        whole.obs = whole.env.reset()
    _train(whole, ITERATIONS)
    expected = _outcome(whole)

    logs, groups = RunLogs.begin(tmp_path / "parts"), _groups(cfg, files, tmp_path)
    parts = {}
    for wave in (names[:2], names[2:]):
        own = [group for key, group in groups.items() if key[0] in wave]
        session = _session(cfg, own, logs)
        _train(session, SPLIT_AT)
        parts.update({(group.name, group.seed): part for group, part in zip(own, session.split())})
    torch.save(parts, tmp_path / "parts.pth")  # plain data
    parts = torch.load(tmp_path / "parts.pth", weights_only=True)
    left = [key for key in reversed(list(groups)) if key[0] not in dropped]
    session = _session(cfg, [groups[key] for key in left], logs)
    session.join([parts[key] for key in left], tmp_path / "parts.pth")
    _train(session, ITERATIONS)

    found = _outcome(session)
    assert set(found) == set(left) and len(left) == 2 * len(names[::2])
    for key, (row, fitness, model) in found.items():
        assert row == expected[key][0]
        assert torch.equal(fitness, expected[key][1])
        assert all(torch.equal(x, expected[key][2][name]) for name, x in model.items())
    for name, rows in _rows(tmp_path / "parts").items():
        ours = [row for row in rows if row.split(",")[2] not in dropped]
        assert ours == [row for row in _rows(tmp_path / "whole")[name] if row.split(",")[2] not in dropped]
