"""Bad input to auto-shape: one clear message, exit code 2, nothing written, no request sent."""

import json
from pathlib import Path

import pytest
from helpers import refused

from envcoder_bench.cli.auto_shape import build_parser, main, overrides
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.search.settings import compose_settings

EVOLVE = "--task Cartpole --llm evolve --sim mujoco_cpu --num_envs_per_candidate 2"
MODEL = "--task Cartpole --llm gpt-4-turbo-preview --sim mujoco_cpu --num_envs_per_candidate 2"
NEEDS_THE_TASK = ("no $rond", "for --task_description", "raises.py:5", "there and", "shaper_types is")  # the prompt
NO_KEY = "OPENAI_API_KEY"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no task: give --task NAME, e.g. --task Cartpole; see --help"),
        ("--task Cartpole", "no model: give --llm"),
        ("--task Cartpol --llm evolve", "unknown task 'Cartpol' (did you mean Cartpole or CartpoleSwingup?)"),
        ("--task Cartpole --llm gtp-4", "--llm gtp-4: no such model"),
        ("--task Cartpole --llm evolv", "(did you mean evolve?)"),
        (MODEL, NO_KEY),
        ("--task Cartpole --llm claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        (f"{EVOLVE} --shaper_types compute_rewrd", "unknown shaper type 'compute_rewrd' (did you mean compute_reward"),
        (f"{EVOLVE} --num_iter 3", "unrecognized arguments: --num_iter (did you mean --num_iters"),
        (f"{EVOLVE} --num_iters 0", "num_iters must be a whole number of at least 1 and at most 10,000, got 0"),
        (f"{EVOLVE} --final_seeds -1", "final_seeds must be a whole number of at least 0 and at most 10,000, got -1"),
        (f"{EVOLVE} --task_description {{blank}}", "--task_description is empty: say what the policy should do"),
        (f"{EVOLVE} --task_description {{long}}", "(70000 of them for --task_description)"),
        (f"{EVOLVE} --reply_timeout 0", "reply_timeout must be a number above 0, got 0"),
        (f"{EVOLVE} --repair -1", "repair must be a whole number of at least 0 and at most 1,000, got -1"),
        (f"{EVOLVE} --temperature -1", "temperature must be a number of at least 0, or null, got -1"),
        (f"{EVOLVE} parents=[best]", "parents must be a list of human and unshaped, got ['best']"),
        (f"{EVOLVE} show_baseline=maybe", "show_baseline must be true or false, got maybe"),
        (f"{EVOLVE} --show_baseline maybe", "argument --show_baseline: invalid choice: 'maybe'"),
        (f"{EVOLVE} prompt.max_char=9", "unknown key 'prompt.max_char' (did you mean prompt.max_chars"),
        (f"{EVOLVE} prompt=short", "prompt must be a mapping with the keys dir, max_chars, got short"),
        (f"{EVOLVE} --seeds auto --race", "seeds=auto with a race: how long a race takes cannot be predicted"),
        (f"{EVOLVE} seed=4294967290", "seed: the last of 5 seeds must be at most 4294967295, got seed=4294977295"),
        (f"{EVOLVE} baselines=false", "a search trains both baselines in every round"),
        (f"{EVOLVE} --prompt_dir {{empty}}", "{empty} has no template; there are system.md"),
        (f"{EVOLVE} --prompt_dir nowhere", "--prompt_dir nowhere: the folder does not exist"),
        (f"{EVOLVE} --prompt_dir {{broken}}", "first.md:2: there is no $rond"),
        (f"{EVOLVE} --fitness {{folder}}/nothing.py", "nothing.py"),
        (f"{EVOLVE} --fitness {{folder}}/raises.py", "raises.py:5: in compute_fitness"),
        (f"{EVOLVE} --fitness {{folder}}/nowhere.py", "does not exist"),
        (f"{EVOLVE} --candidates {{folder}}/nowhere.py", "nowhere.py does not exist"),
        (f"{EVOLVE} --candidates {{starts}} --shapers_per_iter 2", "gives 3 files, and a round has 2"),
        (f"{EVOLVE} train.params.config.mini_epochs=0", "params.config.mini_epochs: must be a whole number"),
        (f"{EVOLVE} --output_dir {{folder}}", "{folder} is not empty; give a new folder"),
        ("--task Cartpole --llm replay:{folder}/nothing.py --sim mujoco_cpu", "nothing.py"),
        ("--task Ant --llm replay:{recorded} --sim mujoco_cpu", 'task is "Cartpole" there and "Ant" here'),
        ("--task Cartpole --llm replay:{recorded} --shaper_types compute_goal", "shaper_types is"),
        ("--resume {empty}", "it is not the folder of a search (no config.yaml)"),
        ("--resume {run}", "its config.yaml is not that of a search"),
        ("--resume {empty} --seeds 3", "--resume takes no other flag"),
    ],
)
def test_bad_input_prints_one_line_and_writes_no_files(words, message, tmp_path, capsys, monkeypatch):
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    if not any(text in message for text in NEEDS_THE_TASK):
        monkeypatch.setattr(RunSpec, "try_code", lambda _: pytest.fail("the task's code was run"))
    places = {name: tmp_path / name for name in ("folder", "empty", "broken", "starts", "run", "work")}
    for path in places.values():
        path.mkdir()
    (places["folder"] / "nothing.py").write_text('"""Nothing."""\n\nx = 1\n')
    fails = '"""It raises."""\n\n\ndef compute_fitness(state_dict):\n    return state_dict["nowhere"]\n'
    (places["folder"] / "raises.py").write_text(fails)
    (places["broken"] / "first.md").write_text("one\n$rond")
    for name in "abc":
        (places["starts"] / f"{name}.py").write_text("def compute_reward(pole_angle):\n    return -pole_angle\n")
    (places["run"] / "config.yaml").write_text("task: {name: Cartpole}\n")
    places["recorded"] = tmp_path / "transcript.jsonl"
    places["recorded"].write_text(transcript())
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(places["work"])  # searches/ would come to be here
    texts = {"{blank}": " \n", "{long}": "x" * 70_000}
    told = refused(main, [texts.get(word) or word.format(**places) for word in words.split()], capsys)
    assert told.startswith("auto-shape: error: ") and message.format(**places) in told
    assert sorted(tmp_path.rglob("*")) == before


def transcript():
    meta = {"task": "Cartpole", "task_description": "Up", "shaper_types": ["compute_reward"]}
    request = {"system": "", "messages": [{"role": "user", "text": "?"}], "temperature": None}
    request.update(max_output_tokens=None, sample=0, attempt=0)
    reply = {"text": "x", "input_tokens": 1, "output_tokens": 1, "cost": None, "finish": "stop", "error": ""}
    lines = [
        {"type": "header", "format": 1, "version": "0", "meta": meta},
        {
            "type": "reply",
            "time": "",
            "label": "r1_00",
            "provider": "openai:m",
            "hash": "0",
            "request": request,
            "reply": reply,
        },
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_api_key_is_not_required_before_checks_and_never_shown(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.chdir(tmp_path)
    assert main([*MODEL.split(), "--fitness", "nowhere.py"]) == 2
    captured = capsys.readouterr()
    assert "sk-secret" not in captured.out + captured.err
    assert not any("sk-secret" in path.read_text() for path in Path().rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["a ${b} c", "it's", 'with "quotes"', "a: b # c", "{d}", "ü"])
def test_prompt_dir_of_any_name_is_taken(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    args = build_parser().parse(["--task", "Cartpole", "--llm", "evolve", "--prompt_dir", str(folder)])
    assert compose_settings(overrides(args))[0].prompt.dir == str(folder)
