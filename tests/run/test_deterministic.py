"""Deterministic runs: on CUDA the same bits from the same command, alone or among others."""

import pytest
import torch

import envcoder_bench
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.torch_settings import deterministic_torch, is_deterministic, settings_kept
from envcoder_bench.core.torch_settings import use_deterministic_algorithms as use
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.config_checks import check_deterministic
from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.prepare.plan import GroupFacts, MemoryPlanner
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.trainers.ppo.trainer import GroupedPPO

CANDIDATES = {
    "cosine": "import torch\ndef compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n",
    "noisy": """
import torch
def compute_reward(dof_pos, dof_vel):
    return 1.0 - dof_pos[:, 1].abs() - 0.01 * dof_vel[:, 1].square()
def compute_observation(dof_pos, dof_vel):
    return torch.cat((dof_pos, dof_vel, torch.sin(dof_pos)), dim=1) + 0.01 * torch.rand_like(dof_pos[:, :1])
""",
    "wide": """
import torch
ACTION_DIM = 3
def compute_observation(dof_pos, dof_vel):
    return torch.cat((dof_pos, dof_vel, dof_pos.repeat(1, 8)), dim=1)
def compute_torque(action, state_dict):
    return torch.stack((action.mean(dim=1) * 100.0, torch.zeros_like(action[:, 0])), dim=1)
""",
    "eager": """
import torch
def compute_reward(dof_pos):
    order = torch.argsort(dof_pos[:, 1])
    rank = torch.zeros_like(dof_pos[:, 1]).scatter_add(0, order, torch.linspace(0, 1, len(order), device=order.device))
    return torch.cos(dof_pos[:, 1]) + 0.1 * rank
""",
}
SIZE = {
    "num_envs_per_candidate": 32,
    "learning_iterations": 3,
    "baselines": False,
    "seeds": 1,
    "overrides": ["evaluation.points=2", "evaluation.num_envs=4", "evaluation.final_episodes=4", "deterministic=true"],
}


SHORT = {"task.env.learn.episodeLength_s": 0.2, "train.params.config.horizon_length": 8}
on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(autouse=True)
def cublas_workspace(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # set with deterministic algorithms


def bits(folder, names, task="Cartpole", candidates=CANDIDATES, device="cuda"):
    """Weights and fitness of a run of these candidates."""
    size = {**SIZE, "overrides": [*SIZE["overrides"], *(["task.env.episodeLength=60"] if task == "Cartpole" else [])]}
    result = envcoder_bench.evaluate(
        task, {name: candidates[name] for name in names}, output_dir=folder, device=device, **size
    )
    assert set(result.results.status) == {"ok"}
    fitness = result.results.set_index("candidate").fitness
    found = {}
    for name in names:
        model = torch.load(folder / "candidates" / name / "policy.pth", map_location="cpu", weights_only=False)["model"]
        found[name] = {**model, "fitness": torch.tensor(fitness[name])}
    return found


def assert_bitwise(a, b):
    assert a.keys() == b.keys()
    assert [key for key in a if not torch.equal(a[key], b[key])] == []


@pytest.mark.cuda
@on_cuda
def test_deterministic_results_on_cuda_are_bitwise_independent_of_other_candidates(tmp_path):
    together = bits(tmp_path / "together", list(CANDIDATES))
    again = bits(tmp_path / "again", list(reversed(CANDIDATES)))
    for name in CANDIDATES:
        assert_bitwise(together[name], again[name])
        assert_bitwise(together[name], bits(tmp_path / name, [name])[name])
    assert not is_deterministic()


@pytest.mark.cuda
@on_cuda
def test_deterministic_results_on_cuda_are_bitwise_equal_with_contacts(tmp_path):
    reward = "import torch\ndef compute_reward(root_states):\n    return root_states[:, {axis}]\n"
    candidates = {f"axis_{axis}": reward.format(axis=axis) for axis in (2, 7, 8)}
    together = bits(tmp_path / "together", list(candidates), "Anymal", candidates)
    alone = bits(tmp_path / "alone", ["axis_7"], "Anymal", candidates)
    assert_bitwise(together["axis_7"], alone["axis_7"])


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_each_gpu_of_a_process_gives_the_same_bits(tmp_path):
    if len({torch.cuda.get_device_name(k) for k in range(2)}) > 1:
        pytest.skip("needs two CUDA devices of one model")
    runs = [bits(tmp_path / str(k), list(CANDIDATES), device=f"cuda:{device}") for k, device in enumerate((0, 1, 0))]
    for name in CANDIDATES:
        assert_bitwise(runs[0][name], runs[1][name])
        assert_bitwise(runs[0][name], runs[2][name])
    assert torch.cuda.current_device() == 0


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, on_cuda])])
def test_results_do_not_depend_on_earlier_runs_of_the_process(tmp_path, device):
    names = ["cosine", "noisy"]
    first = bits(tmp_path / "first", names, device=device)
    reward = "def compute_reward(root_states):\n    return root_states[:, 7]\n"
    evaluation = {"evaluation.points": 1, "evaluation.num_envs": 4, "evaluation.final_episodes": 4}
    other = envcoder_bench.evaluate(  # whose memory is free afterwards, and no longer zero
        "Anymal", {"other": reward}, output_dir=tmp_path / "other", device=device,
        num_envs_per_candidate=96, learning_iterations=1, overrides={**evaluation, **SHORT},
    )  # fmt: skip
    assert set(other.results.status) == {"ok"}
    again = bits(tmp_path / "again", names, device=device)
    for name in names:
        assert_bitwise(first[name], again[name])


def test_deterministic_torch_applies_only_within_its_block():
    with deterministic_torch():
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory  # it would cost a kernel for each new tensor
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_settings_kept_restores_the_deterministic_setting():
    with settings_kept():
        use()
        assert is_deterministic()
    assert not is_deterministic()


def test_deterministic_plan_puts_groups_of_equal_padded_widths_together():
    def planned(*overrides):
        cfg = resolve("Cartpole", ["device=cpu", "num_envs_per_candidate=4", *overrides]).config
        widths = [(4, 1), (40, 1), (5, 1), (4, 9), (33, 2)]  # padded to 32 and 8, 64 and 8, 32 and 16
        facts = [GroupFacts(f"c{k}", 0, own) for k, own in enumerate(widths)]
        return [group.name for wave in MemoryPlanner(RunSpec.of(cfg)).plan(facts).waves for group in wave]

    assert planned() == ["c0", "c1", "c2", "c3", "c4"]
    assert planned("deterministic=true") == ["c0", "c2", "c3", "c1", "c4"]


class Other(GroupedPPO):
    deterministic = False


@pytest.mark.parametrize("trainer", ["a2c_continuous", f"{__name__}:Other"])
def test_deterministic_refuses_other_trainers_on_cuda(trainer):
    cfg = compose_config("Cartpole", ["deterministic=true", f"train.params.algo.name={trainer}"])
    check_deterministic(RunSpec.of(cfg.model_copy(update={"device": "cpu"})))
    cfg = cfg.model_copy(update={"device": "cuda:0"})
    if trainer == "a2c_continuous":
        check_deterministic(RunSpec.of(cfg))
    else:
        with pytest.raises(UserError, match="--deterministic on CUDA supports the trainer ppo alone: omit --trainer"):
            check_deterministic(RunSpec.of(cfg))
