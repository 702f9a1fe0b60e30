"""The prompts of a task, and their limit."""

import re

import pytest
import torch
from search_fakes import random_archive

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.settings import merged, nested
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.search.prompt.prompts import Prompts, helper_lines, load_templates, system_prompt
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.shaping.kinds import ACTION_TYPES, SHAPER_TYPES
from envcoder_bench.shaping.source import inlined, reduced
from envcoder_bench.sources.registry import find_spec, task_names
from envcoder_bench.tasks.base import BASELINE_FILES
from envcoder_bench.tasks.contract import task_contract

# a terrain of few tiles is built in a fraction of the time
SMALL = {
    name: [f"task.env.terrain.{key}" for key in ("numLevels=2", "borderSize=3")]
    for name in ("AnymalTerrain", "SpotTerrain")
}


@pytest.fixture(autouse=True, scope="module")
def contracts_are_made_once():
    """Prompts of the same config build the same simulation."""
    made = {}

    def once(spec, cfg):
        key = spec.name, repr(cfg)
        if key not in made:
            made[key] = task_contract(spec, cfg)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("envcoder_bench.search.prompt.prompts.task_contract", once)
        yield once


def system(task="Cartpole", shaper_types=None, baseline="human", templates=None, show=True, overrides=()):
    run = RunSpec.of(compose_config(task, [f"baseline={baseline}", *SMALL.get(task, []), *overrides]))
    return system_prompt(templates or load_templates(), run, "Be quick", "meaning", shaper_types, show)


@pytest.mark.parametrize("task", task_names())
def test_system_prompt_has_task_state_and_baseline(task, contracts_are_made_once):
    text = system(task)
    assert "$" not in text
    assert "Be quick" in text and "meaning" in text
    cfg = compose_config(task, SMALL.get(task, []))
    for key, field in contracts_are_made_once(find_spec(task), cfg.task).fields.items():
        assert f"`{key}`" in text and field.meaning in text
    source = inlined(find_spec(task).baseline_path("human").read_text())
    assert source[source.index("\ndef ") :].strip() in text and "\nSource: " not in text


@pytest.mark.parametrize("asked", [[kind] for kind in SHAPER_TYPES] + [["compute_reward", "compute_terminal"]])
def test_system_prompt_has_only_the_requested_contracts(asked):
    text = system("Anymal", asked, baseline="unshaped")
    before_state = text[: text.index("# The state")]
    for kind in SHAPER_TYPES:
        assert (f"- `{kind}(" in before_state) == (kind in asked)
        assert (f"`{kind}`" in before_state[: before_state.index("\n\n- ")]) == (kind in asked)
    assert inlined(find_spec("Anymal").baseline_path("unshaped").read_text()).strip() in text


@pytest.mark.parametrize("task", task_names())
def test_prompt_has_all_constants_joints_and_bodies(task):
    cfg = compose_config(task, SMALL.get(task, []))
    made = find_spec(task).make(cfg.task, 3, "mujoco_cpu", "cpu")
    text = system(task)
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    for key, value in made.constants.items():
        told = rows[key].removesuffix(" |").rpartition(made.fields[key].meaning + ": ")[2]
        if " times " in told:
            count, _, told = told.partition(" times ")
            numbers = [float(told)] * int(count)
        else:
            numbers = [float(x) for x in told.strip("[]").split(", ")]
        assert numbers == pytest.approx(value.flatten().tolist(), rel=1e-4), key
    (joints,) = [line for line in text.splitlines() if line.startswith("- Joints, in the order of `dof_pos`")]
    told = [x.split()[0] for x in joints.partition("): ")[2].split("; ")]
    assert [x for x in told if x != "each"] == list(made.dof_names)
    assert all(f" {k} {name}" in text for k, name in enumerate(made.body_names))


