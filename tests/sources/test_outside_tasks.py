"""Tasks from outside the package: found by folder, class or entry point, refused with one line, or run."""

import html
import json
import re
from pathlib import Path

import mujoco
import numpy as np
import pytest
from omegaconf import OmegaConf
from outside_files import SMALL, change

from envcoder_bench import evaluate, resume
from envcoder_bench.__main__ import main as verbs_main
from envcoder_bench.cli import auto_shape
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.compile import cache
from envcoder_bench.core.errors import UserError
from envcoder_bench.grid.policy_files import read_policy
from envcoder_bench.results.rows import read_results
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.config_checks import check_training
from envcoder_bench.run.folder.policies import open_run
from envcoder_bench.run.folder.tracking import hyperparameters
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.search.archive import read_archive
from envcoder_bench.search.loop import Search
from envcoder_bench.search.prompt.prompts import load_templates, system_prompt
from envcoder_bench.sources import outside, registry
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.contract import TaskContract, task_contract
from envcoder_bench.tools.check import check_candidates
from envcoder_bench.tools.describe import describe

pytestmark = pytest.mark.usefixtures("forgotten")
SEARCH = [
    *("num_iters=2", "shapers_per_iter=1", "final_seeds=1", "final_episodes=2"),
    *("train.params.config.horizon_length=4", "learning_iterations=1"),
]
CANDIDATE = """
from envcoder_bench.tasks.Pendulum.human import compute_reward as human_reward
from envcoder_bench.tasks.Pendulum.unshaped import compute_observation
def compute_reward(dof_pos, dof_vel, actions):
    return human_reward(dof_pos, dof_vel, actions)[0] + 0.1 * torch.cos(dof_pos[:, 0])
"""


def refusal(task):
    with pytest.raises(ValueError) as error:
        registry.find_spec(str(task))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_task_is_loaded_from_a_folder(folder, tmp_path):
    spec = registry.find_spec("pendulum")
    assert (spec.name, spec.source, spec.model_path) == ("Pendulum", str(folder), folder / "pendulum.xml")
    assert registry.find_spec("Pendulum") is registry.find_spec(str(folder)) is spec
    cfg = compose_config(str(folder), ["task.env.torque=2.5"])
    assert cfg.task_source == str(folder) and cfg.task.name == "Pendulum" and cfg.task.env.torque == 2.5
    assert cfg.train.params.config.name == "Pendulum" and cfg.train.params.config.horizon_length == 24
    with pytest.raises(UserError, match=r"unknown key 'task.env.torqe' \(did you mean.*task.env.torque.*task.yaml"):
        compose_config("Pendulum", ["task.env.torqe=2.5"])
    contract = task_contract(find_spec(cfg.address), cfg.task)
    assert contract.values["max_torque"] == 2.5 and contract.joints == ("hinge",) and contract.effort_limits == (1.5,)
    assert TaskContract.from_plain(json.loads(json.dumps(contract.to_plain()))) == contract


def test_config_is_that_of_hydra(folder):
    """A file with ``defaults`` is composed by Hydra; others are put in their place without it."""
    cfg, file = compose_config("pendulum"), folder / "task.yaml"
    file.write_text(f"defaults: [_self_]\n{file.read_text()}")
    assert compose_config("pendulum") == cfg


def test_train_yaml_of_the_task_overrides_the_default(folder):
    (folder / "train.yaml").write_text("params: {config: {horizon_length: 8}}\n", encoding="utf-8")
    params = compose_config("pendulum").train.params
    assert params.config.horizon_length == 8 and list(params.network.mlp.units) == [256, 128, 64]
    (folder / "train.yaml").write_text("params: {config: {horizn_length: 8}}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"train.yaml: unknown key 'params.config.horizn_length' \(did you mean"):
        compose_config("pendulum")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("minibatch_size: 64", "minibatch_size: 64 asks for 1536 minibatches, being of the batch of num_actors=4096 "),
        ("{minibatch_size: 60, num_actors: 4}", "minibatch_size: 60 does not divide the batch of 96 that it refers to"),
        ("gamma: 2.0", "gamma: must be a number from 0 to 1, got 2.0"),
        ("lr_schedule: sometimes", "lr_schedule: must be"),
    ],
)
def test_faulty_value_of_train_yaml_names_the_file_and_its_key(folder, text, told):
    (folder / "train.yaml").write_text(f"params: {{config: {text if '{' in text else '{' + text + '}'}}}\n")
    with pytest.raises(UserError) as error:
        check_training(RunSpec.of(compose_config("pendulum", ["num_envs_per_candidate=4"])))
    assert str(error.value).startswith(f"{folder / 'train.yaml'}: train.params.config.{told}")
    (folder / "train.yaml").write_text("params: {config: {gamma: 0.5}}\n")
    with pytest.raises(UserError, match=r"^train.params.config.gamma: must be"):  # the file is not at fault
        check_training(RunSpec.of(compose_config("pendulum", ["train.params.config.gamma=2"])))


