"""--task_config and --train_config: YAML files in IsaacGymEnvs' format, whole or in part."""

import pytest
from helpers import QUICK, run, write_candidates

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.yaml_files import to_yaml
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.config_checks import check_task, check_training
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.inputs import override_word
from envcoder_bench.run.isaac_yaml import file_overrides
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources import registry

# laid out as IsaacGymEnvs' files are: references to the main config, keys of its engine, and all the rest
TASK = """
name: Ant
physics_engine: ${..physics_engine}
env:
  numEnvs: ${resolve_default:2048,${...num_envs}}
  envSpacing: 5
  episodeLength: 700
  headingWeight: 0.75
  clipActions: 1.0
  plane: {staticFriction: 1.0}
sim:
  dt: 0.0166
  substeps: 2
  use_gpu_pipeline: ${eq:${...pipeline},"gpu"}
  physx: {num_threads: "${....num_threads}", use_gpu: "${contains:\\"cuda\\",${....sim_device}}"}
task:
  randomize: False
"""
TRAIN = """
params:
  seed: ${...seed}
  network:
    mlp:
      units: [64, 32]
  load_checkpoint: ${if:${...checkpoint},True,False}
  config:
    name: ${resolve_default:Ant,${....experiment}}
    full_experiment_name: ${.name}
    multi_gpu: ${....multi_gpu}
    mixed_precision: True
    num_actors: ${....task.env.numEnvs}
    gamma: 0.98
    learning_rate: 1e-4
    schedule_type: standard
    score_to_win: 20000
    max_epochs: ${resolve_default:500,${....max_iterations}}
    horizon_length: 32
    minibatch_size: 16384
    seq_len: 4
"""


def compose(folder, task="Ant", task_config=None, train_config=None, more=()):
    paths = []
    for name, text in (("task.yaml", task_config), ("train.yaml", train_config)):
        if text is not None:
            (folder / name).write_text(text)
        paths.append(None if text is None else str(folder / name))
    cfg = compose_config(
        task,
        [
            *(
                f"{key}={override_word(key, value)}"
                for key, value in file_overrides(registry.find_spec(task), *paths).items()
            ),
            *more,
        ],
    )
    check_task(registry.find_spec(task), cfg.task)
    check_training(RunSpec.of(cfg))
    return cfg


def test_values_of_yaml_files_override_the_defaults(tmp_path, caplog):
    cfg = compose(tmp_path, task_config=TASK, train_config=TRAIN, more=["train.params.config.gamma=0.97"])
    assert (cfg.task.env.episodeLength, cfg.task.env.headingWeight) == (700, 0.75)
    assert cfg.task.sim.substeps == compose_config("Ant").task.sim.substeps  # PhysX' are not MuJoCo's
    config = cfg.train.params.config
    assert (config.gamma, config.learning_rate, config.schedule_type) == (0.97, 1e-4, "standard")
    assert list(cfg.train.params.network.mlp.units) == [64, 32]
    assert config.score_to_win == float("inf") and config.tau == 0.95 and config.mixed_precision is False
    # 2,048 environments x 32 steps / 16,384
    assert (config.num_actors, config.num_minibatches) == (2048, 4)
    task, train = caplog.messages
    assert task.startswith(f"--task_config {tmp_path / 'task.yaml'}: these keys have no effect here: physics_engine, ")
    for key in ("env.numEnvs", "env.plane", "sim.physx", "task", "sim.substeps (for PhysX; see task.sim.substeps)"):
        assert key in task
    for key in ("mixed_precision (everything is float32)", "max_epochs (see --learning_iterations)", "seq_len"):
        assert f"params.config.{key}" in train
    for key in ("seed", "multi_gpu", "full_experiment_name", "gamma", "num_actors"):
        assert key not in train


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.task_names())
def test_shipped_configs_load_as_yaml_files_unchanged(tmp_path, capsys, name):
    shipped = compose_config(name)
    task, train = (to_yaml(node) for node in (shipped.task, shipped.train))
    assert compose(tmp_path, name, task, train) == shipped


@pytest.mark.parametrize("count, expected", [("num_actors: 1024", 1), ("", 2), ("num_actors: ${....x}", 2)])
def test_num_minibatches_follows_minibatch_size_and_environments_of_the_yaml(tmp_path, count, expected):
    text = f"params:\n  config:\n    minibatch_size: 16384\n    {count}\n"
    # Ant: 16 steps, and IsaacGymEnvs has 4,096 environments
    config = compose(tmp_path, train_config=text, more=["train.params.config.horizon_length=8"] * (expected == 2))
    assert config.train.params.config.num_minibatches == expected


