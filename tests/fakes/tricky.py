"""Valid but difficult functions: sizes as numbers, random calls, unused values, unusual values.

A body for each; ``x`` is dof_pos ``(n, 3)``, ``v`` dof_vel, ``s`` the state, ``n`` how many environments there are.
"""

from textwrap import dedent, indent

_HEAD = {
    "reward": "compute_reward(state_dict)",
    "observation": "compute_observation(state_dict)",
    "terminal": "compute_terminal(state_dict)",
    "initial_state": "compute_initial_state(state_dict)",
    "goal": "compute_goal(state_dict)",
    "torque": "compute_torque(action, state_dict)",
    "dof_target": "compute_dof_target(action, state_dict)",
}

_BODIES: dict[str, dict[str, str]] = {
    "reward": {
        "half of them": "return torch.where(torch.arange(n) < n // 2, x[:, 0], -x[:, 0])",
        "the last quarter": "return x[:, 0] * (torch.arange(n) >= n - n // 4)",
        "at most a hundred": "return x[:, 0] * (torch.arange(n) < min(n, 100))",
        "n modulo 50": "return x[:, 0] + torch.arange(n) * (n % 50) * 0.001",
        "distributions": (
            "D = torch.distributions\n"
            "a = D.Normal(x[:, 0], 0.1).sample() + D.Uniform(-1.0, 1.0).sample((n,)) + D.Bernoulli(0.3).sample((n,))\n"
            "return a + D.Categorical(torch.softmax(x, -1)).sample() + D.Laplace(x[:, 1], 1.0).rsample()\n"
        ),
        "seven tenths": "return x[:, 0] * (torch.arange(n) < int(0.7 * n))",
        "made of other operators": (
            "f = torch.nn.functional\n"
            "h = f.softplus(x) + f.gelu(v) + f.mish(x) + f.celu(v) + f.logsigmoid(x) + torch.sinc(v) + f.hardswish(x)\n"
            "return h.logsumexp(1) + h.std(1) + f.smooth_l1_loss(x, v, reduction='none').sum(1) + h.roll(1, 1)[:, 0]"
        ),
        "unused mean": "mean = x.mean()\nreturn x[:, 0]",
        "constant as component": "return x[:, 0], {'scale': state_dict['dof_vel_scale'], 'x': x[:, 1]}",
        "0-d component": "return x[:, 0], {'made': torch.tensor(0.25), 'on': torch.tensor(True)}",
        "rand": "return x[:, 0] + torch.rand(n)",
        "randn": "return x[:, 0] + 0.1 * torch.randn(n, 2).prod(-1)",
        "randint": "return x[:, 0] + torch.randint(0, 5, (n,))",
        "a choice": "return x[torch.arange(n), torch.randint(3, (n,))]",
        "normal": "return torch.normal(x[:, 0], 0.1)",
        "uniform_": "return x[:, 0] + torch.empty(n, 3).uniform_(-1, 1).amax(-1)",
        "exponential_": "return x[:, 0] + x.new_empty(n).exponential_(2.0)",
        "multinomial": "return x[:, 0] + torch.multinomial(torch.softmax(x, -1), 1).squeeze(-1)",
        "one draw for all": "return x[:, 0] + torch.rand(3).sum() + torch.rand(())",
        "columns first": "return x[:, 0] + torch.rand(2, n)[1]",
        "ties": "return torch.round(x[:, 0] * 4) + torch.sign(torch.round(x[:, 1]))",
        "integer steps": "return (s['progress_buf'] // 3 % 4).float() + s['progress_buf'] / 7",
        "negative modulo": "return torch.remainder(x[:, 0], -0.3) + torch.fmod(x[:, 1], 0.2) + (-7 % 3)",
        "masked": "y = x.clone()\ny[x < 0] = 0.5\ny[:, 1] *= 2\nreturn y.sum(-1)",
        "rare": "return torch.where(x[:, 0] > 0.49, torch.log(x[:, 0].clamp(min=1e-6)), x[:, 1])",
        "nan hidden": "return torch.nan_to_num(torch.log(x[:, 0]), nan=-1.0, neginf=-9.0)",
        "a sort of many": "return torch.cat([x, v, x + v, x - v, x * v, x * 2], -1).median(dim=-1).values",
        "double": "return (x[:, 0].double() ** 3).float() + 1e-9",
    },
    "observation": {
        "lanes": "return torch.stack([torch.arange(n) / n, torch.arange(n) % 4, x[:, 0]], dim=-1)",
        "linspace": "return torch.cat([x, torch.linspace(0.0, 1.0, n).unsqueeze(-1)], dim=-1)",
        "noise": "return torch.cat([x, v], -1) + 0.05 * torch.randn(n, 6)",
        "noise with steps": "return x * (1 + 0.1 * torch.rand_like(x)) + (torch.rand(n, 1) < 0.1) * v",
        "reshaped by four": "return state_dict['contact_forces'].view(n * 4, 3).norm(dim=-1).view(n, 4)",
        "zeros filled": "o = torch.zeros((n, 7))\no[:, :3] = x\no[:, 3:6] = v\no[:, 6] = n\nreturn o",
    },
    "terminal": {
        "first half": "return (torch.arange(n) < n // 2) & (s['progress_buf'] > 2)",
        "by chance": "return torch.rand(n) < 0.2",
    },
    "initial_state": {
        "rand": "return {'dof_pos': 0.2 * (torch.rand(n, 3) - 0.5)}",
        "randn in place": "p = 0 * x\np += 0.1 * torch.randn_like(p)\nreturn {'dof_pos': p, 'dof_vel': p * 0}",
    },
    "goal": {
        "uniform_": "return {'commands': torch.empty(n, 3).uniform_(-1.0, 1.0)}",
        "curriculum": "return {'commands': torch.linspace(0.1, 1.0, n)[:, None] * torch.ones(1, 3)}",
    },
    "torque": {
        "noisy": "return 0.3 * action + 0.05 * torch.randn_like(action) - v",
    },
    "dof_target": {
        "delayed by chance": "return torch.where(torch.rand(n, 1) < 0.3, x, x + 0.2 * action)",
    },
}


def code(kind: str, name: str) -> str:
    """A candidate file with this function alone."""
    names = 's = state_dict\nx, v = s["dof_pos"], s["dof_vel"]\nn = x.shape[0]\n'
    width = "ACTION_DIM = 3\n" if kind in ("torque", "dof_target") else ""
    return f"{width}def {_HEAD[kind]}:\n{indent(names + dedent(_BODIES[kind][name]), '    ')}\n"


TRICKY = {f"{kind}: {name}": code(kind, name) for kind, own in _BODIES.items() for name in own}