def test_keys_that_an_initial_state_cannot_have_are_not_offered(folder):
    key = '        "root_states": Field((13,), "-", "base", "sim.root_states"),\n'
    change(folder / "task.py", '        "actions": ', f'{key}        "actions": ')
    offered = "compute_initial_state: a dict of some of dof_pos (n, 1), dof_vel (n, 1), a row"
    assert offered in " ".join(describe("pendulum").split())
    cfg = compose_config("Pendulum")
    prompt = system_prompt(load_templates(), RunSpec.of(cfg), "Swing up.", "height", None)
    assert "`dof_pos` `(n, 1)`, `dof_vel` `(n, 1)`" in prompt and "`root_states` `(n, 13)`" not in prompt
    mine = Path("mine.py")
    mine.write_text("def compute_initial_state(root_states):\n    return {'root_states': root_states}\n")
    checked = check_candidates("pendulum", ["device=cpu", "sim=mujoco_cpu", "num_envs_per_candidate=2"], [mine])
    assert checked.rows[-1].error.endswith("returned the key 'root_states'; return some of dof_pos, dof_vel")


def test_task_without_a_docstring_is_described_by_its_class(folder):
    text = (folder / "task.py").read_text(encoding="utf-8")
    (folder / "task.py").write_text(re.sub(r'(class \w+\(.*\):\n)    """.*?"""\n', r"\1", text, flags=re.S))
    assert describe("pendulum").startswith("Pendulum: Pendulum\n")
    spec = RunSpec.of(compose_config("pendulum"))
    assert "Pendulum" in system_prompt(load_templates(), spec, "Swing up.", "height", None)


