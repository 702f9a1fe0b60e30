"""rsl_rl's config of PPO, as mjlab's ``rl_cfg`` or Isaac Lab's ``rsl_rl_cfg`` has it, in the keys of this package."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any

_ACTIVATIONS = {"identity": "None"}  # torch's names that are others in rl_games


def rsl_rl_params(runner: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a runner's config, such as ``dataclasses.asdict(unitree_g1_ppo_runner_cfg())``.

    Configs for rsl_rl before 4 have a ``policy`` instead of ``actor`` and ``critic``. Isaac Lab's base class has all
    three; ``actor`` and ``critic`` count if both are set, as in Isaac Lab with rsl_rl 4. A field that is not set counts
    as absent: ``dataclasses.MISSING``, and ``{}``, which Isaac Lab's ``to_dict()`` makes of it.

    Returns:
        The content of a train.yaml, which differs from cfg/train/RslRlPPO.yaml in numbers alone. The actions' limit
        (``clip_actions``) is the task's to apply.

    Raises:
        ValueError: it lacks a setting, or asks for what grouped PPO does not have, for instance a recurrent network.
    """
    try:
        return _translated(_filled(runner))
    except KeyError as error:
        raise ValueError(f"rl_cfg, the settings of PPO, has no {error}: is it for a known version of rsl_rl?") from None


def _filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    filled = {key: _filled(x) if isinstance(x, Mapping) else x for key, x in settings.items()}
    return {key: x for key, x in filled.items() if x != {} and not isinstance(x, type(MISSING))}  # asdict copies it


def _translated(runner: Mapping[str, Any]) -> dict[str, Any]:
    if "policy" in runner and not ("actor" in runner and "critic" in runner):
        runner = {**runner, **_actor_and_critic(runner["policy"], runner.get("empirical_normalization") is True)}
    actor, algorithm = runner["actor"], runner["algorithm"]
    distribution = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}
    distribution.update(actor.get("distribution_cfg") or {})
    _check(actor, runner["critic"], algorithm, distribution)
    adaptive = algorithm["schedule"] == "adaptive" and algorithm["desired_kl"] is not None
    # rsl_rl's loss has the value loss without the factor 1/2 of rl_games: critic_coef is twice its coefficient
    init_std, activation = float(distribution["init_std"]), actor["activation"]
    units, critic_units = _plain(actor["hidden_dims"]), _plain(runner["critic"]["hidden_dims"])
    return {
        "defaults": ["RslRlPPO", "_self_"],
        "params": {
            "network": {
                "mlp": {
                    "units": units,
                    **({} if critic_units == units else {"critic_units": critic_units}),
                    "activation": _ACTIVATIONS.get(activation, activation),
                },
                "space": {
                    "continuous": {
                        "std_type": distribution["std_type"],
                        "sigma_init": {"name": "const_initializer", "val": math.log(init_std)},
                    }
                },
            },
            "config": {
                "normalize_input": bool(actor["obs_normalization"]),
                "horizon_length": int(runner["num_steps_per_env"]),
                "mini_epochs": int(algorithm["num_learning_epochs"]),
                "num_minibatches": int(algorithm["num_mini_batches"]),
                "learning_rate": float(algorithm["learning_rate"]),
                "lr_schedule": "adaptive" if adaptive else "identity",
                **({"kl_threshold": float(algorithm["desired_kl"])} if adaptive else {}),
                "gamma": float(algorithm["gamma"]),
                "tau": float(algorithm["lam"]),
                "e_clip": float(algorithm["clip_param"]),
                "clip_value": bool(algorithm["use_clipped_value_loss"]),
                "critic_coef": 2.0 * float(algorithm["value_loss_coef"]),
                "entropy_coef": float(algorithm["entropy_coef"]),
                "grad_norm": float(algorithm["max_grad_norm"]),
            },
        },
    }


def _actor_and_critic(policy: Mapping[str, Any], normalizes: bool) -> dict[str, Any]:
    """Return the configs of both networks of a ``policy``; ``normalizes``: the runner's ``empirical_normalization``."""
    _require("policy.class_name", policy.get("class_name", "ActorCritic"), "ActorCritic")
    _require("policy.state_dependent_std", policy.get("state_dependent_std", False), False)
    actor, critic = (
        {
            "hidden_dims": policy[f"{name}_hidden_dims"],
            "activation": policy["activation"],
            "obs_normalization": normalizes or policy.get(f"{name}_obs_normalization") is True,  # else it may be unset
        }
        for name in ("actor", "critic")
    )
    std = {"init_std": policy["init_noise_std"], "std_type": policy.get("noise_std_type", "scalar")}
    return {"actor": {**actor, "distribution_cfg": std}, "critic": critic}


def _check(
    actor: Mapping[str, Any], critic: Mapping[str, Any], algorithm: Mapping[str, Any], distribution: Mapping[str, Any]
) -> None:
    """Raise ValueError for what grouped PPO does not have."""
    for name, model in (("actor", actor), ("critic", critic)):
        _require(f"{name}.class_name", model.get("class_name", "MLPModel").rpartition(".")[2], "MLPModel")
        for key in ("cnn_cfg", "rnn_type"):
            _require(f"{name}.{key}", model.get(key), None)
    for key in ("activation", "obs_normalization"):
        _require(f"critic.{key}", critic[key], actor[key])
    _require("actor.distribution_cfg.class_name", distribution["class_name"], "GaussianDistribution")
    for key, expected in (("learn_std", True), ("std_range", [1e-6, 1e6])):
        _require(f"actor.distribution_cfg.{key}", _plain(distribution.get(key, expected)), expected)
    for key, expected in (
        ("class_name", "PPO"), ("optimizer", "adam"), ("normalize_advantage_per_mini_batch", False),
        ("rnd_cfg", None), ("symmetry_cfg", None),
    ):  # fmt: skip
        _require(f"algorithm.{key}", algorithm.get(key, expected), expected)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value


def _require(key: str, value: Any, expected: Any) -> None:
    if value != expected:
        raise ValueError(f"rl_cfg.{key}: {value} is not supported by grouped training; it must be {expected}")
