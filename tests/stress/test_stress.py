"""Planted policies are found by their columns, and a policy's stress depends on nothing but the policy."""

import dataclasses
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import CARTPOLE_QUICK, SETTINGS, SHORT, refused
from scripted import ANYMAL, BALANCE, CARTPOLE, STANDS
from scripted_policies import groups_of, stress_of
from torch import nn

from envcoder_bench import evaluate
from envcoder_bench import stress_run as stress_in_python
from envcoder_bench.__main__ import main
from envcoder_bench.cli import eval_shapers
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.core.settings import merged, nested
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.report.stress import render_stress
from envcoder_bench.results.stress import FILE, Row, Settings
from envcoder_bench.run.folder.policies import open_run
from envcoder_bench.run.prepare.environments import build_env, build_task
from envcoder_bench.stress import episodes, measure
from envcoder_bench.stress.disturbed_env import DisturbedEnv
from envcoder_bench.stress.measure import Asked, stress_run
from envcoder_bench.stress.other_physics import other_physics
from envcoder_bench.tasks.sim_task import SimTask
from envcoder_bench.tasks.spec import Can

SMALL = Settings(1, draws=4, episodes=2, milliseconds=400)


@pytest.fixture(scope="module")
def cartpole():
    return groups_of("Cartpole", CARTPOLE, list(BALANCE))


@pytest.fixture(scope="module")
def small(cartpole):
    return stress_of(*cartpole, BALANCE, SMALL)


def test_chatter_and_fragility_to_delay_are_found_and_nothing_in_sound_policies(cartpole):
    stress = stress_of(*cartpole, BALANCE, Settings(1, draws=64, episodes=1, milliseconds=2000))
    by_name = {each.candidate: each for each in stress.summaries}
    for name in ("sound", "soft", "chatter"):
        assert by_name[name].passes and by_name[name].breaks is None, by_name[name]
    fragile = by_name["delay_fragile"]
    assert not fragile.passes and fragile.nominal == 1.0 and fragile.breaks is not None
    assert (fragile.breaks.axis.name, fragile.breaks.high) == ("delay", 40.0)
    jerks = {name: each.motion["action_acceleration"] for name, each in by_name.items()}
    assert jerks["chatter"] > 3.0 * max(jerks["sound"], jerks["soft"])
    told = stress.disagreement(["delay_fragile", "sound"])
    assert told.startswith("delay_fragile is first by fitness, but ends early in") and told.endswith(" in 0%")
    assert {"foot_slip", "cost_of_transport", "velocity_saturation"} <= stress.settings.absent.keys()
    assert any("gains" in note for note in stress.settings.notes)


def test_fragility_to_friction_is_found():
    scripts = groups_of("Anymal", ANYMAL, list(STANDS))
    stress = stress_of(*scripts, STANDS, Settings(1, draws=64, episodes=1, milliseconds=2000))
    by_name = {each.candidate: each for each in stress.summaries}
    breaks = by_name["friction_fragile"].breaks
    assert breaks is not None and breaks.axis.name == "friction" and not by_name["friction_fragile"].passes
    assert by_name["stand"].passes and by_name["stand"].breaks is None
    assert not stress.settings.notes and [*stress.settings.absent] == ["velocity_saturation"]
    motion = by_name["stand"].motion
    assert motion["action_acceleration"] == 0.0 and 0.0 < motion["foot_slip"] < 0.3 and motion["limit_margin"] > 0.05


def test_noise_is_seen_and_not_lived(cartpole):
    spec, groups = cartpole
    grid = SMALL.grid
    layout = GroupLayout(1, (1 + SMALL.draws) * SMALL.episodes)
    task = build_task(spec, layout.num_envs)
    env = DisturbedEnv(task, task.robot(), layout, [groups[0].evaluation], 0, grid)
    obs = env.begin_all(EVALUATION_STEP)
    true = torch.cat([task.state[key] for key in ("dof_pos", "dof_vel")], dim=1)[:, [0, 2, 1, 3]]
    error = (obs[:, :4] - true).abs() / torch.tensor([grid.sensor_noise[key] for key in ("dof_pos", "dof_vel")] * 2)
    shares = torch.from_numpy(grid.column("noise")).repeat_interleave(SMALL.episodes)
    assert not bool(error[: SMALL.episodes].any()) and bool((error[SMALL.episodes :].amax(dim=1) > 0.0).all())
    assert bool((error.amax(dim=1) <= shares + 1e-3).all())
    assert torch.equal(
        true[: SMALL.episodes], true[-SMALL.episodes :]
    )  # all draws begin alike, also after they were seen