def test_description_has_functions_that_a_baseline_imports(folder):
    text = (folder / "human.py").read_text(encoding="utf-8")
    own, rest = text.partition("def compute_torque")[0], "\n\nfrom envcoder_bench.tasks.Pendulum import unshaped\n"
    assigned = "compute_torque = unshaped.compute_torque\n"
    imported = "from envcoder_bench.tasks.Pendulum.unshaped import compute_initial_state\n"
    (folder / "human.py").write_text(f"{own}{rest}{assigned}{imported}", encoding="utf-8")
    told = describe("pendulum")
    assert (
        told.count("    human: The motor's torque.\n")
        == told.count("    human: Hanging, within 0.1 rad, at rest.")
        == 1
    )
    (folder / "human.py").write_text("def compute_reward(:\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"human.py:1: syntax error: .* at 'def compute_reward\(:'"):
        describe("pendulum")


def test_task_is_loaded_from_a_class(folder):
    spec = registry.find_spec("pendulum.task:Pendulum")
    assert spec.folder == folder and compose_config("pendulum.task:Pendulum").task_source == "pendulum.task:Pendulum"
    assert "has no class Pendulm" in refusal("pendulum.task:Pendulm")
    assert refusal("no_such_module:Pendulum").startswith("--task no_such_module:Pendulum: ModuleNotFoundError")
    assert "./task is not the name of a module" in refusal("./task:Pendulum")
    (folder / "task.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    assert refusal("pendulum").endswith("task.py:1: SystemExit: 3")


def test_task_is_loaded_from_an_entry_point(folder, tmp_path, monkeypatch):
    info = tmp_path / "robots-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: robots\nVersion: 1.0\n", encoding="utf-8")
    points = info / "entry_points.txt"
    points.write_text("[envcoder_bench.tasks]\nPendulum = pendulum.task:Pendulum\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "Pendulum" in registry.task_names() and registry.find_spec("Pendulum").folder == folder
    points.write_text("[envcoder_bench.tasks]\nSwing = pendulum.task:Pendulum\n", encoding="utf-8")
    del registry._found["Pendulum"]
    assert "of a task named Pendulum: rename one of them" in refusal("Swing")


@pytest.mark.parametrize("asked", ["pendulum", "Pendulum"])
def test_changed_files_are_reloaded_by_folder_and_by_name(folder, asked):
    before = registry.find_spec("pendulum")
    keys = [cache.code_digest()]
    change(folder / "task.py", "height of the rod's tip", "how high the tip is")
    after = registry.find_spec(asked)
    assert after is registry.find_spec("Pendulum") is registry.find_spec("pendulum")
    assert "how high" in after.fitness_meaning and after.digest != before.digest
    keys.append(cache.code_digest())
    (folder / "shared.py").write_text("GAIN = 2.0\n", encoding="utf-8")
    registry.find_spec("pendulum")
    keys.append(cache.code_digest())
    assert len(set(keys)) == 3  # of programs on disk


def test_code_not_covered_by_the_cache_key_is_not_cached(folder):
    registry.find_spec("pendulum")
    text = "from envcoder_bench.tasks.Pendulum.human import compute_reward\n"
    assert not cache._leaves_the_task(text)
    change(folder / "human.py", "import torch\n", "import torch\nimport my_own_library\n")
    assert cache._leaves_the_task(text) and not cache._leaves_the_task("import torch\n")


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("task.py", "(SimTask)", "", "must define one class derived from envcoder_bench.tasks.SimTask"),
        (
            "task.py",
            "    fields =",
            '    dof_names = ("hinge")\n    fields =',
            "dof_names must be a tuple of names, such as (\"hinge\",), not 'hinge'",
        ),
        ("task.py", '    model = "pendulum.xml"\n', "", "the class Pendulum lacks model"),
        ("task.py", "def fitness", "def fitnes", "the class Pendulum does not define fitness"),
        ("task.py", "return torch.cos", "return torch cos", ": SyntaxError: "),
        ("task.py", "    fields =", '    fitness_reduction = "summ"\n    fields =', "it must be 'mean' or 'sum'"),
        ("task.py", "    fields =", "    fitness_bounds = (1.0, -1.0)\n    fields =", "fitness_bounds is (1.0, -1.0)"),
        ("task.py", "    fields =", "    fitness_bounds = 1.0\n    fields =", "such as (0.0, 1.0), not 1.0"),
        ("task.py", "import torch\n", "import torch\nopen('gains.csv')\n", "task.py:9: FileNotFoundError: "),
        ("task.py", '"dt": DT', '"action": DT', "fields declares 'action'"),
        ("task.py", "    fields =", '    fitness_reduction, goal_keys = "", ("x",)\n    fields =', "or 'sum'; "),
        ("task.py", "import torch\n", "import torch\nimport torhc\n", "ModuleNotFoundError: No module named 'torhc'"),
        ("task.py", "    fields =", '    goal_keys = ("target",)\n    fields =', "which fields does not declare"),
        ("task.py", "pendulum.xml", "pendulm.xml", "pendulm.xml is missing: the model of the task"),
        ("task.yaml", "name: Pendulum", "name: Swing", "its name is Swing, and that of Pendulum is Pendulum"),
        ("task.yaml", "name: Pendulum", "nam: Pendulum", "'name' must be the task's name"),
        ("task.yaml", "name: Pendulum", "name: [", "task.yaml: line 4: expected ',' or ']'"),
        ("task.yaml", "name: Pendulum", "name: ant", "cannot be named ant"),
    ],
)
def test_invalid_task_is_reported_in_one_line(folder, file, old, new, told):
    change(folder / file, old, new)
    assert told in refusal("pendulum")
    assert not outside._mounted()  # in a process that goes on, such as a notebook's, its modules cannot be imported


def test_refused_version_does_not_replace_the_previous_one(folder):
    before = registry.find_spec("pendulum")
    modules = outside._mounted()
    change(folder / "task.py", "def fitness", "def fitnes")
    assert "does not define fitness" in refusal("pendulum")
    assert outside._mounted() == modules and f"{outside.PACKAGE}.Pendulum.task" in modules
    assert "does not define fitness" in refusal("Pendulum")
    change(folder / "task.py", "def fitnes", "def fitness")
    assert registry.find_spec("pendulum").digest == registry.find_spec("Pendulum").digest == before.digest


