"""Networks of ElegantRL in the format of rl_games' checkpoints."""

import copy
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.trainers.base import Params


@torch.no_grad()
def export_weights(agent: Any) -> dict[str, Tensor]:
    """Return the weights of an AgentPPO as rl_games' model for ``rl_games_params``.

    The normalization of observations is part of the first layers, that of values of the last one.
    """
    actor, critic = _layers(agent.act), _layers(agent.cri)
    weight, bias = critic[-1]
    critic[-1] = weight * agent.cri.value_std, bias * agent.cri.value_std + agent.cri.value_avg
    named: dict[str, tuple[Tensor, Tensor]] = {"mu": actor.pop(), "value": critic.pop()}
    named.update({f"actor_mlp.{2 * k}": layer for k, layer in enumerate(actor)})
    named.update({f"critic_mlp.{2 * k}": layer for k, layer in enumerate(critic)})
    exported = {"a2c_network.sigma": agent.act.action_std_log[0].cpu().clone()}
    for name, (weight, bias) in named.items():
        exported[f"a2c_network.{name}.weight"] = weight.float().cpu().contiguous()
        exported[f"a2c_network.{name}.bias"] = bias.float().cpu().contiguous()
    return exported


def rl_games_params(params: Params) -> dict[str, Any]:
    """Return the ``params`` of the exported network: ReLU, separate, tanh, without normalization."""
    made = copy.deepcopy(dict(params))
    made["network"].update(separate=True)
    made["network"]["mlp"]["activation"] = "relu"
    made["network"]["space"]["continuous"]["mu_activation"] = "tanh"
    made["config"].update(normalize_input=False, normalize_value=False)
    return made


def _layers(network: Any) -> list[tuple[Tensor, Tensor]]:
    """Return weights and biases; the first layer's include the network's normalization of its input."""
    linear = [layer for layer in network.net if isinstance(layer, torch.nn.Linear)]
    layers = [(layer.weight.double(), layer.bias.double()) for layer in linear]
    weight, bias = layers[0]
    scaled = weight / network.state_std.double()
    layers[0] = scaled, bias - scaled @ network.state_avg.double()
    return layers
