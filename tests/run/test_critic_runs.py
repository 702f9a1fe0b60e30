"""Runs with critic observations: who gets them, what they change, and who never sees them."""

import sys

import pytest
import torch
from helpers import CARTPOLE_QUICK, COSINE, SETTINGS, TINY, TINY_WORDS, results, run, stopped_at, write_candidates

from envcoder_bench import evaluate, resume
from envcoder_bench.export.write import export_policy
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.folder.policies import load_policy
from envcoder_bench.run.prepare.plan import GroupFacts, MemoryPlanner
from envcoder_bench.run.spec import RunSpec

SEES = "def compute_critic_observation(state_dict):\n    return {}\n"
CANDIDATES = {
    "noisy": """
def compute_observation(dof_pos):
    x = dof_pos
    return x + 0.1 * torch.randn_like(x)
def compute_critic_observation(dof_pos, dof_vel, progress_buf):
    return torch.cat((dof_pos, dof_vel, 0.01 * progress_buf.unsqueeze(1).float()), dim=1)
""",
    "plain": COSINE,
    "privileged": SEES.format("torch.cat((state_dict['dof_pos'], torch.sin(state_dict['dof_pos'])), dim=1)"),
}
SEPARATE = "train.params.network.separate=true"
WORDS = [
    *CARTPOLE_QUICK, *TINY_WORDS, "--num_envs_per_candidate", 8, "--learning_iterations", 4, "checkpoint_minutes=0",
    SEPARATE, "compile_shapers=true",
]  # fmt: skip


def exported(folder, candidate):
    return torch.load(folder / "candidates" / candidate / "policy.pth", weights_only=False)


def same(one, two):
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    return torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two


@pytest.fixture(scope="module")
def among(tmp_path_factory):
    folder = tmp_path_factory.mktemp("among")
    return run(folder / "run", *WORDS, "--candidates", *write_candidates(folder / "files", CANDIDATES))


@pytest.mark.slow
def test_groups_with_and_without_are_as_alone(among, tmp_path):
    for name in CANDIDATES:
        files = write_candidates(tmp_path / name, {name: CANDIDATES[name]})
        alone = run(tmp_path / f"run_{name}", *WORDS, "--no_baselines", "--candidates", *files)
        assert same(exported(alone, name), exported(among, name)), name
    assert "assymetric_vf_nets" not in exported(among, "plain") and "assymetric_vf_nets" not in exported(among, "human")
    critic = exported(among, "noisy")["assymetric_vf_nets"]
    assert critic["model.a2c_network.actor_mlp.0.weight"].shape[1] == 5
    # the same shaping but for the critic: another critic trains another policy
    human, privileged = exported(among, "human")["model"], exported(among, "privileged")["model"]
    assert not torch.equal(human["a2c_network.mu.weight"], privileged["a2c_network.mu.weight"])


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the jail needs Linux")
def test_untrusted_code_may_define_them(among, tmp_path):
    files = write_candidates(tmp_path / "files", CANDIDATES)
    jailed = run(tmp_path / "run", *WORDS, "--untrusted", "--candidates", *files)
    assert all(same(exported(jailed, name), exported(among, name)) for name in CANDIDATES)


@pytest.mark.slow
def test_stopped_run_and_race_end_as_the_whole_run(among, tmp_path):
    settings = {**SETTINGS, **TINY, "num_envs_per_candidate": 8, "checkpoint_minutes": 0, "compile_shapers": True}
    settings["train.params.network.separate"] = True
    stopped = evaluate("Cartpole", CANDIDATES, output_dir=tmp_path / "stopped", **stopped_at(2), **settings)
    assert not stopped.complete
    assert resume(stopped.folder).complete
    settings.update({"race": True, "race.rungs": [2], "race.keep": 0.9})
    raced = evaluate("Cartpole", CANDIDATES, output_dir=tmp_path / "raced", **settings)
    finished = [row.candidate for row in raced.rows if row.status == "ok"]
    assert {"noisy", "plain"} & set(finished)
    for name in CANDIDATES:
        assert same(exported(stopped.folder, name), exported(among, name)), name
        if name in finished:
            assert same(exported(raced.folder, name), exported(among, name)), name


@pytest.mark.slow
def test_policies_see_their_observation_alone(among, tmp_path):
    policies = {name: load_policy(among, name) for name in CANDIDATES}
    assert {name: policy.obs_dim for name, policy in policies.items()} == {"noisy": 2, "plain": 4, "privileged": 4}
    assert policies["noisy"].module(torch.zeros(3, 2)).shape == (3, 1)
    module = torch.jit.load(export_policy(among, "noisy", format="torchscript", output=tmp_path).policy)
    expected = policies["noisy"].module(torch.full((2, 2), 0.3))
    torch.testing.assert_close(module(torch.full((2, 2), 0.3))[0], expected)


@pytest.mark.slow
def test_shared_network_fails_the_candidate_that_needs_two(tmp_path):
    files = write_candidates(tmp_path / "files", CANDIDATES)
    words = [word for word in WORDS if word != SEPARATE]
    done = run(tmp_path / "run", *words, "--candidates", *files, "--no_baselines")
    rows = results(done)
    refused = rows.error.str.contains("set train.params.network.separate=True", regex=False)
    assert refused.sum() == 2 and not refused["plain"]


def test_memory_plan_counts_the_critics_observations():
    cfg = compose_config("Cartpole", ["device=cpu", "sim=mujoco_cpu", SEPARATE, "num_envs_per_candidate=64"])
    planner = MemoryPlanner(RunSpec.of(cfg))
    without, narrow, wide = (planner.bytes([widths]) for widths in ((4, 1), (4, 1, 4), (4, 1, 1_000)))
    rollout = 64 * cfg.params["config"]["horizon_length"] * 4 * 1_000
    assert without < narrow < wide and wide - narrow > rollout
    facts = [GroupFacts(f"c{k}", 0, (4, 1, 7) if k % 2 else (4, 1)) for k in range(4)]
    (wave,) = planner.plan(facts).waves
    assert [len(group.widths) for group in wave] == [2, 2, 3, 3]