def test_missing_files_are_reported_by_name(folder, tmp_path):
    (folder / "unshaped.py").rename(folder / "other.py")
    assert "unshaped.py is missing: the baseline unshaped" in refusal("pendulum")
    (folder / "task.yaml").rename(folder / "a.yaml")
    (folder / "b.yaml").write_text("", encoding="utf-8")
    assert "this folder has a.yaml, b.yaml" in refusal("pendulum")
    (folder / "task.py").unlink()
    assert "is not a task's folder: it has no task.py" in refusal("pendulum")
    assert refusal("./pendulm") == "unknown task './pendulm': the folder does not exist (did you mean pendulum?)"


def test_duplicate_task_names_are_refused(folder, tmp_path):
    registry.find_spec("pendulum")
    other = tmp_path / "other"
    other.mkdir()
    for file in folder.iterdir():
        if file.is_file():
            (other / file.name).write_bytes(file.read_bytes())
    assert f"{other}: a task named Pendulum is in {folder}: rename one" in refusal("other")
    for file in ("task.py", "task.yaml"):
        change(other / file, "Pendulum", "Anymal")
    assert "Anymal is a shipped task's name: choose another" in refusal("other")
    assert set(outside._mounted()) == {f"{outside.PACKAGE}.Pendulum", f"{outside.PACKAGE}.Pendulum.task"}


@pytest.mark.slow
@pytest.mark.parametrize("untrusted", [False, True])
def test_outside_task_trains_and_resumes(folder, tmp_path, capsys, untrusted):
    file = tmp_path / "mine.py"
    file.write_text(CANDIDATE, encoding="utf-8")
    run = tmp_path / "run"
    words = ["--task", "pendulum", "--candidates", str(file), "--output_dir", str(run), *["--untrusted"] * untrusted]
    assert main([*words, *SMALL]) == 0
    told = capsys.readouterr()
    assert "mine" in told.out and "failed" not in told.out and "not compiled" not in told.err
    assert f"task_source: {folder}" in (run / "config.yaml").read_text(encoding="utf-8")
    page = html.unescape((run / "report.html").read_text(encoding="utf-8"))
    assert "compute_observation (from envcoder_bench.tasks.Pendulum.unshaped), compute_reward" in page
    opened = open_run(run)
    known = hyperparameters(opened.cfg, list(opened.sources.values()))
    assert known["mine"]["shaper_types"] == "compute_observation compute_reward"
    kind, policy, _ = read_policy("mine", run / "candidates" / "mine" / "policy.pth")
    assert kind == "envcoder_bench" and policy.observes
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert record["software"][0]["task"] == registry.find_spec("pendulum").digest
    folder.rename(tmp_path / "moved")
    forget()
    assert main(["--resume", str(run)]) == 0  # a complete run is shown without its task
    assert "height of the rod's tip" in capsys.readouterr().out


TETRA = "v 0 0 0\nv 0.1 0 0\nv 0 0.2 0\nv 0 0 0.5\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


@pytest.mark.slow
def test_exported_model_with_a_mesh_needs_no_file_of_the_task(folder, tmp_path, monkeypatch, capsys):
    rod = '<geom type="capsule" size="0.02" fromto="0 0 0 0 0 0.5" mass="1" contype="0" conaffinity="0"/>'
    change(folder / "pendulum.xml", rod, '<geom type="mesh" mesh="rod" mass="1" contype="0" conaffinity="0"/>')
    change(folder / "pendulum.xml", "<worldbody>", '<asset><mesh name="rod" file="rod.obj"/></asset>\n  <worldbody>')
    change(folder / "pendulum.xml", 'autolimits="true"', 'autolimits="true" meshdir="meshes"')
    (folder / "meshes").mkdir()
    (folder / "meshes" / "rod.obj").write_text(TETRA, encoding="utf-8")
    (tmp_path / "mine.py").write_text(CANDIDATE, encoding="utf-8")
    assert main(["--task", "pendulum", "--candidates", "mine.py", "--output_dir", "run", *SMALL]) == 0
    own = mujoco.MjModel.from_xml_path(str(folder / "pendulum.xml"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "assets").write_text("mine", encoding="utf-8")
    capsys.readouterr()
    assert verbs_main(["export", "run", "--candidate", "mine", "--output", "out"]) == 2
    assert "out/assets is a file, and the model's files belong there: give another --output" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["assets"]
    (tmp_path / "out" / "assets").unlink()
    assert verbs_main(["export", "run", "--candidate", "mine", "--output", "out"]) == 0
    assert "its meshes, textures and height fields are in out/assets\n" in capsys.readouterr().out
    about = json.loads((tmp_path / "out" / "policy.json").read_text(encoding="utf-8"))
    assert about["files"] == {"onnx": "policy.onnx", "model": "model.xml", "assets": ["assets/rod.obj"]}
    (tmp_path / "out").rename(tmp_path / "robot")
    folder.rename(tmp_path / "gone")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    model = mujoco.MjModel.from_xml_path(str(tmp_path / "robot" / "model.xml"))
    np.testing.assert_allclose(model.body_mass, own.body_mass, rtol=1e-5)
    np.testing.assert_allclose(model.body_inertia, own.body_inertia, rtol=1e-5)
    own.opt.timestep = model.opt.timestep
    ends = []
    for robot in (own, model):
        data = mujoco.MjData(robot)
        data.ctrl[0] = 0.7
        mujoco.mj_step(robot, data, 50)
        ends.append([*data.qpos, *data.qvel])
    assert abs(ends[0][0]) > 0.1
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-3)


