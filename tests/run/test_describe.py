import functools

import pytest

from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.run.config import compose_config
from envcoder_bench.shaping.kinds import SHAPER_TYPES
from envcoder_bench.sources.registry import find_spec, task_names
from envcoder_bench.sources.shipped import shipped_class
from envcoder_bench.tasks.contract import shown
from envcoder_bench.tools.describe import describe

# a terrain of few tiles is built in a fraction of the time
SMALL = {
    name: [f"task.env.terrain.{key}" for key in ("numLevels=2", "borderSize=3")]
    for name in ("AnymalTerrain", "SpotTerrain")
}


@functools.cache  # it builds the task
def described(name, width):
    return describe(name, width, SMALL.get(name, []))


@pytest.mark.parametrize(("name", "width"), [*((name, 80) for name in task_names()), ("Humanoid", 110)])
def test_description_has_shape_unit_and_meaning_of_every_key(name, width):
    task, text = shipped_class(name), described(name, width)
    state = text.split("state_dict, ")[1]
    for key, field in task.fields.items():
        line = next(line for line in state.splitlines() if line.startswith(f"  {key} "))
        shape = "constant" if field.shape is None else f"({', '.join(['n', *map(str, field.shape)])}"
        assert shape in line and field.unit in line
        assert line.split()[-1] in field.meaning and field.meaning.split()[-1] in state
    flat = " ".join(text.split())
    assert " ".join(task.fitness_meaning.split()) in flat
    assert all(f"  {function}: " in text for function in SHAPER_TYPES)
    longest = max(len(line) for line in text.splitlines() if not line.startswith("   "))
    assert longest <= max(width, 110)


@pytest.mark.parametrize("name", task_names())
def test_description_has_values_of_constants_and_joint_and_body_names(name):
    task = find_spec(name).make(compose_config(name, SMALL.get(name, [])).task, 1, "mujoco_cpu", "cpu")
    flat = " ".join(described(name, 80).split())
    for key, value in task.constants.items():
        told = shown(value.tolist())
        after = flat.split(f" {key} constant ")[1]
        assert after.startswith(f"= {told} ") or f"= {told} " in f"{after} ".split(" constant ")[0], key
    assert f"joints: {', '.join(task.dof_names)}" in flat and f"bodies: {', '.join(task.body_names)}" in flat


def test_description_follows_the_config(capsys):
    assert "max_push_effort constant = 400 N" in " ".join(describe("Cartpole").split())
    assert "60.24 control steps a second; an episode lasts 500 of them at most, 8.3 s" in describe("Cartpole")
    assert main(["--task", "Cartpole", "--describe", "task.env.maxEffort=4", "task.sim.dt=0.02"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "max_push_effort constant = 4 N" in told and "50 control steps a second" in told
    assert main(["--task", "Cartpole", "--describe", "task.env.maxEfort=4"]) == 2
    assert "unknown key 'task.env.maxEfort'" in capsys.readouterr().err


def test_describe_flag_prints_the_description_and_writes_no_files(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "90")
    assert main(["--task", "Ant", "--describe"]) == 0
    assert capsys.readouterr().out == describe("Ant", 90) + "\n"
    assert main(["--task", "ant", "--describe"]) == 2
    assert "unknown task 'ant' (did you mean Ant?)" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_fitness_is_that_of_the_file(tmp_path):
    file = tmp_path / "calm.py"
    file.write_text('"""How calm the cart is."""\ndef compute_fitness(cart_vel):\n    return -cart_vel.abs()\n')
    assert f"fitness: How calm the cart is. ({file})" in describe("Cartpole", 500, [f"fitness={file}"])
