"""Promise 1: a candidate's result does not depend on its neighbours, bitwise on a CPU."""

import pytest
from helpers import ANYMAL_QUICK, FIVE_ACTIONS, QUICK, assert_same_weights, results, run, weights, write_candidates

pytestmark = pytest.mark.slow

CARTPOLE = {
    "mine": """
def compute_reward(pole_angle, cart_vel, actions):
    tilt = torch.sigmoid(pole_angle) ** 1.7
    return torch.cos(pole_angle) - 0.01 * torch.atan2(cart_vel, actions[:, 0]).abs() - 0.001 * tilt, {"tilt": tilt}
""",
    "wide": """
def compute_observation(state_dict):
    x = torch.cat([state_dict["dof_pos"], state_dict["dof_vel"], state_dict["actions"]], dim=-1)
    return torch.cat([x, torch.sin(x), torch.cos(x), x**3], dim=-1)
""",
    "many_actions": FIVE_ACTIONS,
    "breaks_midway": """
def compute_reward(progress_buf, pole_angle):
    if bool((progress_buf > 20).any()):
        raise RuntimeError("on purpose")
    return torch.cos(pole_angle)
""",
    "goes_nan": """
def compute_reward(progress_buf, pole_angle):
    return torch.where(progress_buf > 25, torch.nan, torch.cos(pole_angle))
""",
    "random_start": """
def compute_initial_state(state_dict):
    return {"dof_pos": torch.rand_like(state_dict["dof_pos"]) - 0.5}
""",
    "ends_early": """
def compute_terminal(pole_angle):
    return pole_angle.abs() > 0.05
""",
    "zero": "def compute_reward(pole_angle):\n    return torch.zeros_like(pole_angle)\n",
    "writes": """
def compute_terminal(state_dict):
    if state_dict["progress_buf"][0] > 10:
        x = state_dict["dof_pos"].untyped_storage()
        torch.empty(0, dtype=torch.uint8).set_(x, 0, (x.nbytes(),)).random_()
    return state_dict["pole_angle"].abs() > 0.5
""",
}
ANYMAL = {
    "mine": """
from isaacgymenvs.utils.torch_jit_utils import quat_rotate_inverse
def compute_reward(root_states, commands, torques):
    velocity = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 7:10])
    error = torch.sum((commands[:, :2] - velocity[:, :2]) ** 2, dim=1)
    return torch.exp(-error / 0.25) - 1e-5 * torch.norm(torques, dim=1) ** 1.5
""",
    "torque": """
def compute_torque(action, state_dict):
    return 40.0 * action
def compute_observation(state_dict):
    return torch.cat([state_dict["root_states"], state_dict["contact_forces"].flatten(1)], dim=-1)
""",
    "breaks_midway": """
def compute_terminal(progress_buf):
    assert int(progress_buf.max()) < 15, "on purpose"
    return progress_buf > 100
""",
    "writes": """
def compute_observation(state_dict):
    if state_dict["progress_buf"][0] > 3:
        state_dict["commands"].data.copy_(state_dict["root_states"][:, 7:10])
    return torch.cat([state_dict["dof_pos"], state_dict["dof_vel"], state_dict["commands"]], dim=-1)
""",
}
# what the task keeps from step to step, its sensors and its goals are each environment's own
ANT = {
    "mine": """
def compute_reward(potentials, prev_potentials, up_vec, heading_vec):
    speed = potentials - prev_potentials
    return torch.tanh(speed) + torch.norm(up_vec[:, 2:] + heading_vec[:, :2], dim=1)
""",
    "elsewhere": """
def compute_goal(state_dict):
    return {"targets": 3.0 * torch.rand_like(state_dict["targets"])}
def compute_observation(state_dict):
    return torch.cat([state_dict["root_states"], state_dict["vec_sensor_tensor"], state_dict["dof_pos"]], dim=-1)
""",
    "breaks_midway": """
def compute_terminal(progress_buf):
    assert int(progress_buf.max()) < 15, "on purpose"
    return progress_buf > 100
""",
    "writes": """
def compute_torque(action, state_dict):
    if state_dict["progress_buf"][0] > 3:
        state_dict["targets"].numpy()[:] = 100.0 * state_dict["root_states"][:, 7:10].numpy()
    return 20.0 * action[:, :8]
""",
}


FEW = [
    *("evaluation.num_envs=2", "evaluation.final_episodes=2", "evaluation.points=1"),
    "train.params.config.horizon_length=13",
]


def _train(output, sources, names, task, words):
    paths = write_candidates(output / "files", {name: sources[name] for name in names})
    return run(output / "run", "--task", task, "--candidates", *paths, "--no_baselines", *words)


@pytest.mark.parametrize(
    "task, sources, words",
    [
        (
            "Cartpole",
            CARTPOLE,
            [*QUICK, "task.env.episodeLength=40", "--num_envs_per_candidate", 7, "--learning_iterations", 3, *FEW],
        ),
        (
            "Ant",
            ANT,
            [*QUICK, "task.env.episodeLength=25", "--num_envs_per_candidate", 5, "--learning_iterations", 2, *FEW],
        ),
        ("Anymal", ANYMAL, [*ANYMAL_QUICK, "--num_envs_per_candidate", 5, "--learning_iterations", 2, *FEW]),
    ],
)
def test_candidate_is_bitwise_equal_alone_and_in_larger_runs(tmp_path, task, sources, words):
    alone = _train(tmp_path / "alone", sources, ["mine"], task, words)
    among = _train(tmp_path / "among", sources, list(sources)[::-1], task, words)
    assert_same_weights(weights(alone, "mine"), weights(among, "mine"))
    assert results(among).loc["mine"].to_dict() == results(alone).loc["mine"].to_dict()
    rows = results(among)
    # the faults are named, and nobody else's
    failed = {"breaks_midway", "goes_nan", "writes"} & set(rows.index)
    assert set(rows.index[rows["status"] == "failed"]) == failed
    assert "on purpose" in rows.loc["breaks_midway", "error"] and "in place" in rows.loc["writes", "error"]
    assert all(f"{name}.py:" in rows.loc[name, "error"] for name in failed)


def test_seeds_of_a_candidate_equal_separate_runs(tmp_path):
    words = [*QUICK, "task.env.episodeLength=30", "--num_envs_per_candidate", 7, "--learning_iterations", 1, *FEW]
    both = _train(tmp_path / "both", CARTPOLE, ["mine", "random_start"], "Cartpole", [*words, "--seeds", 2])
    second = _train(tmp_path / "second", CARTPOLE, ["random_start"], "Cartpole", [*words, "--seed", 1])
    rows = results(both).loc["random_start"].set_index("seed")
    assert rows.loc[1, "fitness"] == results(second).loc["random_start", "fitness"]
    assert rows.loc[0, "fitness"] != rows.loc[1, "fitness"]