@pytest.mark.slow
def test_fitness_that_is_not_finite_is_explained(folder, tmp_path, capsys):
    line = "return torch.cos(state" + '["dof_pos"][:, 0])'
    change(folder / "task.py", line, 'return 1.0 / (state["dof_vel"][:, 0].abs() < 2.0)')  # infinite at speed
    push = "def compute_torque(actions, max_torque):\n    return 0.0 * actions + {} * max_torque\nACTION_DIM = 1\n"
    for name, share in (("pushes", 1.0), ("rests", 0.0)):
        Path(f"{name}.py").write_text(push.format(share), encoding="utf-8")
    words = ["--task", "pendulum", "--candidates", "pushes.py", "rests.py", "--output_dir", "run", *SMALL]
    assert main(words) == 0
    lines = (folder / "task.py").read_text(encoding="utf-8").splitlines()
    number = next(k for k, text in enumerate(lines, 1) if "def fitness" in text)
    fault = f"{folder / 'task.py'}:{number}: in fitness: fitness is infinite"
    told = capsys.readouterr()
    assert f"{fault} for pushes in the evaluation at iteration 2; check its logarithms" in told.err
    assert "best 1.000" in told.err and "best inf" not in told.err
    assert (
        re.search(r"failed \(1 of 2 candidates( and \d of \d baselines)?\):\n  pushes\n", told.out)
        and "\n  rests\n" not in told.out
    )
    assert f"{fault} for pushes" in (tmp_path / "run" / "run.log").read_text(encoding="utf-8")
    rows = {row.candidate: row for row in read_results(tmp_path / "run" / "results.csv")}
    assert rows["pushes"].error.startswith(f"{fault} in 2 of 2 evaluation episodes; check its logarithms")
    assert rows["pushes"].failed and rows["rests"].fitness == 1.0 and rows["rests"].error == ""


def forget():
    """As a process that has not seen the task yet."""
    del registry._found["Pendulum"]
    outside.unmount("Pendulum")


class StopAfter(Reporter):
    """Asks to stop after the first iteration."""

    def __init__(self):
        self.stop = StopRequest()

    def iteration_done(self, iteration, env_steps, best):
        self.stop()


@pytest.mark.slow
def test_stopped_jailed_run_of_an_outside_task_resumes_to_the_same_result(folder, tmp_path):
    (tmp_path / "pendulum.yaml").write_text("name: Pendulum\nenv: {torque: 1.25, episodeLength: 9}\n", encoding="utf-8")
    (tmp_path / "mine.py").write_text(CANDIDATE, encoding="utf-8")
    words = [
        "--task",
        str(folder),
        "--task_config",
        "pendulum.yaml",
        "--candidates",
        "mine.py",
        "--untrusted",
        *SMALL[:-1],
    ]
    assert main([*words, "--output_dir", "whole"]) == 0
    cfg = OmegaConf.load(tmp_path / "whole" / "config.yaml")
    assert (cfg.task.env.torque, cfg.task.env.episodeLength, cfg.task_source) == (1.25, 9, str(folder))
    watch = StopAfter()
    given = ["evaluation.num_envs=2", "evaluation.final_episodes=2", "evaluation.points=1"]
    given += ["task.env.torque=1.25", "task.env.episodeLength=9", "untrusted=true"]
    settings = {"num_envs_per_candidate": 4, "learning_iterations": 2, "sim": "mujoco_cpu", "device": "cpu"}
    stopped = evaluate(
        str(folder), ["mine.py"], overrides=given, output_dir="stopped", reporter=watch, stop=watch.stop, **settings
    )
    assert not stopped.complete
    forget()
    assert resume("stopped").complete
    whole, again = ((tmp_path / run / "results.csv").read_text(encoding="utf-8") for run in ("whole", "stopped"))
    assert whole == again and "mine" in whole and "failed" not in whole


