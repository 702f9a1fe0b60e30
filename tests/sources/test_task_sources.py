"""A source of tasks in a package of its own: its tasks go through everything without a change of this program."""

import json
import shutil
from pathlib import Path

import pytest

from envcoder_bench import evaluate, extend, resume
from envcoder_bench.core.errors import UserError
from envcoder_bench.export.write import export_policy
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.folder.policies import load_policy, open_run
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.sources import registry
from envcoder_bench.tasks.contract import task_contract
from envcoder_bench.tools.check import check_candidates
from envcoder_bench.tools.describe import describe
from envcoder_bench.tools.task_check import check_task
from envcoder_bench.video.record import Player, model_bytes, record

pytestmark = pytest.mark.usefixtures("forgotten")
BASELINE = '''"""{what}"""


def compute_reward(position):
    """{what}"""
    return 1.0 - position.abs()


def compute_observation(position, speed):
    """Place and speed."""
    return torch.stack([position, speed], dim=1)
'''
CANDIDATES = {
    f"c{k}": f"from envcoder_bench.tasks.beads_Bead.human import compute_reward as own\n"
    f"def compute_reward(position):\n    return {k} * own(position)\n"
    for k in (1, 2, 3, 4)
}
FEW = {name: CANDIDATES[name] for name in ("c1", "c2")}  # a race needs four
TINY = {
    "num_envs_per_candidate": 4, "learning_iterations": 4, "sim": "mujoco_cpu", "device": "cpu",
    "overrides": ["evaluation.num_envs=2", "evaluation.final_episodes=2", "evaluation.points=4", "task.steps=12",
                  "train.params.network.mlp.units=[8]"],
}  # fmt: skip


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The package, installed in a folder of the import path."""
    folder = tmp_path / "site" / "beads"
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("beads_source.py"), folder / "__init__.py")
    (folder / "bead.yaml").write_text("name: beads_Bead\npush: 2.0\nsteps: 40\n")
    for name in ("human", "unshaped"):
        (folder / f"{name}.py").write_text(BASELINE.format(what=f"The middle, {name}."))
    install(folder.parent, "beads", "beads = beads:Beads")
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


def install(site, name, *points):
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[envcoder_bench.task_sources]", *points, ""]))


class StopAfter(Reporter):
    """Asks to stop after the first iteration."""

    def __init__(self):
        self.stop = StopRequest()

    def iteration_done(self, iteration, env_steps, best):
        self.stop()


def test_task_is_found_configured_described_and_checked(package):
    spec = registry.find_spec("beads:Bead")
    assert registry.find_spec("beads_Bead") is spec and spec.address == "beads:Bead"
    cfg = compose_config("beads:Bead", ["task.push=3"])
    assert (cfg.task_source, cfg.task.push, cfg.task_title) == ("beads:Bead", 3, "beads_Bead")
    with pytest.raises(UserError, match=r"unknown key 'task.pusch' \(did you mean"):
        compose_config("beads:Bead", ["task.pusch=3"])
    with pytest.raises(UserError, match="there is beads:Bead"):
        compose_config("beads:Pearl")
    assert list(task_contract(spec, cfg.task).state) == ["position", "speed"]
    text = describe("beads:Bead")
    assert "A bead on a rail." in text and "place on the rail" in text and "beads are pushed by actions" in text
    with pytest.raises(UserError, match=r"evaluation\.half_step: beads_Bead brings its own simulation"):
        evaluate("beads:Bead", CANDIDATES, output_dir="run", **{**TINY, "evaluation.half_step": True})


def test_source_that_cannot_be_imported_costs_its_own_tasks_alone(package, tmp_path):
    (package.parent / "shards.py").write_text("import not_there\n")
    (package.parent / "stones.py").write_text("class Stones:\n    pass\n")
    install(package.parent, "shards", "shards = shards:Shards", "stones = stones:Stones")
    assert registry.find_spec("beads:Bead").name == "beads_Bead"
    with pytest.raises(ValueError, match=r"shards = shards:Shards cannot be used: ModuleNotFoundError: .*not_there"):
        registry.find_spec("shards:Any")
    with pytest.raises(ValueError, match=r"stones = stones:Stones cannot be used: TypeError: .* is not a TaskSource"):
        registry.find_spec("stones:Any")


def test_fault_in_the_code_of_a_source_is_one_line(package):
    text = (package / "__init__.py").read_text()
    (package / "__init__.py").write_text(
        text.replace('        if address != "beads:Bead":', "        1 / 0\n        if True:")
    )
    with pytest.raises(ValueError, match=r"^--task beads:Bead: its source beads raises ZeroDivisionError: division by"):
        registry.find_spec("beads:Bead")


@pytest.mark.slow
def test_task_fulfils_its_contract_and_candidates_are_checked(package):
    check_task("beads:Bead", "mujoco_cpu", "cpu", ["task.steps=12"])
    Path("c.py").write_text("def compute_reward(position):\n    return position[:1]\n")
    checked = check_candidates(
        "beads:Bead", ["num_envs_per_candidate=2", "device=cpu", "sim=mujoco_cpu"], [Path("c.py")]
    )
    assert checked.rows[-1].error.startswith("c.py:2: in compute_reward: returned shape (1,)")


@pytest.mark.slow
def test_run_is_resumed_extended_raced_exported_and_replayed(package):
    whole = evaluate("beads:Bead", FEW, output_dir="whole", seeds=2, **TINY)
    assert set(whole.results["candidate"]) >= {*FEW, "human", "unshaped"} and not whole.results["error"].any()
    # stopped, resumed and extended: the same bits
    stopper, tiny = StopAfter(), {**TINY, "output_dir": "parts"}
    evaluate("beads:Bead", FEW, reporter=stopper, stop=stopper.stop, **tiny)
    assert not Path("parts/summary.json").exists()
    parts = resume("parts")
    extended = extend("parts", seeds=2)
    assert parts.complete and extended.complete
    for name in FEW:
        for file in ("policy_seed_0.pth", "policy_seed_1.pth"):
            a, b = (Path(run) / "candidates" / name / file for run in ("whole", "parts"))
            assert a.read_bytes() == b.read_bytes()
    # a race
    raced = evaluate(
        "beads:Bead", CANDIDATES, output_dir="raced", race=True, **{"race.rungs": [2], "race.keep": 0.5}, **TINY
    )
    assert json.loads(Path("raced/summary.json").read_text())["race"] and raced.complete
    # export and replay
    exported = export_policy("whole", "c1", format="torchscript", output="robot")
    assert exported.model is None and exported.difference < 1e-5
    opened = open_run("whole")
    policy = load_policy(opened, "c1", None)
    recording = record(opened.spec, [Player("c1", policy.seed, policy)], steps=5)
    assert recording.episodes[0].qpos.shape == (6, 1) and len(model_bytes(opened.spec, recording)) > 1000
