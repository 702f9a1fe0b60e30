"""Critics with observations of their own: what they learn, what the policy must not see, groups with and without."""

import contextlib
import io
from typing import Any

import pytest
import torch
from kernel_device import DEVICE, FEWER, INTERPRETED, compares_kernels
from linear_env import LinearEnv, Run, assert_bitwise, make_env
from oracle import Recording, StockAgent, make_params, stacked
from oracle import play as play_recordings
from rl_games.algos_torch.central_value import CentralValueTrain
from rl_games.algos_torch.model_builder import ModelBuilder
from test_learner import ACTION_DIMS, CRITIC_DIMS, OBS_DIMS, SEEDS, exported, make_learner, play
from test_oracle import own_weights

from envcoder_bench.core.torch_settings import settings_kept, use_deterministic_algorithms
from envcoder_bench.env.base import EnvStep
from envcoder_bench.trainers.base import padded_widths, widest
from envcoder_bench.trainers.ppo import backend, trainer
from envcoder_bench.trainers.ppo.learner import GroupedLearner
from envcoder_bench.trainers.ppo.network import CRITIC
from envcoder_bench.trainers.ppo.trainer import GroupedPPO


def run(
    groups: list[int], critic_dims: list[int], device: str = "cpu", env_class: Any = LinearEnv, **options: Any
) -> Run:
    """Return a run of separate networks, some of whose critics have observations of their own."""
    env = make_env(groups, critic_dims=critic_dims, device=device, env_class=env_class)
    return Run(env, device, network__separate=True, **options)


def test_widths_of_groups_with_and_without_critic_observations() -> None:
    assert widest([(4, 2), (3, 9)]) == (4, 9)
    assert widest([(4, 2), (3, 9, 7), (5, 1)]) == (5, 9, 7)
    assert padded_widths(4, 9) == (32, 16) and padded_widths(4, 9, 33) == (32, 16, 64)


# what they learn


class Alike(LinearEnv):
    """Critics see what the policies see."""

    @property
    def critic_obs(self) -> torch.Tensor | None:
        return self._obs() if self.critic_dims else None


def test_critic_that_sees_the_same_as_the_policy_learns_the_same_bits() -> None:
    alone, same = (run([0, 1, 2], dims, env_class=Alike).train(2) for dims in ([], OBS_DIMS))
    for group in range(3):
        model, twin = alone.trainer.export(group)["model"], same.trainer.export(group)
        actor = {key: x for key, x in model.items() if not key.startswith(CRITIC)}
        assert_bitwise(actor, {key: twin["model"][key] for key in actor})
        critic = {key.replace("critic_mlp", "actor_mlp"): x for key, x in model.items() if key.startswith(CRITIC)}
        assert_bitwise(critic, {key: twin["assymetric_vf_nets"][f"model.{key}"] for key in critic})


@pytest.mark.parametrize("dtype, rtol, atol", [(torch.float64, 1e-7, 1e-8), (torch.float32, 2e-3, 1e-4)])
def test_training_matches_stock_agents_whose_networks_see_parts_of_the_observation(
    dtype: torch.dtype, rtol: float, atol: float, tmp_path: Any
) -> None:
    """The agent observes what both see; weights of the columns that a network must not see stay 0."""
    params = make_params(network__separate=True)
    dims = list(zip(OBS_DIMS, CRITIC_DIMS, ACTION_DIMS, SEEDS))
    recordings = [Recording(o + c, a, 6, 24, s + 100, dtype) for o, c, a, s in dims]
    agents = [StockAgent(params, recording, 1, tmp_path, dtype) for recording in recordings]
    learner = GroupedLearner(OBS_DIMS, ACTION_DIMS, SEEDS, params, 6, "cpu", dtype, critic_dims=CRITIC_DIMS)
    for k, (agent, (o, _, _, _)) in enumerate(zip(agents, dims)):
        _restrict(agent, learner, k, o)
    rollout = learner.new_rollout()

    def seen(t: int) -> tuple[torch.Tensor, torch.Tensor]:
        own = [r.obs[t][:, :o] for r, o in zip(recordings, OBS_DIMS)]
        of_critics = [r.obs[t][:, o:] for r, o in zip(recordings, OBS_DIMS)]
        return stacked(learner, own, learner.obs_dim), stacked(learner, of_critics, learner.critic_dim)

    for iteration in range(3):
        play_recordings(learner, rollout, recordings, 8 * iteration, seen)
        expected = [agent.iterate() for agent in agents]
        for name, values in learner.update(rollout, epoch=iteration + 1).items():
            stock = torch.tensor([stats[name] for stats in expected], dtype=torch.float64)
            torch.testing.assert_close(values.double(), stock, rtol=10 * rtol, atol=10 * atol)
        for k, (agent, (o, _, _, _)) in enumerate(zip(agents, dims)):
            for key, value in agent.model.state_dict().items():
                torch.testing.assert_close(_mine(learner, k, key, value), _visible(key, value, o), rtol=rtol, atol=atol)