def test_stress_is_the_same_alone_and_among_others(cartpole, small):
    spec, _ = cartpole
    _, groups = groups_of("Cartpole", CARTPOLE, ["chatter"])  # functions are not shared
    alone = stress_of(spec, groups, BALANCE, SMALL)
    assert alone.rows == tuple(row for row in small.rows if row.candidate == "chatter")
    assert len({row.fitness for row in small.rows}) > 1


def test_the_nominal_draw_is_the_run_s_evaluation(cartpole, small):
    spec, groups = cartpole
    env = build_env(spec, [group.evaluation for group in groups], [spec.config.seed] * len(groups), SMALL.episodes)

    def policy(obs):
        parts = zip(obs.split(SMALL.episodes), groups)
        return torch.cat([BALANCE[group.name](x).clamp(-1, 1) for x, group in parts])

    with torch.no_grad():
        played = run_episodes(env, policy, 1, EVALUATION_STEP, steps=round(0.4 / env.task.dt))
    nominal = [row.fitness for row in small.rows if row.draw == 0]
    assert nominal == played.fitness.double().mean(dim=1).tolist()


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run of two candidates with two seeds."""
    folder = tmp_path_factory.mktemp("stress")
    texts = {"a": CARTPOLE, "b": f"{CARTPOLE}\n"}
    few = {"learning_iterations": 1, "seeds": 2, "baselines": False, "evaluation.points": 1, "compile_shapers": False}
    return evaluate("Cartpole", texts, output_dir=folder / "run", **{**SETTINGS, **SHORT, **few}).folder


def test_a_killed_stress_goes_on_and_ends_as_if_it_had_not_been_killed(run_folder, monkeypatch):
    asked, file = Asked(draws=4, episodes=1), run_folder / FILE
    whole = stress_run(run_folder, asked).stress
    text = file.read_bytes()
    file.unlink()
    monkeypatch.setattr(measure, "MOST_ENVS", {"mujoco_cpu": 1})
    write, parts = measure.write_stress, []

    def killed(*args):
        parts.append(args)
        if len(parts) == 3:
            raise KeyboardInterrupt
        write(*args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(measure, "write_stress", killed)
        stress_run(run_folder, asked)
    played = []
    monkeypatch.setattr(measure, "measure_groups", _counted(measure.measure_groups, played))
    assert sorted(stress_run(run_folder, asked).stress.rows, key=str) == sorted(whole.rows, key=str)
    assert file.read_bytes() == text and len(played) == 2
    assert not stress_run(run_folder, asked).failed and len(played) == 2  # all is there
    with pytest.raises(UserError, match="has 4 draws of 1 episode,"):
        stress_run(run_folder, dataclasses.replace(asked, draws=5))


def test_other_physics_are_columns_and_change_no_other_number(run_folder, monkeypatch):
    kept, note = {"half_step", "Euler"}, "other simulator: there is none"
    monkeypatch.setattr(
        measure, "other_physics", lambda spec: ({k: x for k, x in other_physics(spec)[0].items() if k in kept}, [note])
    )
    plain = stress_run(run_folder, Asked(draws=4, episodes=1)).stress
    stress = stress_run(run_folder, Asked(draws=4, episodes=1, physics=True)).stress
    changed = [dataclasses.replace(row, fitness=9.0) if row.physics else row for row in stress.rows]
    summaries = dataclasses.replace(stress, rows=tuple(changed)).summaries
    assert str(summaries) == str(plain.summaries) and len(stress.rows) == len(plain.rows) + 2 * 4
    table, text = stress.ranking, render_stress(stress, ["a", "b"], {}, False, 100)
    assert {"fitness_half_step", "fitness_Euler"} < {*table.columns} and "half step" in text
    assert note not in plain.settings.notes and note in text
    for name, (fitness, _) in stress.in_physics("a").items():
        assert fitness == np.mean(
            [x.fitness for x in stress.rows if (x.candidate, x.physics, x.draw) == ("a", name, 0)]
        )
    spec = open_run(run_folder).spec
    found, notes = other_physics(spec.changed(sim="mujoco_cpu"))
    assert [*found] == ["half_step", "Euler", "implicitfast", "exact_solver", "other_simulator"] and not notes
    assert found["half_step"].config.task["sim"]["substeps"] == 2 * spec.config.task["sim"]["substeps"]
    assert found["Euler"].config.task["sim"]["mujoco"]["integrator"] == "Euler"
    assert found["other_simulator"].config.sim == "mujoco_warp"
    played = []
    monkeypatch.setattr(measure, "measure_groups", _counted(measure.measure_groups, played))
    again = stress_run(run_folder, Asked(draws=4, episodes=1, physics=True)).stress
    assert not played and again.settings.notes.count(note) == 1  # all is there
    # a part that is measured anew without other physics keeps the notes
    lines = (run_folder / FILE).read_text().splitlines(keepends=True)
    (run_folder / FILE).write_text("".join(line for line in lines if not line.startswith("b,")))
    anew = stress_run(run_folder, Asked(draws=4, episodes=1)).stress
    assert len(played) == 1 and anew.settings.notes.count(note) == 1


def test_an_exact_solver_never_has_fewer_iterations(cartpole, tmp_path):
    spec, _ = cartpole
    model = tmp_path / "model.xml"
    model.write_text(spec.task.model_path.read_text().replace('ls_iterations="20"', 'ls_iterations="70"'))
    spec = dataclasses.replace(spec, task=dataclasses.replace(spec.task, model_path=model))
    more = spec.changed(task=merged(spec.config.task, nested({"sim.mujoco.iterations": 200})))
    limits = [other_physics(each)[0]["exact_solver"].config.task["sim"]["mujoco"] for each in (spec, more)]
    assert [(x["iterations"], x["ls_iterations"]) for x in limits] == [(100, 70), (200, 70)]


@pytest.mark.parametrize(
    "device, backend, other",
    [("cpu", None, "warp"), ("cpu", "auto", "warp"), ("cpu", "mujoco", "warp"), ("cpu", "warp", "mujoco"),
     ("cuda:0", "auto", "mujoco"), ("cuda:0", "warp", "mujoco")],
)  # fmt: skip
def test_the_other_simulator_of_mjlab_s_tasks_is_not_their_own(cartpole, device, backend, other):
    task = dataclasses.replace(cartpole[0].task, can=frozenset({Can.BOTH_BACKENDS}), config_keys=("sim.backend",))
    spec = dataclasses.replace(cartpole[0], task=task).changed(device=device, task={"sim": {"backend": backend}})
    found, notes = other_physics(spec)
    config = found["other_simulator"].config
    assert (config.task["sim"]["backend"], config.device, notes) == (other, "cpu", [])


@pytest.mark.parametrize(
    "keys, note",
    [(("sim.backend",), "only one of MuJoCo and MuJoCo Warp simulates this task"), ((), "of this task are fixed")],
)
def test_a_note_says_what_other_physics_a_task_does_not_take(cartpole, keys, note):
    task = dataclasses.replace(cartpole[0].task, can=frozenset(), config_keys=keys)
    found, notes = other_physics(dataclasses.replace(cartpole[0], task=task))
    assert not found and len(notes) == 1 and note in notes[0]


def test_the_verb_ranks_either_way_writes_the_page_and_prints_a_document(run_folder, capsys):
    words = ["stress", str(run_folder), "--draws", "4", "--episodes", "1"]
    stress_run(run_folder, Asked(draws=4, episodes=1))
    assert main([*words, "--rank_by", "stress"]) == 0
    shown = capsys.readouterr().out
    assert "4 draws of 1 episode, ranked by the worst decile" in shown and "deployable" not in shown
    assert shown.count("not measured: ") == 4 and "Under stress" in (run_folder / "report.html").read_text()
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "stress" and {each["candidate"] for each in document["ranking"]} == {"a", "b"}
    assert len(document["ranking"][0]["worst_decile"]) == 3 and document["settings"]["draws"] == 4


def test_python_returns_a_table(run_folder):
    stress = stress_in_python(run_folder, draws=4, episodes=1)
    table = stress.ranking
    assert list(table.candidate) == [each.candidate for each in stress.summaries] and len(table.worst_decile[0]) == 3
    assert set(table.verdict) <= {
        "passes in simulation",
        "does not pass in simulation",
        "ends early without disturbances",
    }


@pytest.mark.slow
def test_a_run_is_followed_by_its_stress(tmp_path, capsys):
    (tmp_path / "a.py").write_text(CARTPOLE)
    words = [*CARTPOLE_QUICK, "--candidates", str(tmp_path / "a.py"), "--output_dir", str(tmp_path / "run")]
    more = ["--learning_iterations", "1", "--stress", "--stress_draws", "2", "--stress_episodes", "1"]
    assert eval_shapers.main([*words, *more, "evaluation.final_episodes=2", "evaluation.num_envs=2"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("human") < shown.index("2 draws of 1 episode") and (tmp_path / "run" / FILE).is_file()
    assert "Under stress" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    "words, told",
    [
        (["--draws", "65"], "the grid has 1 to 64 draws"),
        (["--candidate", "c"], "no candidate 'c'"),
        (["--seconds", "0"], "seconds is 0: it must be at least 0.001"),
    ],
)
def test_bad_input_is_one_line(run_folder, words, told, capsys):
    assert told in refused(main, ["stress", run_folder, *words], capsys)


@pytest.mark.parametrize(
    "asked, told",
    [
        ({"draws": 1.5}, "draws must be a whole number, got 1.5"),
        ({"episodes": "2"}, "episodes must be a whole number, got '2'"),
        ({"seconds": True}, "seconds must be a number, got True"),
        ({"seconds": 0.0001}, "seconds is 0.0001: it must be at least"),
        ({"seconds": float("inf")}, "seconds is inf: it must be at least"),
        ({"draw": 1}, "its arguments are run, draws="),
    ],
)
def test_bad_arguments_are_told_in_python(run_folder, asked, told):
    with pytest.raises(UserError, match=re.escape(told)):
        stress_in_python(run_folder, **asked)


def test_a_task_with_its_own_simulation_is_refused(cartpole, monkeypatch):
    spec, groups = cartpole
    monkeypatch.setattr(SimTask, "robot", lambda self: None)
    with pytest.raises(UserError, match="Cartpole does not give access to its robot"):
        stress_of(spec, groups, BALANCE, SMALL)


class Scaled(nn.Module):
    def __init__(self, factor: float | torch.Tensor, limit: float = 1e9) -> None:
        super().__init__()
        self.limit = limit
        self.factor = nn.Buffer(factor) if isinstance(factor, torch.Tensor) else factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.factor * x).clamp(-self.limit, self.limit)


def _counted(function, calls):
    def call(*args):
        calls.append(args)
        return function(*args)

    return call


KEEPS = f"""{CARTPOLE}
plain, LAST = compute_observation, []
def compute_observation(cart_pos, cart_vel, pole_angle, pole_vel, progress_buf):
    obs = plain(cart_pos, cart_vel, pole_angle, pole_vel, progress_buf)
    if LAST and LAST[0].shape == obs.shape:
        obs = 0.8 * obs + 0.2 * LAST[0]
    LAST[:] = [obs]
    return obs
