"""With mjlab itself: tasks of other packages, whole, incomplete and broken."""

import sys
from importlib.metadata import EntryPoint, version

import pytest
import torch
from driven import CARTPOLE, Driven

from envcoder_bench.core.errors import UserError
from envcoder_bench.sources.mjlab_tasks import source
from envcoder_bench.sources.mjlab_tasks.spec import facts_of
from envcoder_bench.sources.registry import find_spec

pytest.importorskip("mjlab")
pytestmark = pytest.mark.slow  # constructing a scene takes a second


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package whose ``tasks`` registers variants of Cartpole, and some that cannot be imported; its folder."""
    folder = tmp_path_factory.mktemp("packages")
    files = {
        "swinging/__init__.py": "",
        "swinging/tasks.py": PACKAGE,
        "older.py": "import mjlab.managers.manager_term_config",
        "lacking.py": "import torch\nimport no_such_thing",
        "chained.py": "raise ImportError('install it') from RuntimeError('a cause that nothing has raised')",
        "unclosed.py": "import torch\nx = (\n",
        "other_library.py": "from numpy import no_such_name",
        "old_call.py": "from mjlab.managers.reward_manager import RewardTermCfg\nRewardTermCfg(no_such=1)",
        "half/__init__.py": HALF,
        "untrained.py": HALF.replace("Half", "Untrained").replace("cfg, rl_cfg)", "cfg, None)"),
        "half/tasks.py": "import no_such_thing",
        "bare/__init__.py": "",
        "bare/tasks.py": "import no_such_thing",
        "leaving.py": "import os, sys\nsys.path.remove(os.getcwd())\nimport no_such_thing",
    }
    # checkouts: with a version of mjlab that they ask for, and with an entry point
    broken = "from mjlab.managers.reward_manager import RewardTermCfg\nRewardTermCfg(no_such=1)"
    for name, asked in (("pinned", "mjlab==1.2.0"), ("served", "mjlab[cu128]>=1.2")):
        files[f"{name}-repo/pyproject.toml"] = f"[project]\ndependencies = ['numpy', \"{asked}\"]\n"
        files[f"{name}-repo/src/{name}/__init__.py"] = broken
    for name, asked in (("moved", ">=1.2"), ("exact", f"=={version('mjlab')}")):
        files[f"{name}-repo/pyproject.toml"] = f"[project]\ndependencies = ['mjlab{asked}']\n"
        files[f"{name}-repo/src/{name}/__init__.py"] = "from mjlab.utils.os import no_such_name"
    files["sourced-repo/src/sourced/__init__.py"] = HALF.replace("Half", "Sourced")
    files["pointed-repo/pyproject.toml"] = "[project.entry-points.'mjlab.tasks']\npointed = 'pointed.registered'\n"
    files["pointed-repo/src/pointed/__init__.py"] = ""
    files["pointed-repo/src/pointed/registered.py"] = HALF.replace("Half", "Pointed")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


HALF = """from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, register_mjlab_task

cfg, rl_cfg = load_env_cfg("Mjlab-Cartpole-Balance"), load_rl_cfg("Mjlab-Cartpole-Balance")
register_mjlab_task("Half-Task", cfg, cfg, rl_cfg)
"""

PACKAGE = """import torch
from mjlab.managers.curriculum_manager import CurriculumTermCfg
from mjlab.managers.observation_manager import ObservationGroupCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.envs import mdp
from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, register_mjlab_task


class Warps:
    def __init__(self, cfg, env):
        env.sim.wp_device

    def __call__(self, env):
        return torch.zeros(env.num_envs, dtype=torch.bool)


def far(env, limit):
    return torch.full((env.num_envs,), 1.0) > limit


def variant(name, sets, end, curriculum=None):
    cfg, rl_cfg = load_env_cfg("Mjlab-Cartpole-Balance"), load_rl_cfg("Mjlab-Cartpole-Balance")
    terms = cfg.observations["actor"].terms
    names = list(terms)
    cfg.observations = {
        "policy": ObservationGroupCfg({name: terms[name] for name in names[:2]} | {"gone": None}),
        "speeds": ObservationGroupCfg({name: terms[name] for name in names[2:]}),
        "empty": ObservationGroupCfg({"gone": None}),
    }
    cfg.rewards["gone"] = cfg.events["gone"] = None
    cfg.terminations["end"] = end
    cfg.curriculum = curriculum or {}
    rl_cfg.obs_groups = sets
    register_mjlab_task(name, cfg, cfg, rl_cfg)


