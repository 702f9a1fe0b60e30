"""ElegantRL's settings from the ``params`` of an rl_games YAML."""

from typing import Any

from envcoder_bench.trainers.base import Params
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters

INSTALL = "pip install --no-deps elegantrl==0.3.6"
STATE_VALUE_TAU = 0.1  # ElegantRL's weight of a new batch in the running statistics of observations and returns


def import_elegantrl() -> tuple[Any, Any]:
    """Return ElegantRL's AgentPPO and Config. Raises ValueError if the package is missing."""
    try:
        from elegantrl.agents import AgentPPO
        from elegantrl.train.config import Config
    except ImportError as error:
        raise ValueError(f"params.algo.name: elegantrl_ppo needs the package elegantrl: {INSTALL}") from error
    return AgentPPO, Config


def elegantrl_config(params: Params, num_envs: int) -> Any:
    """Return ElegantRL's Config for groups of ``num_envs`` environments.

    ``horizon_length``, ``mini_epochs``, ``num_minibatches``, ``gamma``, ``tau``, ``e_clip``, ``entropy_coef``,
    ``learning_rate``, ``grad_norm``, ``reward_shaper.scale_value``, ``normalize_input`` and ``network.mlp.units`` have
    an effect. The rest is ElegantRL's: ReLU, separate networks, actions through tanh, a constant learning rate, one
    deviation per action that begins at 1, and time-outs that end the return.

    Raises:
        ValueError: the params are not valid; names the key.
    """
    agent, config_class = import_elegantrl()
    hp = Hyperparameters.from_params(params, num_envs)
    config = config_class(agent)
    config.num_envs, config.horizon_len = num_envs, hp.horizon_length
    config.net_dims = tuple(params["network"]["mlp"]["units"])
    config.gamma, config.lambda_gae_adv = hp.gamma, hp.tau
    config.ratio_clip, config.lambda_entropy = hp.e_clip, hp.entropy_coef
    config.learning_rate = hp.learning_rate
    config.clip_grad_norm = float("inf") if hp.grad_norm is None else hp.grad_norm
    config.reward_scale = float(params["config"].get("reward_shaper", {}).get("scale_value", 1.0))
    config.state_value_tau = STATE_VALUE_TAU if hp.normalize_input else 0.0
    config.batch_size = num_envs * hp.horizon_length // hp.num_minibatches
    # ElegantRL updates int(horizon_len * repeat_times / batch_size) times, of which mini_epochs see every sample once
    config.repeat_times = hp.mini_epochs * hp.num_minibatches * config.batch_size / hp.horizon_length
    return config