def _restrict(agent: StockAgent, learner: GroupedLearner, k: int, obs_dim: int) -> None:
    """Give an agent the learner's weights, and let no gradient reach columns that a network must not see."""
    for key, parameter in agent.model.named_parameters():
        parameter.data.copy_(parameter.data * 0.0)
        _visible(key, parameter.data, obs_dim).copy_(own_weights(learner, k, key))
        visible = torch.zeros_like(parameter)
        _visible(key, visible, obs_dim).fill_(1.0)
        parameter.register_hook(lambda grad, visible=visible: grad * visible)


def _visible(key: str, value: torch.Tensor, obs_dim: int) -> torch.Tensor:
    if key.endswith("actor_mlp.0.weight"):
        return value[:, :obs_dim]
    return value[:, obs_dim:] if key.endswith("critic_mlp.0.weight") else value


def _mine(learner: GroupedLearner, k: int, key: str, like: torch.Tensor) -> torch.Tensor:
    if key.startswith("a2c_network"):
        return own_weights(learner, k, key)
    model, critic = learner.export(k), learner.export_central_value(k)
    assert critic is not None
    if key.startswith("running_mean_std") and like.dim():
        return torch.cat([model[key], critic[f"model.{key}"]])
    return model[key]


# what they must not change


def test_policy_does_not_depend_on_critic_observations() -> None:
    learner = make_learner(CRITIC_DIMS)
    learner.update(play(learner, 0), 1)
    rng = torch.Generator().manual_seed(5)
    obs, noise = torch.randn(3, 6, 9, generator=rng), torch.randn(3, 6, 4, generator=rng)
    first, second = (learner.act(obs, noise, torch.full((3, 6, 15), x)) for x in (0.0, 7.0))
    for name in ("actions", "mus"):
        assert torch.equal(first[name], second[name])
    assert not torch.equal(first["values"], second["values"])
    assert torch.equal(learner.policy(obs), first["mus"])
    # nor do the statistics of its observations, whatever the critics see
    other = make_learner(CRITIC_DIMS)
    rollout = play(other, 0)
    assert rollout.critic_obs is not None
    rollout.critic_obs.mul_(3.0)
    other.update(rollout, 1)
    for k in range(3):
        for key in ("running_mean", "running_var", "count"):
            name = f"running_mean_std.{key}"
            assert torch.equal(other.export(k)[name], learner.export(k)[name])