def test_prompt_describes_the_training():
    overrides = ["num_envs_per_candidate=300", "learning_iterations=77", "train.params.config.horizon_length=40"]
    overrides += ["train.params.config.gamma=0.98", "train.params.config.reward_shaper.scale_value=0.25", "seeds=3"]
    overrides += ["task.env.learn.episodeLength_s=15", "task.sim.dt=0.01", "evaluation.final_episodes=11"]
    text = system("Anymal", overrides=overrides)
    training = text.split("# The training\n")[1].split("\n# ")[0]
    for told in (
        "a control step lasts 0.01 s (2 physics steps, 100 control steps a second)",
        "An episode lasts 1,500 control steps at most, 15 s.",
        "with each of 3 seeds: 300 environments x 77 iterations of 40 control steps",
        "an environment plays 3,080 control steps, 30.8 s or 2.05 full episodes; all together play 924,000",
        "gamma 0.98 for each control step: what comes 50 control steps (0.5 s) later counts 0.36",
        "PPO learns from it times 0.25.",
        "Judged over 11 episodes with each seed.",
    ):
        assert told in training, told
    assert "- Its position drives: stiffness 85 N m/rad, damping 2 N m s/rad." in text
    one = system(
        "Cartpole", overrides=["learning_iterations=1", "num_envs_per_candidate=1", "task.env.episodeLength=9"]
    )
    assert "1 environment x 1 iteration of 16 control steps and one PPO update each" in one
    assert "16 control steps, 0.2656 s or 1.78 full episodes" in one
    assert "constant | control steps | an episode times out after so many: 9 |" in one


def test_reward_shaper_is_described():
    cfg = compose_config("Cartpole")
    shaper = {"scale_value": 2.0, "shift_value": -1, "max_val": 3}
    changes = {"params.config.reward_shaper": shaper, "params.config.normalize_value": False}
    cfg = cfg.model_copy(update={"train": merged(cfg.train, nested(changes))})
    text = system_prompt(load_templates(), RunSpec.of(cfg), "", "", None)
    assert "PPO learns from it times 2 (and reward_shaper's shift_value -1, max_val 3)." in text
    assert "normalizes" not in text


@pytest.mark.slow
@pytest.mark.parametrize("baseline", BASELINE_FILES)
@pytest.mark.parametrize("task", task_names())
def test_hidden_baseline_is_not_in_the_prompt(task, baseline, contracts_are_made_once):
    shown, hidden = system(task, baseline=baseline), system(task, baseline=baseline, show=False)
    assert len(hidden) < len(shown) and '```python\n"""' not in hidden
    assert f"comes from the `{baseline}` baseline, which is not shown to you." in hidden
    # no line of its code that says something, nor a constant of its formulas
    told = {line.strip() for line in hidden.splitlines()}
    source = inlined(find_spec(task).baseline_path(baseline).read_text())
    assert not [line for line in source.splitlines() if len(line.strip()) > 25 and line.strip() in told]
    assert "human baseline" not in hidden
    fields = contracts_are_made_once(find_spec(task), compose_config(task, SMALL.get(task, [])).task).fields
    left_out = [key for key in fields if f"| `{key}` |" not in hidden]
    assert all(fields[key].shape is None and "human baseline" in fields[key].meaning for key in left_out)
    if task in ("AllegroHand", "Ant", "FrankaCubeStack", "Humanoid"):
        assert len(left_out) > 3
    # what is left out is read by the baseline's formulas alone
    unshaped = inlined(find_spec(task).baseline_path("unshaped").read_text())
    assert not [key for key in left_out if f'"{key}"' in unshaped and key not in ("reach_goal_bonus", "power_scale")]


@pytest.mark.slow
@pytest.mark.parametrize("show", [True, False])
@pytest.mark.parametrize("task", task_names())
def test_numbers_of_actions_are_in_every_prompt(task, show):
    """Those that the human baseline's action function uses, or else the task's own drives."""
    text = system(task, ["compute_reward"], show=show)
    rows = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    made = find_spec(task).make(compose_config(task, SMALL.get(task, [])).task, 2, "mujoco_cpu", "cpu")
    action, _ = reduced(inlined(find_spec(task).baseline_path("human").read_text()), ACTION_TYPES)
    words = set(re.findall(r"\w+", action + made.drive_formula))
    assert words & set(made.constants) <= rows and words & {*made.constants, "actionScale"}
    assert bool(action) != bool(made.drive_formula)


@pytest.mark.parametrize("task", ["Anymal", "AnymalTerrain", "SpotTerrain"])
def test_action_scale_is_that_of_the_config(task):
    words = [*SMALL.get(task, []), "task.env.control.actionScale=0.375"]
    text = system(task, ["compute_reward"], show=False, overrides=words)
    line = "joint position target = default_dof_pos + actionScale * action; actionScale 0.375."
    assert f"- What an action does without action function: {line}\n" in text
    made = find_spec(task).make(compose_config(task, words).task, 2, "mujoco_cpu", "cpu")
    state = {"default_dof_pos": torch.full((2, 12), 0.25)}
    assert (made.default_dof_target(torch.ones(2, 12), state) == 0.25 + 0.375).all()