stages = [{"step": 3, "params": {"limit": 0.0}}]
curriculum = {"end": CurriculumTermCfg(mdp.termination_curriculum, {"termination_name": "end", "stages": stages})}
end = TerminationTermCfg(far, {"limit": 2.0})
variant("Two", {"actor": ("policy", "speeds"), "critic": ("speeds",)}, end, curriculum)
variant("Plain", {}, TerminationTermCfg(Warps))
variant("Lost", {"actor": ("policy",), "critic": ("privileged",)}, end)
variant("Stacked", {"actor": ("policy",)}, end)
cfg, rl_cfg = load_env_cfg("Stacked"), load_rl_cfg("Stacked")
cfg.observations["policy"].history_length, cfg.observations["policy"].flatten_history_dim = 3, False
register_mjlab_task("Stacked-History", cfg, cfg, rl_cfg)
rl_cfg.actor.class_name = "other:PointModel"
register_mjlab_task("Points", load_env_cfg("Stacked"), cfg, rl_cfg)
"""


def test_groups_of_observations_are_side_by_side_and_a_curriculum_changes_a_termination(package, monkeypatch):
    monkeypatch.chdir(package)
    spec = find_spec("mjlab:swinging:Two")  # registered by swinging.tasks
    assert facts_of(spec.address).own_widths == {"actor": 5, "critic": 2}
    driven = Driven("swinging:Two", 3, 2, patches=[{}, {"observations": {"cart_pos": None}}])
    for k in range(4):
        results = driven.step(torch.ones(3, 1))
        assert bool(results["reset_buf"].all()) == bool(results["reset_buf"].any()) == (k >= 3)  # by mjlab's steps
    one, other = (driven.of_group(results, group) for group in range(2))
    assert torch.equal(one["obs_buf"][:, 3:5], one["critic_buf"][:, :2]) and one["obs_buf"][:, :5].abs().min() > 0
    assert torch.equal(other["obs_buf"][:, :4], one["obs_buf"][:, 1:5])


def test_a_critic_like_the_actor_is_none_and_code_of_warp_takes_warp(package, monkeypatch):
    monkeypatch.chdir(package)
    facts = facts_of("mjlab:swinging:Plain")
    assert facts.own_widths == {"actor": 3} and facts.needs_warp and facts.obs_sets["actor"] == ("policy",)
    assert not facts_of(f"mjlab:{CARTPOLE}").needs_warp
    with pytest.raises(UserError, match="reads arrays of MuJoCo Warp"):
        find_spec("mjlab:swinging:Plain").make({"sim": {"backend": "mujoco"}}, 1, "mujoco_cpu", "cpu")


@pytest.mark.parametrize(
    "task, message",
    [
        (
            "swinging:Lost",
            r"the critic reads the observations 'privileged' \(rl_cfg.obs_groups\), and .* policy, speeds",
        ),
        ("older:Task", r"older.py:1: ModuleNotFoundError: .*manager_term_config'; is it for mjlab \d"),
        ("lacking:Task", r"lacking.py:2: ModuleNotFoundError: No module named 'no_such_thing'$"),
        ("chained:Task", r"chained.py:1: ImportError: install it$"),
        ("unclosed:Task", r"unclosed.py:2: SyntaxError: '\(' was never closed$"),
        ("other_library:Task", r"other_library.py:1: ImportError: cannot import name 'no_such_name'[^;]*$"),
        ("old_call:Task", r"old_call.py:2: TypeError: RewardTermCfg.* argument 'no_such'; is it for mjlab \d"),
        ("half:Half-Tas", r"mean Half-Task\?\); .*half/tasks.py:1: ModuleNot.*; mjlab's registry has .*Half-Task"),
        ("bare:Task", r"bare/tasks.py:1: ModuleNotFoundError: No module named 'no_such_thing'$"),
        ("leaving:Task", r"leaving.py:3: ModuleNotFoundError: No module named 'no_such_thing'$"),
        (
            "pinned:Task",
            r"pinned/__init__.py:2: TypeError: .*'no_such'; it asks for mjlab==1.2.0, and \d\S* is installed$",
        ),
        ("served:Task", r"served/__init__.py:2: TypeError: RewardTermCfg.* argument 'no_such'$"),
        ("moved:Task", r"--task mjlab:moved:Task: .*'no_such_name' from 'mjlab.utils.os'.*; is it for mjlab \d\S*\?$"),
        ("exact:Task", r"exact/__init__.py:1: ImportError: cannot import name 'no_such_name'[^;]*$"),
        ("swinging:Stacked-History", r"observations\['policy'\].flatten_history_dim is False, .* of the actor reads"),
        ("swinging:Points", r"swinging:Points: rl_cfg.actor.class_name: other:PointModel .* must be MLPModel"),
        ("untrained:Untrained-Task", "untrained:Untrained-Task has no settings of PPO: .* with an rl_cfg$"),
    ],
)
def test_what_a_package_lacks_has_its_line(task, message, package, monkeypatch):
    monkeypatch.chdir(package)
    for name in ("pinned", "served", "moved", "exact"):
        monkeypatch.syspath_prepend(package / f"{name}-repo" / "src")
    with pytest.raises(ValueError, match=message):
        find_spec(f"mjlab:{task}")


def test_a_package_in_src_is_found_from_its_checkout(package, monkeypatch):
    monkeypatch.chdir(package / "sourced-repo")
    assert source.find_source("mjlab:sourced:Sourced-Task").package == "sourced"
    with pytest.raises(ValueError, match=r"--task mjlab:no_such:Task: .* named 'no_such' here, in src/ or inst"):
        source.find_source("mjlab:no_such:Task")


def test_entry_points_of_a_checkout_register_its_tasks(package, monkeypatch):
    monkeypatch.syspath_prepend(package / "pointed-repo" / "src")
    found = source.find_source("mjlab:pointed:Pointed-Task")
    assert (found.task_id, found.package) == ("Pointed-Task", "pointed")


def test_an_older_mjlab_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "mjlab" / "tasks").mkdir(parents=True)
    for path in ("mjlab/__init__.py", "mjlab/tasks/__init__.py"):
        (tmp_path / path).write_text("")
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "mjlab"}
    for name in kept:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^mjlab \S+ is too old: 1.2 or newer is needed"):
        source.list_tasks()
    for name in [name for name in sys.modules if name.split(".")[0] == "mjlab"]:
        del sys.modules[name]


def test_an_installed_package_that_is_broken_is_named_where_a_task_is_unknown(package, monkeypatch):
    point = EntryPoint("olds", "older", "mjlab.tasks")
    monkeypatch.setattr(source, "entry_points", lambda group: [point])
    monkeypatch.setattr(source, "_broken", {})
    monkeypatch.syspath_prepend(package)
    assert CARTPOLE in source.list_tasks()
    with pytest.raises(ValueError, match=r"the package olds cannot be loaded: .*older.py:1: ModuleNotFoundError"):
        find_spec("mjlab:Task")
