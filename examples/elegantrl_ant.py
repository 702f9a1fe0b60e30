"""Train ElegantRL's AgentPPO on Ant with its human shaping, with the settings of ElegantRL's own Isaac Gym example.

    pip install --no-deps elegantrl==0.3.6
    python examples/elegantrl_ant.py --gpu_id 0

The settings are those of demo_IsaacGym.py in AI4Finance-Foundation/ElegantRL, whose target is a return of 6,000.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from elegantrl.agents import AgentPPO
from elegantrl.train.config import Config
from elegantrl.train.run import train_agent

from envcoder_bench.adapters.elegantrl import IsaacVecEnv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu_id", type=int, default=-1, help="number of the GPU; -1 for the CPU (default)")
    parser.add_argument("--num_envs", type=int, default=2048)
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cwd", default="runs/elegantrl_ant", help="folder for its files (default: %(default)s)")
    args = parser.parse_args()

    env_args = IsaacVecEnv("Ant", num_envs=args.num_envs, gpu_id=args.gpu_id, seed=args.seed).env_args
    config = Config(AgentPPO, IsaacVecEnv, env_args)
    config.eval_env_class, config.eval_env_args = IsaacVecEnv, {**env_args, "num_envs": 64}
    config.gpu_id, config.random_seed, config.cwd, config.if_remove = args.gpu_id, args.seed, args.cwd, True
    config.horizon_len, config.batch_size = 32, min(16384, 32 * args.num_envs)
    config.repeat_times = 5.0 * args.num_envs  # version 0.3.6 counts samples of one environment: 5 passes over all
    config.gamma, config.lambda_gae_adv, config.learning_rate = 0.99, 0.95, 5e-4
    config.reward_scale, config.net_dims = 2**-4, (256, 128, 64)
    config.eval_per_step, config.eval_times = 32 * max(1, args.iterations // 20), 64
    config.break_step = 32 * args.iterations
    began = time.monotonic()
    train_agent(config)
    rows = np.load(f"{args.cwd}/recorder.npy")
    print("env-steps (millions)  return  standard deviation")
    for row in rows:
        print(f"{row[0] * args.num_envs / 1e6:20.1f}  {row[1]:6.0f}  {row[2]:6.0f}")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
