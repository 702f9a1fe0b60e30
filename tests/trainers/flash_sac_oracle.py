"""rsl_rl_flashsac's updates on recorded batches, as an oracle for grouped FlashSAC.

PYTHONPATH=tests/trainers:CHECKOUT python -m flash_sac_oracle   # with rsl-rl-lib==5.4.2: writes flash_sac_update.json

CHECKOUT is Holiday-Robot/rsl_rl_flashsac at ``VERSION``.
"""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.trainers.offpolicy.learner import Learner
from envcoder_bench.trainers.offpolicy.replay import Batch
from envcoder_bench.trainers.offpolicy.settings import SACSettings

FILE, VERSION = Path(__file__).with_name("flash_sac_update.json"), "58ea910"
SETTINGS = SACSettings(
    actor_units=8, critic_units=12, batch_size=16, num_bins=21, actor_period=2, learning_rate=3e-3,
    alpha_learning_rate=3e-3, critic_tau=0.1,
)  # fmt: skip
OBS, ACTION, UPDATES = 5, 3, 4


def numbers(step: int, lanes: int, columns: int) -> Tensor:
    return noise.normal(3, step, Purpose.COMMAND, lanes, columns)


def batch(update: int) -> Batch:
    """A batch of one group, with numbers of which some end an episode and some leave the bins."""
    size, first = SETTINGS.batch_size, 100 * update
    obs, next_obs = (3.0 * numbers(first + k, size, OBS) + 1.0 for k in (0, 1))
    action = torch.tanh(numbers(first + 2, size, ACTION))
    reward = 2.0 * numbers(first + 3, size, 1).squeeze(1)
    continues = (numbers(first + 4, size, 1).squeeze(1) > -0.5).float()
    parts = (obs, obs, action, reward, continues, torch.ones(size), next_obs, next_obs)
    return Batch(*(x.unsqueeze(0) for x in parts))


def policy_noise(update: int) -> tuple[Tensor | None, Tensor]:
    """The noise of an update's actor, if it has one, and of its next actions."""
    size, first = SETTINGS.batch_size, 100 * update + 50
    actor, after = (numbers(first + k, size, ACTION).unsqueeze(0) for k in (0, 1))
    return (actor if update % SETTINGS.actor_period == 0 else None), after


def names(critic: bool, linear: str = ".weight") -> dict[str, str]:
    """Our names of a network's tensors by theirs."""
    inner = "" if critic else ".w"
    pairs = {"embedder.norm": "norm", f"embedder.w{inner}{linear}": "embed", "post_norm.weight": "post.scale"}
    for k in range(SETTINGS.blocks):
        for one, two in (("up", 1), ("down", 2)):
            pairs[f"encoder.{k}.w{two}{inner}{linear}"] = f"{k}.{one}"
            pairs[f"encoder.{k}.norm{two}"] = f"{k}.norm_{one}"
    heads = {"value": ("w.weight", "bias")} if critic else {
        "mean": ("mean_w.w.weight", "mean_bias"), "log_std": ("std_w.w.weight", "std_bias")
    }  # fmt: skip
    for name, (weight, bias) in heads.items():
        pairs |= {f"predictor.{weight}": name, f"predictor.{bias}": f"{name}.bias"}
    norms = {theirs: own for theirs, own in pairs.items() if "norm" in theirs and theirs != "post_norm.weight"}
    for theirs, own in norms.items():
        del pairs[theirs]
        pairs |= {
            f"{theirs}.{kind}": f"{own}.{mine}"
            for kind, mine in (
                ("weight", "scale"), ("bias", "shift"), ("running_mean", "mean"), ("running_var", "var")
            )
        }  # fmt: skip
    return pairs


def digest(tensors: dict[str, Tensor]) -> dict[str, list[float]]:
    """Three numbers of each tensor: sums with random weights, which see every element and its place."""
    weights = {k: lambda x, k=k: numbers(1000 + k, len(x), 1).squeeze(1).double() for k in range(3)}
    flat = {name: x.detach().flatten().double() for name, x in tensors.items()}
    return {name: [float(x @ draw(x)) for draw in weights.values()] for name, x in flat.items()}


