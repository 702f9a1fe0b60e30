"""Final policies with half the physics step."""

import pytest

from envcoder_bench import evaluate
from envcoder_bench.core.errors import UserError
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.config_checks import check_half_step
from envcoder_bench.run.prepare.environments import at_half_step, build_task
from envcoder_bench.run.spec import RunSpec

HANG = "def compute_reward(pole_angle):\n    return -torch.cos(pole_angle)\n"
QUICK = {
    "baselines": False, "compile_shapers": False, "num_envs_per_candidate": 2, "learning_iterations": 1, "video": 0,
    "seeds": 2, "evaluation.num_envs": 2, "evaluation.final_episodes": 2, "task.env.episodeLength": 40, "device": "cpu",
}  # fmt: skip


def test_physics_step_is_halved_and_the_control_step_is_not():
    spec = RunSpec.of(compose_config("Anymal", ["device=cpu", "sim=mujoco_cpu"]))
    task, finer = build_task(spec, 1), build_task(at_half_step(spec), 1)
    assert finer.dt == task.dt and finer.substeps == 2 * task.substeps
    assert finer.max_episode_length == task.max_episode_length


@pytest.mark.slow
def test_final_policies_are_measured_and_training_does_not_notice(tmp_path):
    without = evaluate("CartpoleSwingup", {"hang": HANG}, output_dir=tmp_path / "a", **QUICK)
    finer = evaluate(
        "CartpoleSwingup", {"hang": HANG}, output_dir=tmp_path / "b", **QUICK, **{"evaluation.half_step": True}
    )
    results, before = finer.results, without.results
    assert (results["half_step_fitness"] != results["fitness"]).all()  # another simulation
    assert results["half_step_fitness"].tolist() == pytest.approx(results["fitness"].tolist(), abs=0.05)  # of the same
    assert before["half_step_fitness"].isna().all()
    columns = [name for name in results if name != "half_step_fitness"]
    assert results[columns].equals(before[columns])
    for key, path in finer.policies.items():
        assert path.read_bytes() == without.policies[key].read_bytes()


def test_task_with_its_own_simulation_is_refused():
    class Spec:
        config = compose_config("Cartpole", ["evaluation.half_step=true"])
        task = type("Foreign", (), {"name": "mjlab:X", "can": frozenset()})

    with pytest.raises(UserError, match=r"evaluation\.half_step: mjlab:X brings its own simulation"):
        check_half_step(Spec)
