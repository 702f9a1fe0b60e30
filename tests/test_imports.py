"""Commands import only what they need, because importing torch and rl_games takes seconds."""

import json
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
CODE = """
import json, sys
from envcoder_bench.{command} import main
try:
    code = main({words!r})
except SystemExit as stop:
    code = stop.code
{after}
print(json.dumps([code, [name for name in {heavy!r} if name in sys.modules]]))
"""


def loaded(command, *words, after=""):
    """A command's exit code, and which of HEAVY it and a statement after it imported."""
    code = CODE.format(command=command, words=list(words), heavy=HEAVY, after=after)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("command", ["eval_shapers", "auto_shape"])
def test_help_and_bad_input_import_no_heavy_packages(command):
    assert loaded(command, "--help") == [0, []]
    assert loaded(command) == [2, []]
    assert loaded(command, "--task", "Cartpol", "--llm" if command == "auto_shape" else "--sim", "auto") == [2, []]


def test_describe_imports_no_trainer():
    assert loaded("eval_shapers", "--task", "Cartpole", "--describe") == [0, ["torch", "hydra", "mujoco"]]


def test_check_does_not_import_torch_compiler_or_plotting_packages():
    words = ["--task", "Cartpole", "--check", "--candidate_idx", "0", "--num_envs_per_candidate", "2"]
    code, found = loaded("eval_shapers", *words, "--sim", "mujoco_cpu", "--device", "cpu")
    assert code == 0 and not {"torch._dynamo", "pandas", "scipy.special", "matplotlib"}.intersection(found)


def test_what_trains_in_one_process_does_not_import_ray():
    code, found = loaded("eval_shapers", "--help", after="import envcoder_bench.run.evaluate")
    assert code == 0 and "torch" in found and "ray" not in found


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
