from walker_gym.envs.walker import Walker, WalkerCfg
from walker_gym.utils.task_registry import task_registry

task_registry.register("walker", Walker, WalkerCfg())