def ours(learner: Learner) -> dict[str, Any]:
    """The digests of our networks, and the temperature."""
    networks = {"actor": learner.actor, "critic": learner.critic, "target": learner.target}
    digests = {
        name: digest({**network.parameters.views, **network.buffers.views}) for name, network in networks.items()
    }
    return {**digests, "temperature": float(learner.temperature.item())}


def make_learner() -> Learner:
    return Learner([(OBS, ACTION, 0)], (OBS, ACTION, 0), [5], [SETTINGS], torch.device("cpu"))


def main() -> None:
    """Copy our first weights to theirs, make their updates, and write the digests of all networks."""
    from rsl_rl_flashsac.algorithms import FlashSAC
    from rsl_rl_flashsac.models import FlashSACActor, FlashSACCritic
    from tensordict import TensorDict

    mine, s = make_learner(), SETTINGS
    seen = TensorDict({"policy": torch.zeros(1, OBS)}, batch_size=1)
    groups = {"actor": ["policy"], "critic": ["policy"]}
    actor = FlashSACActor(seen, groups, "actor", ACTION, hidden_dim=s.actor_units)
    critic = FlashSACCritic(
        seen, groups, "critic", num_actions=ACTION, hidden_dim=s.critic_units, num_bins=s.num_bins
    )  # fmt: skip
    theirs = FlashSAC(
        actor, critic, mock.Mock(), learning_rate_init=s.learning_rate, learning_rate_peak=s.learning_rate,
        learning_rate_end=s.learning_rate, learning_rate_decay_steps=10, critic_target_update_tau=s.critic_tau,
        n_steps=s.n_step, use_compile=False, use_amp=False,
    )  # fmt: skip
    pairs = [
        (actor, mine.actor, False), (theirs.critic.critic, mine.critic, True),
        (theirs.critic.critic_target, mine.target, True),
    ]  # fmt: skip

    def views(network: Any) -> dict[str, Tensor]:
        return {**network.parameters.views, **network.buffers.views}

    def shaped(x: Tensor, name: str, is_critic: bool) -> Tensor:
        product = name in mine.actor.shape.products or name in mine.critic.shape.products
        x = x.transpose(-1, -2) if product else x
        return x if is_critic else x.unsqueeze(0)

    with torch.no_grad():
        for network, own, is_critic in pairs:
            for key, name in names(is_critic).items():
                target = network.state_dict()[key]
                target.copy_(shaped(views(own)[name], name, True).reshape(target.shape))
    for update in range(UPDATES):
        each = batch(update)
        values = [x[0] for x in each]
        actor_noise, next_noise = policy_noise(update)
        queue = [x[0] for x in (actor_noise, next_noise) if x is not None]

        def standard_normal(shape: Any, dtype: Any, device: Any, queue: list[Tensor] = queue) -> Tensor:
            drawn = queue.pop(0)  # they draw for both halves, and use the first
            return torch.cat([drawn, drawn])[: shape[0]]

        with mock.patch("torch.distributions.normal._standard_normal", standard_normal):
            if actor_noise is not None:
                _, entropy = theirs._update_actor(values[0], values[6], values[1], values[2])
                theirs._update_temperature(entropy)
            ended, gamma = 1.0 - values[4], s.gamma**s.n_step
            theirs._update_critic(values[1], values[7], values[6], values[2], values[3], ended, gamma)
        with torch.no_grad():
            theirs._ema_update()
    record: dict[str, Any] = {}
    for (network, own, is_critic), name in zip(pairs, ("actor", "critic", "target")):
        state = network.state_dict()
        record[name] = digest(
            {mine_key: shaped(state[key], mine_key, is_critic) for key, mine_key in names(is_critic).items()}
        )
        del own
    record["temperature"] = theirs.alpha
    FILE.write_text(json.dumps({"rsl_rl_flashsac": VERSION, **record}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