def test_minibatch_size_override_must_divide_the_batch():
    override = "train.params.config.minibatch_size"
    assert compose_config("Anymal", [f"{override}=32768"]).train.params.config.num_minibatches == 3
    assert compose_config("Anymal", [f"{override}=32768", "train.params.config.num_actors=8192"]).train.params.config[
        "num_minibatches"
    ] == 6  # fmt: skip
    for value, message in (("30000", "does not divide the batch of 98304"), ("0", "a whole number"), ("x", "got x")):
        with pytest.raises(UserError, match=message):
            compose_config("Anymal", [f"{override}={value}"])


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("headingWeight", "headingWeigt", r"task.yaml: unknown key 'env.headingWeigt' \(did you mean env.heading"),
        ("name: Ant", "name: Humanoid", "task.yaml is for Humanoid, and --task is Ant"),
        ("randomize: False", "randomize: True", "task.yaml: task.randomize is True, but domain randomization is not"),
        ("700", "long", "task.yaml: task.env.episodeLength must be a number, such as 1000, got long"),
        ("700", "${...steps}", r"task.yaml: env.episodeLength is \$\{...steps\}, which is not in this file: write"),
        ("clipActions: 1.0", "clipActions: [1", r"task.yaml:\d+: "),
        (TASK, "", "task.yaml is empty"),
        (TASK, "- 1\n", "task.yaml: it is not a YAML mapping of keys to values"),
        (TASK, "env: 3\n", "task.yaml: env must hold keys, such as env.clipActions, got 3"),
        (TASK, TRAIN, "task.yaml is not a task YAML: see --train_config"),
    ],
)
def test_bad_task_file_is_reported_with_its_key(tmp_path, old, new, message):
    assert old in TASK
    with pytest.raises(UserError, match=message):
        compose(tmp_path, task_config=TASK.replace(old, new))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("gamma", "gama", r"train.yaml: unknown key 'params.config.gama' \(did you mean params.config.gamma"),
        ("0.98", "${....gamma}", r"train.yaml: params.config.gamma is \$\{....gamma\}, which is not in this file"),
        ("0.98", "2", "train.yaml: params.config.gamma: must be a number from 0 to 1, got 2"),
        ("[64, 32]", "64", "train.yaml: params.network.mlp.units: must be a list of whole numbers"),
        ("schedule_type: standard", "schedule_type: cosine", "train.yaml: params.config.schedule_type: cosine is not"),
        (TRAIN, TASK, "train.yaml is not a train YAML: it has no keys below 'params'"),
        (TRAIN, "params:\n  config: 3\n", "train.yaml: params.config must hold keys, such as params.config.horizon"),
    ],
)
def test_bad_train_file_is_reported_with_its_key(tmp_path, old, new, message):
    assert old in TRAIN
    with pytest.raises(UserError, match=message):
        compose(tmp_path, train_config=TRAIN.replace(old, new))


def test_missing_file_is_reported(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.yaml cannot be read: No such file"):
        file_overrides(registry.find_spec("Ant"), str(tmp_path / "nowhere.yaml"), None)


def test_unsupported_object_type_of_allegro_hand_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"task\.yaml: task\.env\.objectType is 'egg', but can only be 'block'"):
        compose(tmp_path, "AllegroHand", "env:\n  objectType: egg\n")


@pytest.mark.slow
def test_saved_config_of_the_run_has_the_merged_values(tmp_path):
    (tmp_path / "task.yaml").write_text("env:\n  episodeLength: 60\n  maxEffort: 300\n")
    (tmp_path / "train.yaml").write_text("params:\n  config:\n    gamma: 0.9\n    minibatch_size: 4096\n")
    candidate = write_candidates(tmp_path, {"a": "def compute_reward(pole_angle):\n    return pole_angle * 1.0\n"})
    output = run(
        tmp_path / "run", *QUICK, "--task", "Cartpole", "--task_config", tmp_path / "task.yaml", "--train_config",
        tmp_path / "train.yaml", "--candidates", *candidate, "--num_envs_per_candidate", 4, "--learning_iterations", 1,
        "--no_baselines", "train.params.config.gamma=0.8", "compile_shapers=false",
    )  # fmt: skip
    cfg, _ = RunFolder(output).read()
    assert (cfg.task.env.episodeLength, cfg.task.env.maxEffort) == (60, 300)
    assert (cfg.train.params.config.gamma, cfg.train.params.config.num_minibatches) == (0.8, 2)