@pytest.mark.slow
def test_moved_task_is_found_by_all_that_open_the_run(folder, tmp_path, capsys):
    watch = StopAfter()
    settings = {"num_envs_per_candidate": 4, "learning_iterations": 2, "sim": "mujoco_cpu", "device": "cpu"}
    settings["overrides"] = ["evaluation.num_envs=2", "evaluation.final_episodes=2", "evaluation.points=1", SMALL[-1]]
    evaluate("pendulum", {"mine": CANDIDATE}, output_dir="run", reporter=watch, stop=watch.stop, **settings)
    moved = folder.rename(tmp_path / "moved")
    forget()
    with pytest.raises(UserError) as error:
        _ = open_run("run").spec
    file = tmp_path / "run" / "config.yaml"
    assert str(error.value).startswith(f"{file}: unknown task '{folder}': ")
    assert f"move the task back to {folder}, or set task_source in this file to its new place" in str(error.value)
    change(file, f"task_source: {folder}", f"task_source: {moved}")
    assert main(["--resume", "run"]) == 0
    told = capsys.readouterr().err
    assert "could not be written" not in told
    assert f"--task {moved}" in html.unescape((tmp_path / "run" / "report.html").read_text(encoding="utf-8"))
    forget()
    run = open_run("run")
    assert run.folder.notes == [] and run.cfg.task_source == str(moved) and "Pendulum" not in registry._found
    assert run.spec.task.folder == moved
    forget()
    assert verbs_main(["export", "run", "--candidate", "human"]) == 0
    change(file, "learning_iterations: 2", "learning_iterations: 3")
    run = open_run("run")
    assert [run.cfg.task_source, run.cfg.learning_iterations] == [str(moved), 2]
    assert "(learning_iterations: 2 -> 3): these are results of the config in run.json" in run.folder.notes[0]
    change(moved / "task.py", "import torch\n", "import torch\nimport torhc\n")
    forget()
    with pytest.raises(UserError, match=r"No module named 'torhc'; restore the task's files, or begin"):  # not moved
        _ = open_run("run").spec


@pytest.mark.slow
def test_search_on_an_outside_task_resumes(folder, tmp_path, capsys, monkeypatch):
    """To the same result, as any search: see tests/search/test_auto_shape.py."""
    task = "pendulum.task:Pendulum"
    words = ["--task", task, "--llm", "evolve", "--task_config", "pendulum/task.yaml", "task.env.torque=1.25", *SMALL]
    train = Search._train

    def killed(search, round):
        if round.number == 2:
            raise SystemExit
        return train(search, round)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Search, "_train", killed)
        auto_shape.main([*words, *SEARCH, "--output_dir", "other"])
    config = OmegaConf.load(tmp_path / "other" / "config.yaml")
    assert config.task == task and "untrusted=true" in config.overrides
    forget()
    (tmp_path / "pendulum").rename(tmp_path / "moved")
    assert auto_shape.main(["--resume", "other"]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith(f"auto-shape: error: {tmp_path / 'other' / 'config.yaml'}: ")
    assert told.endswith("; make it importable again, or set task in this file to its new address")
    (tmp_path / "moved").rename(tmp_path / "pendulum")
    assert auto_shape.main(["--resume", "other"]) == 0
    archive = read_archive(tmp_path / "other" / "archive.json")
    assert [attempt.status for attempt in archive.attempts] == ["ok"] * 2
    assert all(len(archive.baselines[name].by_seed) == 2 for name in ("human", "unshaped"))
