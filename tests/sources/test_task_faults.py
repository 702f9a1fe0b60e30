"""Faults of users' own tasks: found before training, with their place, by a run, --check and check-task."""

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest
from outside_files import SMALL, change

from envcoder_bench.__main__ import main as verbs_main
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.sim import make_simulator
from envcoder_bench.sources import registry
from envcoder_bench.tasks.task_code import check_default_state
from envcoder_bench.tools.task_check import TaskFaults, check_task

pytestmark = pytest.mark.usefixtures("forgotten")

DEFAULT = '{"dof_pos": self.per_env([3.14159]), "dof_vel": self.per_env([0.0])}'
CHECK = ["--task", "pendulum", "--check", "--candidates", "mine.py", *SMALL]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("task.py", DEFAULT, '{"dof_pos": self.per_env([3.14159])}', "default_state lacks dof_vel: without it"),
        ("task.py", "([3.14159])", "([3.1, 3.1])", "default_state['dof_pos'] is (4, 2): for 4 environments it must be"),
        ("task.py", "self.per_env([3.14159])", "[3.14159]", "default_state['dof_pos'] is a list: for 4 environments"),
        ("task.py", DEFAULT, "None", "default_state must be a dict of tensors, not NoneType"),
        ("task.py", '{"dof_pos":', '{"dof_pso":', "'dof_pso' (did you mean dof_pos?); its keys are dof_pos, dof_vel"),
        ("task.py", '{"dof_pos":', '{"root_states": sim.root_states, "dof_pos":', "no free joint: its base"),
        ("task.py", '"sim.dof_vel"', '"sim.dof_velo"', "the source of 'dof_vel' is 'sim.dof_velo', not a tensor"),
        ("task.py", '"sim.dof_vel"', "lambda task: task.sim.dof_velo", "task.py:22: AttributeError: "),
        ("task.py", "        super().__init__", "        {}['torque']\n        super().__init__", "KeyError: "),
        ("task.py", 'cos(state["dof_pos"][:, 0])', 'cos(state["dof_pos"])', "fitness returns torch.float32 (4, 1)"),
        ("task.py", 'cos(state["dof_pos"][:, 0])', 'cos(state["dof_pso"][:, 0])', "KeyError: 'dof_pso'"),
        ("task.py", 'cos(state["dof_pos"][:, 0])', 'log(-state["dof_pos"][:, 0])', "fitness returns NaN or infinity"),
        ("task.yaml", "torque: 1.5", "torque: strong", "the key 'env.torque' must be a number, and it is 'strong'"),
        ("task.yaml", "dt: 0.02", "dt:", "the key 'sim.dt' must be a number, and it is empty"),
        ("pendulum.xml", "implicitfast", "RK4", "pendulum.xml: the integrator RK4 is not supported"),
        ("pendulum.xml", "<worldbody>", "<worldbdy>", "pendulum.xml: XML parse error"),
    ],
)
def test_fault_of_a_task_ends_check_and_run_with_one_line(folder, capsys, file, old, new, told):
    """Each was accepted before, or ended with a traceback, at the earliest in training."""
    Path("mine.py").write_text("def compute_reward(dof_pos):\n    return torch.cos(dof_pos[:, 0])\n", encoding="utf-8")
    change(folder / file, old, new)
    run = [word for word in CHECK if word != "--check"]
    for words in (CHECK, run) if file != "task.py" or old == DEFAULT else (CHECK,):  # a run checks as --check does
        assert main(words) == 2
        written = capsys.readouterr().err
        assert told in written and "Traceback" not in written and "pendulum" in written.lower()
        assert not list(Path("runs").glob("*/policies/*.pth"))


@pytest.mark.slow
@pytest.mark.usefixtures("short_check")
def test_state_that_stays_as_it_was_built_is_reported(folder, capsys):
    """A source that computes a number gives that of the first state, for ever."""
    field = '        "height": Field((), "m", "of the tip", lambda task: torch.cos(task.sim.dof_pos[:, 0])),\n'
    change(folder / "task.py", '        "actions": ', f'{field}        "actions": ')
    with pytest.raises(TaskFaults, match="'height' keeps the value of the moment at which the task was built") as error:
        check_task("pendulum", "mujoco_cpu", "cpu")
    assert len(error.value.findings) == 1
    Path("mine.py").write_text("def compute_reward(height):\n    return height\n", encoding="utf-8")
    assert main(CHECK) == 0
    assert "'height' keeps the value" in capsys.readouterr().err
    # as a view it is live; a copy that stays on purpose is listed in kept_keys; a draw differs from call to call
    change(folder / "task.py", "lambda task: torch.cos(task.sim.dof_pos[:, 0])", "lambda task: task.sim.dof_pos[:, 0]")
    draw = '        "mass": Field((), "kg", "drawn", lambda task: torch.rand(task.num_envs)),\n'
    start = '        "start": Field((), "rad", "at first", lambda task: task.sim.dof_pos[:, 0].clone()),\n'
    change(folder / "task.py", '        "actions": ', f'{draw}{start}        "actions": ')
    change(folder / "task.py", "    fields =", '    kept_keys = ("start",)\n    fields =')
    assert main(CHECK) == 0
    assert "keeps the value" not in capsys.readouterr().err