def test_custom_template_cannot_show_the_baseline(tmp_path):
    (tmp_path / "system.md").write_text("$state\n```python\n$baseline_source\n```\n")  # as it was before baseline.md
    templates = load_templates(tmp_path)
    assert "def compute_reward" in system(templates=templates)
    assert "def compute_reward" not in system(templates=templates, show=False)


def test_helpers_are_listed_with_their_signatures():
    lines = helper_lines()
    assert "- `quat_rotate_inverse(q: Tensor, v: Tensor) -> Tensor`: Express vectors" in "\n".join(lines)
    assert any(
        line.startswith("- `torch_rand_float(lower: float, upper: float, shape: tuple[int, int]") for line in lines
    )
    assert not any("_uniform" in line for line in lines)
    assert all(line.count("`") >= 2 and len(line) > 30 for line in lines)


def test_fitness_code_is_not_in_the_prompt():
    assert "def fitness" not in system("Anymal") and "def compute_fitness" not in system("Anymal")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_prompt_limit_holds_and_includes_the_best(seed):
    archive = random_archive(seed)
    fixed = len(system())
    for room in (3500, 5000, 9000, 30_000):
        prompts = Prompts(load_templates(), system(), 5, fixed + room)
        text = prompts.question(archive, 3)
        assert len(prompts.system) + len(text) <= fixed + room
        best = archive.best()
        if best is not None:
            assert re.search(rf"^{best.name}( from [\w, ]+)?: fitness", text, re.MULTILINE)
        assert len(prompts.repair(Fault("message"), "x = 1\n" * room)) == 0
        assert "message" in prompts.repair(Fault("message"), "x = 1\n")
        again = prompts.missing(archive, 3, "no function", "Hm. " * 75)
        twin = prompts.duplicate(archive, {"r9_00": '"""Mine."""'}, Fault("is the same as r9_00"), "x = 1\n" * 50)
        assert again and twin and max(len(again), len(twin)) <= room + fixed - len(prompts.system)
        assert "\nr9_00: not trained yet; Mine.\n" in twin


def test_too_low_limit_is_refused():
    with pytest.raises(
        UserError, match=r"prompt.max_chars=100 is too little: this task needs (\d+) at least"
    ) as caught:
        Prompts(load_templates(), system(), 5, 100)
    least = int(str(caught.value).split("needs ")[1].split()[0])
    Prompts(load_templates(), system(), 5, least)
    with pytest.raises(UserError):
        Prompts(load_templates(), system(), 5, least - 1)


def test_custom_templates_replace_shipped_ones(tmp_path):
    (tmp_path / "functions").mkdir()
    (tmp_path / "first.md").write_text("Do it.")
    (tmp_path / "functions" / "compute_reward.md").write_text("- `compute_reward(x)` has $num_dofs joints")
    templates = load_templates(tmp_path)
    assert templates["first.md"] == "Do it."
    assert templates["next.md"] == load_templates()["next.md"]
    assert "has 12 joints" in system("Anymal", ["compute_reward"], templates=templates)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("sytem.md", "x", "sytem.md is not a template (did you mean system.md"),
        ("system.md", "one\ntwo $taks", "template system.md:2: there is no $taks (did you mean task"),
        ("system.md", "one\n\n5 $ a day", "template system.md:3: a lone $: write $$"),
        ("next.md", "${feedbak}", "template next.md:1: there is no $feedbak (did you mean feedback?)"),
        ("repair.md", "$round", "template repair.md:1: there is no $round"),
        ("baseline.md", "a\n$task", "template baseline.md:2: there is no $task"),
    ],
)
def test_template_error_has_its_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as caught:
        templates = load_templates(tmp_path)
        Prompts(templates, system(templates=templates), 5, 60_000)
    assert message in str(caught.value)


def test_folder_without_templates_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"has no template; there are system\.md"):
        load_templates(tmp_path)
    with pytest.raises(UserError, match="the folder does not exist"):
        load_templates(tmp_path / "nowhere")