"""


@pytest.mark.parametrize(
    "text, narrows",
    [(CARTPOLE, False), (CARTPOLE, True), (KEEPS, False)],
    ids=["groups leave", "environments leave", "a function keeps values"],
)
def test_a_simulation_without_the_episodes_that_have_ended_plays_the_others_as_before(text, narrows, monkeypatch):
    scripts = {**BALANCE, "falls": lambda obs: torch.ones(len(obs), 1)}
    draws, milliseconds = (4, 800) if text == KEEPS else (8, 1600)
    names, settings = ["delay_fragile", "falls"], dataclasses.replace(SMALL, draws=draws, milliseconds=milliseconds)

    def rows() -> tuple[Row, ...]:
        return stress_of(*groups_of("Cartpole", text, names), scripts, settings).rows

    whole, sizes = rows(), []
    take_over = DisturbedEnv.take_over

    def noted(self, other, groups, kept):
        sizes.append((other.layout, self.layout))
        take_over(self, other, groups, kept)
        assert torch.equal(self.observe(), other.observe()[kept])

    monkeypatch.setattr(DisturbedEnv, "take_over", noted)
    monkeypatch.setattr(episodes, "WORTH", {"cpu": 0})
    monkeypatch.setattr(episodes, "LOOK", 10)
    monkeypatch.setattr(episodes, "_may_narrow", lambda env: narrows)
    assert str(rows()) == str(whole)
    if text == KEEPS:
        assert not sizes
        return
    assert sizes and sizes[-1][1].num_groups < len(names)
    assert narrows == any(new.envs_per_group < old.envs_per_group for old, new in sizes)


def test_functions_that_draw_by_places_keep_the_environments_of_their_group():
    drawn = "torch_rand_float(0.0, 1.0, (len(cart_pos), 1), cart_pos.device)"
    observation = f"def compute_observation(cart_pos):\n    return {drawn}\n"
    imported = "from isaacgym.torch_utils import torch_rand_float\n"
    for text, narrows in ((CARTPOLE, True), (imported + observation, False)):
        _, groups = groups_of("Cartpole", text, ["a"])  # initial states are drawn once
        dispatch = SimpleNamespace(shapings=[group.evaluation for group in groups])
        task = SimpleNamespace(new_goal=None, timed_out=None)
        env = SimpleNamespace(device=torch.device("cuda"), dispatch=dispatch, task=task)
        assert episodes._may_narrow(env) == narrows, text
        task.new_goal = torch.zeros(1)
        assert not episodes._may_narrow(env)


@pytest.mark.parametrize(
    "error",
    [ValueError("no row"), torch.cuda.OutOfMemoryError("CUDA out of memory"),
     RuntimeError("Failed to allocate 8 bytes on device 'cuda:0'")],
)  # fmt: skip
def test_a_smaller_simulation_for_which_there_is_no_room_is_not_built(error):
    def build(chosen, lanes):
        raise error

    env = SimpleNamespace(lane=torch.zeros(2))
    assert episodes._smaller(build, env, [0], [0], torch.tensor([1])) is None
    error = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        episodes._smaller(build, env, [0], [0], torch.tensor([1]))


def test_policies_of_one_architecture_are_one_batch():
    torch.manual_seed(0)
    modules = [nn.Sequential(nn.Linear(width, 8), nn.ELU(), nn.Linear(8, 2)) for width in (3, 3, 4, 3)]
    modules.append(nn.Sequential(nn.Linear(3, 8), Scaled(1.0), nn.Linear(8, 2)))
    modules.append(nn.Sequential(nn.Linear(3, 8), Scaled(2.0), nn.Linear(8, 2)))
    calls = episodes.batched(modules, [(3, 2), (3, 2), (4, 2), (3, 2), (3, 2), (3, 2)])
    assert sorted(members for members, _ in calls) == [[0, 1, 3], [2], [4], [5]]  # what differs in a number is alone
    obs = torch.randn(3, 5, 3)
    together = next(call for members, call in calls if members == [0, 1, 3])(obs)
    alone = torch.stack([modules[k](x) for k, x in zip((0, 1, 3), obs)])
    assert torch.allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize(
    "modules",
    [
        [Scaled(1.0, limit=limit) for limit in (5.0, 100.0)],  # equal near zero
        [Scaled(torch.ones(size)) for size in (1, 3)],
        [Scaled(1.0).train(), Scaled(1.0).eval()],
    ],
    ids=["clips", "shapes", "modes"],
)
def test_policies_that_differ_in_more_than_numbers_are_alone(modules):
    assert [members for members, _ in episodes.batched(modules, [(3, 3)] * 2)] == [[0], [1]]
