"""Keys of the train config are those that the trainer declares, without a second list of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.settings import select
from envcoder_bench.run.config import compose_config, train_defaults, trainer_keys
from envcoder_bench.run.isaac_yaml import file_overrides
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.trainers.ppo import hyperparameters
from envcoder_bench.trainers.ppo.trainer import GroupedPPO

NEW = "config.curiosity"


class Curious(GroupedPPO):
    """A trainer from elsewhere with one more key."""

    @classmethod
    def keys(cls) -> Sequence[str]:
        return [*GroupedPPO.keys(), NEW]


CURIOUS = f"train.params.algo.name={__name__}:Curious"


class Wider(hyperparameters.Hyperparameters):
    curiosity: float = 0.0


@pytest.mark.parametrize("key", GroupedPPO.keys())
def test_every_declared_key_of_ppo_can_be_set(key: str) -> None:
    train = compose_config("Cartpole", [f"train.params.{key}=null"]).train
    assert select(train, f"params.{key}", "missing") is None


def test_a_key_that_is_added_to_ppo_can_be_set_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    override, file = f"train.params.{NEW}=0.5", tmp_path / "train.yaml"
    file.write_text("params: {config: {curiosity: 0.5}}\n")
    for added in (False, True):
        if added:
            monkeypatch.setattr(hyperparameters, "Hyperparameters", Wider)
        assert (f"params.{NEW}" in trainer_keys(train_defaults(find_spec("Cartpole")))) is added
        calls = (
            lambda: select(compose_config("Cartpole", [override]).train, f"params.{NEW}"),
            lambda: file_overrides(find_spec("Cartpole"), None, str(file))[f"train.params.{NEW}"],
        )
        for call in calls:
            if added:
                assert call() == 0.5
            else:
                with pytest.raises(UserError, match=r"unknown key .*curiosity"):
                    call()


def test_a_key_of_another_trainer_can_be_set_beside_it_in_any_order() -> None:
    key = f"train.params.{NEW}=0.5"
    with pytest.raises(UserError, match="unknown key"):
        compose_config("Cartpole", [key])
    for overrides in ([CURIOUS, key], [key, CURIOUS]):
        assert select(compose_config("Cartpole", overrides).train, f"params.{NEW}") == 0.5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.params.config.linear_steps=3", "unknown key 'train.params.config.linear_steps'"),  # it is derived
        ("train.params.config.max_sigma=3", "unknown key 'train.params.config.max_sigma'"),
        ("train.params.config.weight_decy=3", "unknown key .*did you mean train.params.config.weight_decay"),
    ],
)
def test_other_keys_are_refused(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compose_config("Cartpole", [override])


def test_a_task_says_the_bound_of_actions_unless_the_run_does():
    spec = replace(find_spec("Cartpole"), action_bound=2.0)
    assert train_defaults(spec, "flash_sac")["params"]["config"]["action_bound"] == 2.0
    assert train_defaults(find_spec("Cartpole"), "flash_sac")["params"]["config"]["action_bound"] == 1.0
    assert "action_bound" not in train_defaults(spec)["params"]["config"]
