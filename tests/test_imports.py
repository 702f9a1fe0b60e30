"""Commands import only what they need, because importing torch and rl_games takes seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import envcoder_bench

pytestmark = pytest.mark.slow

# what takes long to import; torch._dynamo comes with rl_games' runner
HEAVY = [
    "torch",
    "hydra",
    "rl_games",
    "torch._dynamo",
    "pandas",
    "scipy.special",
    "matplotlib",
    "mujoco",
    "warp",
    "openai",
    "anthropic",
    "ray",
]
EVOLVE = [str(Path(__file__).parent / folder) for folder in ("fakes", "search")]
CODE = """
import contextlib, io, json, sys
import envcoder_bench
from envcoder_bench.auto_shape import main as auto_shape
from envcoder_bench.eval_shapers import main as eval_shapers

def loaded(main, *words):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = main(list(words))
        except SystemExit as stop:
            code = stop.code
    return [code, [name for name in {heavy!r} if name in sys.modules]]

def settings():
    return [repr(torch.tensor([1e-9, 123.456789])), torch.get_num_threads()]

found = dict(help=[])
for main, flag in ((eval_shapers, "--sim"), (auto_shape, "--llm")):
    for words in (["--help"], [], ["--task", "Cartpol", flag, "auto"]):
        found["help"].append(loaded(main, *words))
found["describe"] = loaded(eval_shapers, "--task", "Cartpole", "--describe")
import torch
before = settings()
cpu = ["--num_envs_per_candidate", "2", "--sim", "mujoco_cpu", "--device", "cpu"]
found["check"] = loaded(eval_shapers, "--task", "Cartpole", "--check", "--candidate_idx", "0", *cpu)
made = envcoder_bench.evaluate(
    "Cartpole", dict(cosine="def compute_reward(pole_angle):\\n    return torch.cos(pole_angle)\\n"),
    output_dir={folder!r}, num_envs_per_candidate=2, learning_iterations=1, baselines=False, compile_shapers=False,
    sim="mujoco_cpu", device="cpu", overrides=["evaluation.num_envs=2", "evaluation.final_episodes=2"])
found["trained"] = [made.complete, [name for name in {heavy!r} if name in sys.modules]]
found["settings"] = [before, settings()]
sys.path[:0] = {tests!r}
import test_evolve
archive, state = test_evolve.with_shipped("Anymal"), test_evolve.state_of("Anymal")
found["evolved"] = test_evolve.described(archive, state=state, count=40)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Exit codes of commands and a run in one process, one after the other, and which of HEAVY were imported then."""
    folder = tmp_path_factory.mktemp("fresh") / "run"
    code = CODE.format(heavy=HEAVY, folder=str(folder), tests=EVOLVE)
    env = {**os.environ, "PYTHONHASHSEED": "1"}  # that of this process is random
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()  # a run from Python prints nothing
    return json.loads(line)


def test_help_and_bad_input_import_no_heavy_packages(found):
    assert found["help"] == 2 * [[0, []], [2, []], [2, []]]


def test_describe_imports_no_trainer(found):
    assert found["describe"] == [0, ["torch", "hydra", "mujoco"]]


def test_check_does_not_import_torch_compiler_or_plotting_packages(found):
    code, modules = found["check"]
    assert code == 0 and not {"torch._dynamo", "pandas", "scipy.special", "matplotlib"}.intersection(modules)


def test_what_trains_in_one_process_does_not_import_ray(found):
    complete, modules = found["trained"]
    assert complete and "torch" in modules and "ray" not in modules


def test_a_run_restores_settings_of_a_fresh_process(found):
    """Imports are included: rl_games changes torch's print options when it is imported."""
    before, after = found["settings"]
    assert before == after


def test_proposals_of_evolve_are_independent_of_the_hash_seed(found, monkeypatch):
    for folder in EVOLVE:
        monkeypatch.syspath_prepend(folder)
    import test_evolve

    proposed = test_evolve.described(test_evolve.with_shipped("Anymal"), state=test_evolve.state_of("Anymal"), count=40)
    assert found["evolved"] == json.loads(json.dumps(proposed))


def test_a_checkout_on_the_import_path_is_enough():
    """Without site-packages, as on a machine where nothing can be installed; both packages are of this checkout."""
    root = Path(envcoder_bench.__file__).resolve().parents[1]
    code = "import envcoder_bench, isaacgym_mujoco as other; print(envcoder_bench.__file__, other.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(root)}, capture_output=True, text=True, cwd="/"
    )
    assert done.stdout.split() == [
        str(root / "envcoder_bench" / "__init__.py"),
        str(root / "packages" / "isaacgym_mujoco" / "__init__.py"),
    ], done.stderr
