"""What a model is told of a task, and that no prompt is longer than its limit."""

import pytest
from search_fakes import random_archive

from envcoder_bench.config import compose_config
from envcoder_bench.errors import UserError
from envcoder_bench.search import prompt
from envcoder_bench.search.prompt import Prompts, fill, helper_lines, load_templates, system_prompt
from envcoder_bench.search.records import Archive
from envcoder_bench.shaping.contract import SHAPER_TYPES
from envcoder_bench.tasks.registry import baseline_path, get_spec, task_names


def system(task="Cartpole", shaper_types=None, baseline="human", templates=None):
    cfg = compose_config(task)
    return system_prompt(templates or load_templates(), task, "Be quick", "meaning", shaper_types, baseline, cfg)


@pytest.mark.parametrize("task", task_names())
def test_it_holds_all_that_a_candidate_needs_to_know(task):
    text = system(task)
    assert "$" not in text
    assert "Be quick" in text and "meaning" in text
    for key, field in get_spec(task).task_class.fields.items():
        assert f"`{key}`" in text and field.meaning in text
    assert baseline_path(task, "human").read_text().strip() in text


@pytest.mark.parametrize("asked", [[kind] for kind in SHAPER_TYPES] + [["compute_reward", "compute_terminal"]])
def test_it_holds_the_contract_of_just_the_asked_functions(asked):
    text = system("Anymal", asked, baseline="unshaped")
    before_state = text[: text.index("# The state")]
    for kind in SHAPER_TYPES:
        assert (f"- `{kind}(" in before_state) == (kind in asked)
        assert (f"`{kind}`" in before_state[: before_state.index("\n\n- ")]) == (kind in asked)
    assert baseline_path("Anymal", "unshaped").read_text().strip() in text


def test_a_task_without_goals_is_not_offered_any():
    assert "compute_goal" not in system("Cartpole").split("# The state")[0]
    assert "compute_goal" in system("Anymal").split("# The state")[0]


def test_helpers_are_named_with_their_signatures():
    lines = helper_lines()
    assert "- `quat_rotate_inverse(q: Tensor, v: Tensor) -> Tensor`: Express vectors" in "\n".join(lines)
    assert any(
        line.startswith("- `torch_rand_float(lower: float, upper: float, shape: Tuple[int, int]") for line in lines
    )
    assert not any("_uniform" in line for line in lines)
    assert all(line.count("`") >= 2 and len(line) > 30 for line in lines)


def test_fitness_code_is_not_in_it():
    assert "def fitness" not in system("Anymal") and "def compute_fitness" not in system("Anymal")


@pytest.mark.parametrize("seed", range(12))
def test_no_prompt_is_longer_than_its_limit_and_the_best_is_always_in_it(seed):
    archive = random_archive(seed)
    fixed = len(system())
    for room in (3500, 5000, 9000, 30_000):
        prompts = Prompts(load_templates(), system(), 5, fixed + room)
        text = prompts.question(archive, 3)
        assert len(prompts.system) + len(text) <= fixed + room
        best = archive.best()
        if best is not None:
            assert f"{best.name}, of round {best.round}: fitness" in text
        assert len(prompts.repair("message", "x = 1\n" * room)) == 0
        assert "message" in prompts.repair("message", "x = 1\n")


def test_more_room_tells_more():
    archive = random_archive(3)
    fixed = len(system())
    told = [Prompts(load_templates(), system(), 5, fixed + room).question(archive, 3) for room in (3500, 6000, 90_000)]
    assert len(told[0]) < len(told[1]) < len(told[2])
    text = Prompts(load_templates(), system(), 5, fixed + 90_000).question(archive, 3)
    for attempt in archive.attempts:
        assert attempt.name in text


def test_a_limit_that_leaves_no_room_is_refused_with_the_least_that_does():
    with pytest.raises(
        UserError, match=r"prompt.max_chars=100 is too little: this task needs (\d+) at least"
    ) as caught:
        Prompts(load_templates(), system(), 5, 100)
    least = int(str(caught.value).split("needs ")[1].split()[0])
    Prompts(load_templates(), system(), 5, least)
    with pytest.raises(UserError):
        Prompts(load_templates(), system(), 5, least - 1)


def test_the_first_question_is_another():
    prompts = Prompts(load_templates(), system(), 5, 60_000)
    assert "Nothing has been tried" in prompts.question(Archive(), 1)


def test_own_templates_take_the_place_of_the_shipped_ones(tmp_path):
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
        ("sytem.md", "x", "sytem.md is no template (did you mean system.md"),
        ("system.md", "one\ntwo $taks", "template system.md:2: there is no $taks (did you mean task"),
        ("system.md", "one\n\n5 $ a day", "template system.md:3: a lone $: write $$"),
        ("next.md", "${feedbak}", "template next.md:1: there is no $feedbak (did you mean feedback?)"),
        ("repair.md", "$round", "template repair.md:1: there is no $round"),
    ],
)
def test_a_mistake_in_a_template_is_told_with_its_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as caught:
        templates = load_templates(tmp_path)
        Prompts(templates, system(templates=templates), 5, 60_000)
    assert message in str(caught.value)


def test_a_folder_without_templates_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"has no template; there are system\.md"):
        load_templates(tmp_path)
    with pytest.raises(UserError, match="there is no such folder"):
        load_templates(tmp_path / "nowhere")


def test_all_templates_are_shipped():
    assert set(load_templates()) == set(prompt.TEMPLATES)
    assert fill({"x.md": "costs $$5 $a"}, "x.md", a=1) == "costs $5 1\n"
