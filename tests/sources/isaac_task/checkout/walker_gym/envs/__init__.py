from walker_gym.envs.walker import (
    Courser,
    Keeper,
    Settler,
    Sharer,
    Stepper,
    Summer,
    Tracker,
    Walker,
    WalkerCfg,
    Weigher,
)
from walker_gym.utils.task_registry import task_registry

task_registry.register("walker", Walker, WalkerCfg())
task_registry.register("settler", Settler, WalkerCfg())
task_registry.register("courser", Courser, WalkerCfg())
task_registry.register("keeper", Keeper, WalkerCfg())
task_registry.register("sharer", Sharer, WalkerCfg())
task_registry.register("stepper", Stepper, WalkerCfg())
task_registry.register("summer", Summer, WalkerCfg())
task_registry.register("tracker", Tracker, WalkerCfg())
task_registry.register("weigher", Weigher, WalkerCfg())
