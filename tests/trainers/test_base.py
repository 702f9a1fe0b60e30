"""The training loop: the order and arguments of calls."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from envcoder_bench.core import triton_import
from envcoder_bench.env.base import EnvStep
from envcoder_bench.trainers.base import Trainer, train_iteration
from envcoder_bench.trainers.ppo.trainer import GroupedPPO
from envcoder_bench.trainers.registry import TRAINERS, full_name, trainer_class


class Diary:
    """Stands for a trainer and for an environment, and writes down what they are asked."""

    horizon = 2

    def __init__(self, wants_final_obs: bool) -> None:
        self.wants_final_obs, self.told, self.t = wants_final_obs, [], 0
        self.alive = [True, True]
        self.critic_obs: torch.Tensor | None = None

    def set_alive(self, alive: Any) -> None:
        self.told.append(("alive", list(alive)))

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        self.told.append(("act", obs.item()))
        return obs + 0.5

    def step(self, actions: torch.Tensor, final_obs: bool = False) -> EnvStep:
        self.t += 1
        self.told.append(("step", actions.item(), final_obs))
        if self.t == 2:
            self.alive[1] = False
        no = torch.tensor([False])
        return EnvStep(torch.tensor([10.0 * self.t]), torch.tensor([self.t / 4]), no, no)

    def record(self, step: EnvStep) -> None:
        self.told.append(("record", step.reward.item()))

    def learn(self, last_obs: torch.Tensor) -> dict[str, torch.Tensor]:
        self.told.append(("learn", last_obs.item()))
        return {"loss": torch.zeros(2)}


@pytest.mark.parametrize("final", [False, True])
def test_iteration_acts_steps_and_records_over_the_horizon_then_learns(final: bool) -> None:
    both: Any = Diary(final)
    obs, stats = train_iteration(both, both, torch.tensor([1.0]))
    assert both.told == [
        ("alive", [True, True]), ("act", 1.0), ("step", 1.5, final), ("record", 0.25),
        ("alive", [True, True]), ("act", 10.0), ("step", 10.5, final), ("record", 0.5),
        ("alive", [True, False]), ("learn", 20.0),
    ]  # fmt: skip
    assert obs.item() == 20.0 and set(stats) == {"loss"}


@pytest.mark.parametrize("name", TRAINERS)
def test_trainers_are_found_by_name(name: str) -> None:
    found = trainer_class({"algo": {"name": name}})
    assert issubclass(found, Trainer)
    assert found is trainer_class({"algo": {"name": f"{found.__module__}:{found.__name__}"}})


def test_short_trainer_names_are_resolved() -> None:
    assert trainer_class({"algo": {"name": full_name("ppo")}}) is GroupedPPO
    assert full_name("mine:Trainer") == "mine:Trainer"
    with pytest.raises(ValueError, match=r"unknown trainer 'pppo' \(did you mean ppo\?\)"):
        full_name("pppo")


@pytest.mark.parametrize(
    "name, message",
    [
        ("sac", "params.algo.name: sac is not a trainer; use a2c_continuous, flash_sac, flash_sac_small or"),
        (None, "params.algo.name: None is not a trainer"),
        ("nowhere:Trainer", "params.algo.name: nowhere:Trainer cannot be imported: No module named 'nowhere'"),
        ("math:Trainer", "params.algo.name: math:Trainer cannot be imported: .*Trainer"),
        ("math:pi", "params.algo.name: math:pi is not a trainer"),
        (":x", "params.algo.name: :x cannot be imported"),
    ],
)
def test_name_that_is_no_trainer_is_refused(name: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer_class({"algo": {"name": name}})


def test_files_of_kernels_can_be_imported_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(triton_import.__file__).parents[1]
    kernels = [path for folder in ("env", "trainers") for path in (package / folder).rglob("*.py")]
    kernels = [path for path in kernels if "@jit" in path.read_text()]
    assert len(kernels) > 5

    def execute(name: str, path: Path) -> Any:
        spec: Any = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    for name in ("triton", "triton.language"):
        monkeypatch.setitem(sys.modules, name, None)
    without = execute("envcoder_bench.core.triton_import", package / "core/triton_import.py")
    assert not without.usable_on(torch.device("cuda"), torch.float32)
    for path in kernels:
        execute("without_triton", path)
