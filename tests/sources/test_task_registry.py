import pytest

from envcoder_bench.run.config import compose_config, train_defaults
from envcoder_bench.sources import registry
from envcoder_bench.tasks.contract import task_contract

TASKS = [
    "AllegroHand",
    "Ant",
    "Anymal",
    "AnymalTerrain",
    "Cartpole",
    "CartpoleSwingup",
    "FrankaCubeStack",
    "Humanoid",
    "SpotTerrain",
]


def test_names_of_the_shipped_tasks():
    assert registry.task_names() == TASKS
    assert [registry.find_spec(name).name for name in TASKS] == TASKS


@pytest.mark.parametrize(
    ("word", "hint"), [("Animal", "Anymal"), ("anymal", "Anymal"), ("CARTPOLE", "Cartpole"), ("Humanoids", "Humanoid")]
)
def test_unknown_task_is_reported_with_near_match_and_all_tasks(word, hint):
    with pytest.raises(ValueError) as error:
        registry.check_task_name(word)
    assert str(error.value) == f"unknown task '{word}' (did you mean {hint}?); there are {', '.join(TASKS)}"


def test_unknown_task_without_near_match_is_reported_with_all_tasks():
    for call in (registry.find_spec, registry.check_task_name):
        with pytest.raises(ValueError, match=rf"^unknown task 'Zebra'; there are {', '.join(TASKS)}$"):
            call("Zebra")
    with pytest.raises(ValueError, match="unknown task"):
        registry.find_spec("Zebra").make({}, 1, "mujoco_cpu", "cpu")


def test_unknown_baseline_is_refused():
    message = r"unknown baseline 'humam' \(did you mean human\?\); there are human, unshaped"
    with pytest.raises(ValueError, match=message):
        registry.find_spec("Anymal").baseline_path("humam")


def test_state_table_marks_constants_and_per_environment_keys():
    table = task_contract(registry.find_spec("Cartpole"), compose_config("Cartpole").task).state_table().splitlines()
    assert "| `cart_pos` | (n,) | m | cart's position on the rail |" in table
    assert "| `reset_dist` | constant | m | the cart's range is from minus to plus this |" in table


@pytest.mark.parametrize(
    "name", [name if name == "Humanoid" else pytest.param(name, marks=pytest.mark.slow) for name in TASKS]
)
def test_files_of_ppo_are_merged_as_hydra_merges_them(name):
    assert train_defaults(registry.find_spec(name)) == compose_config(name).train