@pytest.mark.slow
def test_fitness_may_be_a_condition(folder):
    change(folder / "task.py", 'torch.cos(state["dof_pos"][:, 0])', 'torch.cos(state["dof_pos"][:, 0]) < 2')
    Path("mine.py").write_text("def compute_reward(dof_pos):\n    return torch.cos(dof_pos[:, 0])\n", encoding="utf-8")
    assert main([word for word in CHECK if word != "--check"] + ["--output_dir", "run"]) == 0
    rows = csv.DictReader(Path("run/results.csv").read_text(encoding="utf-8").splitlines())
    fitness = [row["fitness"] for row in rows]
    assert [float(x) for x in fitness] == [1.0] * 4  # the candidate, both baselines and untrained


def test_floating_body_without_joints_needs_no_joint_state(tmp_path):
    model = '<mujoco><worldbody><body name="a"><freejoint/><geom size=".1"/></body></worldbody></mujoco>'
    (tmp_path / "model.xml").write_text(model, encoding="utf-8")
    sim = make_simulator("mujoco_cpu", tmp_path / "model.xml", 2, 0.02, 1, "cpu")
    task = SimpleNamespace(name="Rock", sim=sim, num_envs=2, num_dofs=0, object_keys=())
    task.default_state = {"root_states": sim.root_states.clone()}
    check_default_state(task)
    task.default_state = {}
    with pytest.raises(ValueError, match="lacks root_states: without"):
        check_default_state(task)


def test_meshes_of_included_and_attached_files_count_as_the_task(folder):
    """The folder of meshes is that of the file that names it, or that of another file."""
    meshes = [folder / "cad" / "rod.obj", folder / "hand" / "cad" / "tip.obj"]
    for path in meshes:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("v 0 0 0", encoding="utf-8")
    (folder / "look.xml").write_text('<mujoco><compiler meshdir="cad"/></mujoco>', encoding="utf-8")
    hand = '<mujoco><compiler meshdir="cad"/><asset><mesh name="tip" file="tip.obj"/></asset></mujoco>'
    (folder / "hand" / "hand.xml").write_text(hand, encoding="utf-8")
    named = '<include file="look.xml"/><asset><mesh file="rod.obj"/><model name="h" file="hand/hand.xml"/></asset>'
    change(folder / "pendulum.xml", "  <worldbody>", f"  {named}\n  <worldbody>")
    seen = {registry.find_spec("pendulum").digest}
    for path in meshes:
        path.write_text("v 1 0 0", encoding="utf-8")
        seen.add(registry.find_spec("pendulum").digest)
    change(folder / "look.xml", "<compiler", '<compiler angle="radian"')
    seen.add(registry.find_spec("pendulum").digest)
    assert len(seen) == 4
    (folder / "cad" / "notes.obj").write_text("unused", encoding="utf-8")
    assert registry.find_spec("pendulum").digest in seen


@pytest.mark.slow
@pytest.mark.usefixtures("short_check")
def test_check_task_verb_prints_the_faults(folder, capsys):
    assert verbs_main(["check-task", "pendulum", "--sim", "mujoco_cpu", "--device", "cpu"]) == 0
    assert capsys.readouterr().out == "pendulum: all checks pass\n"
    change(folder / "task.py", "([3.14159])", "([3.1, 3.1])")
    assert verbs_main(["check-task", "pendulum", "--sim", "mujoco_cpu", "--device", "cpu"]) == 1
    told = capsys.readouterr().out
    assert told.count("default_state['dof_pos']") == 1 and told.startswith("Pendulum: 1 of the checks fail:")
    assert verbs_main(["check-task", "pendulums"]) == 2
    assert "unknown task 'pendulums'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("short_check")
def test_check_task_reports_all_faults(folder):
    change(
        folder / "task.py",
        '    def fitness(self, state: Dict[str, Tensor]) -> Tensor:\n        return torch.cos(state["dof_pos"][:, 0])',
        "    def step(self, command):\n"
        '        super().step(command)\n        self.state["memory"] += 1.0\n        self.state["extra"] = command\n\n'
        '    def fitness(self, state):\n        return torch.cos(self.state["dof_pos"])',
    )
    change(
        folder / "task.py",
        '        "actions": ',
        '        "memory": Field((), "-", "steps", 0.0),\n        "actions": ',
    )
    change(folder / "unshaped.py", "actions * max_torque", "actions * max_torqe")
    with pytest.raises(TaskFaults) as error:
        check_task("pendulum", "mujoco_cpu", "cpu")
    found = "\n".join(error.value.findings)
    assert "fitness returns torch.float32 (3, 1): for 3 environments it must be (3,)" in found
    assert "fitness of the state of 2 environments must be (2,)" in found
    assert "set_state does not restore (see kept_keys) 'extra', 'memory'" in found
    assert "after a reset, the masked environments differ from new ones in 'extra', 'memory'" in found
    assert "unshaped.py" in found and "max_torqe" in found