def test_block_has_groups_with_critic_observations_or_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA a block has many groups."""
    sizes = trainer.cut_equal_blocks
    monkeypatch.setattr(trainer, "cut_equal_blocks", lambda keys, _: sizes(keys, 9))
    among = run([0, 1, 2, 0], [4, 7, 0, 0])
    assert [block.groups for block in among.trainer.blocks] == [slice(0, 2), slice(2, 4)]
    among.train(2)
    assert "assymetric_vf_nets" in among.trainer.export(0) and "assymetric_vf_nets" not in among.trainer.export(3)
    for place, (group, dim) in enumerate([(0, 4), (1, 7), (2, 0), (0, 0)]):
        mine, alone = among.weights(place), run([group], [dim]).train(2).weights(0)
        for key, value in alone.items():
            torch.testing.assert_close(mine[key], value, rtol=1e-3, atol=1e-5)


# files


def test_exported_critic_is_rl_games_central_value() -> None:
    learner = make_learner(CRITIC_DIMS)
    learner.update(play(learner, 0), 1)
    obs = torch.randn(3, 10, 15, generator=torch.Generator().manual_seed(1)) * 3
    network = make_params()["network"]
    config = {
        "network": {"name": "actor_critic", "central_value": True, "mlp": network["mlp"]},
        "model": {"name": "central_value"}, "normalize_input": True, "learning_rate": 1e-3, "mini_epochs": 1,
        "minibatch_size": 48, "clip_value": True,
    }  # fmt: skip
    for k, dim in enumerate(CRITIC_DIMS):
        with contextlib.redirect_stdout(io.StringIO()):
            stock = CentralValueTrain(
                (dim,), 1, "cpu", 1, 8, 6, ACTION_DIMS[k], 4, True, ModelBuilder().load(config), config, None, 1, False,
                False,
            )  # fmt: skip
        critic = learner.export_central_value(k)
        assert critic is not None
        stock.load_state_dict(critic)
        value = stock.get_value({"states": obs[k, :, :dim]}).squeeze(1).detach()
        torch.testing.assert_close(learner.values(obs)[k], value)
        # the model has the widths of the policy, and no critic that would be wrong
        model = exported(learner)
        assert model[f"{k}.a2c_network.critic_mlp.0.weight"].shape == (16, OBS_DIMS[k])
        assert (model[f"{k}.a2c_network.value.weight"] == 0).all()
        assert (model[f"{k}.a2c_network.actor_mlp.0.weight"] != 0).all()


def test_shared_networks_cannot_have_critic_observations() -> None:
    assert GroupedPPO.critic_refusal(make_params(network__separate=True)) is None
    message = GroupedPPO.critic_refusal(make_params())
    assert message is not None and message.startswith("params.network.separate: ") and "True" in message


# on CUDA


AS_RSL_RL = {"empirical_normalization": True, "schedule_type": "rollout", "grad_norm_per_network": True}


@compares_kernels
@pytest.mark.parametrize("own_keys", [{}, AS_RSL_RL], ids=["rl_games", "rsl_rl"])
def test_trainer_with_kernels_matches_torch(own_keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations of groups with and without critic observations: three as captured graphs on CUDA."""
    # in the interpreter an iteration takes seconds
    iterations, groups, critics = (1, [0, 1], [4, 0]) if INTERPRETED else (3, [0, 1, 2], [4, 0, 7])
    torch.set_float32_matmul_precision("highest")
    space = make_params()["network"]["space"]["continuous"] | {"std_type": "scalar" if own_keys else "log"}
    options: dict[str, Any] = {
        "matmul_precision": "highest", "lr_schedule": None, "mini_epochs": 1 if INTERPRETED else 2,
        "network__space": {"continuous": space}, **FEWER, **own_keys
    }  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(backend, "usable_on", lambda device, dtype: False)
        expected = run(groups, critics, **options).train(iterations)
    own = run(groups, critics, device=DEVICE.type, **options)
    own.trainer._threads = None  # Triton's interpreter is for one thread
    own.train(iterations)
    for group in range(len(groups)):
        for key, value in expected.weights(group).items():
            torch.testing.assert_close(own.weights(group)[key], value, rtol=2e-3, atol=2e-4)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_deterministic_groups_on_cuda_train_bitwise_equal_alone_and_among_others() -> None:
    def trained(groups: list[int], critic_dims: list[int]) -> list[dict[str, torch.Tensor]]:
        among = run(groups, critic_dims, device="cuda", env_class=OnCPU, matmul_precision="highest")
        among.obs = among.obs.to("cuda")
        among.train(4)
        return [among.weights(g) for g in range(len(groups))]

    with settings_kept():
        use_deterministic_algorithms()
        together = trained([0, 1, 2, 0, 0], [4, 0, 7, 40, 0])
        for place, (group, dim) in enumerate([(0, 4), (1, 0), (2, 7), (0, 40), (0, 0)]):
            assert_bitwise(together[place], trained([group], [dim])[0])


class OnCPU(LinearEnv):
    """Computes on the CPU, where its bits are those of the group, for a trainer on CUDA."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "device": "cpu"})

    @property
    def critic_obs(self) -> torch.Tensor | None:
        seen = super().critic_obs
        return None if seen is None else seen.to("cuda")

    def step(self, actions: torch.Tensor, final_obs: bool = False) -> EnvStep:
        return EnvStep(*(None if x is None else x.to("cuda") for x in super().step(actions.cpu(), final_obs)))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("own_keys", [{}, AS_RSL_RL], ids=["rl_games", "rsl_rl"])
def test_resumed_run_on_cuda_matches_the_uninterrupted_one(own_keys: dict[str, Any]) -> None:
    options: dict[str, Any] = {"device": "cuda", "matmul_precision": "highest", **own_keys}
    straight, first, second = (run([0, 1, 2], [4, 0, 7], **options) for _ in range(3))
    straight.train(6)
    first.train(3)
    second.restore(first.get_state())
    second.train(6)
    for group in range(3):
        for key, value in straight.weights(group).items():
            torch.testing.assert_close(second.weights(group)[key], value, rtol=1e-3, atol=1e-4)
