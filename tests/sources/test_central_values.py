"""Isaac Gym tasks with asymmetric observations: their states are what the human baseline's critic sees."""

import dataclasses
import logging

import pytest
import torch
import yaml
from isaac_helpers import FOLDER, config, environment, groups, played

from envcoder_bench.sources.isaacgym_tasks.find_source import find_source
from envcoder_bench.sources.isaacgym_tasks.spec import write_folder
from envcoder_bench.trainers.ppo.trainer import GroupedPPO

PRIVILEGED = f"{FOLDER}/pendulum.py:Privileged@{FOLDER}/pendulum.yaml"
STATES = "def compute_critic_observation(states_buf):\n    return states_buf\n"


@pytest.mark.slow
def test_critic_sees_the_states_and_neither_policy_nor_evaluation_does():
    cfg = config(PRIVILEGED, "train.params.network.separate=True")
    (human, states), faults = groups(cfg, states=STATES)
    assert not faults
    env = environment(cfg, [human, states])
    env.reset()
    for step in played(env, 70):  # over the end of an episode
        seen = env.layout.split(env.critic_obs)
        expected = torch.cat((env.task.isaac.dof_pos, env.task.isaac.dof_vel), dim=1)[4:]
        assert torch.equal(seen[1], expected.clamp(-5.0, 5.0))  # clipped as observations are
        assert not seen[0].any() and torch.equal(step.obs, env.task.isaac.obs_buf.clamp(-5.0, 5.0))
    judged = environment(cfg, [human, states], evaluation=True)
    assert judged.critic_obs is None and "critic_observation" not in states.evaluation.functions
    assert human.widths == (4, 1) and states.widths == (4, 1, 2)


def test_shared_network_is_refused_with_key_and_line():
    cfg = config(PRIVILEGED)
    (human,), faults = groups(cfg, states=STATES)
    assert human.name == "human"
    assert str(faults["states"]).startswith("states.py:1: in compute_critic_observation: cannot be used: ")
    assert "set train.params.network.separate=True" in str(faults["states"])


CENTRAL = {
    "network": {"mlp": {"units": [32, 16], "activation": "elu"}, "separate": False},
    "config": {
        "critic_coef": 4, "lr_schedule": "adaptive",
        "central_value_config": {"learning_rate": 5e-4, "network": {"mlp": {"units": [64]}}},
    },
}  # fmt: skip


@pytest.mark.parametrize("central", [True, False])
def test_central_value_becomes_the_human_baselines_critic(central, tmp_path, caplog):
    source = find_source(PRIVILEGED)
    train = {"params": {**CENTRAL, "config": {**CENTRAL["config"]}}}
    if not central:
        del train["params"]["config"]["central_value_config"]
    with caplog.at_level(logging.WARNING):
        write_folder(tmp_path, dataclasses.replace(source, train=train), None)
    for name in ("human", "unshaped"):
        text = (tmp_path / f"{name}.py").read_text()
        assert ("def compute_critic_observation(states_buf):" in text) == central
        compile(text, name, "exec")
    written = yaml.safe_load((tmp_path / "train.yaml").read_text())["params"]
    assert "central_value_config" not in written["config"]
    assert (GroupedPPO.critic_refusal(written) is None) == central
    assert (written["config"].get("grad_norm_per_network", False), written["config"]["critic_coef"]) == (
        (True, 2) if central else (False, 4)
    )
    assert ("gets the units of the policy's network, not [64]" in caplog.text) == central
