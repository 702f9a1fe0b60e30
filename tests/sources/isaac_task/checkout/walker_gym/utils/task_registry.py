"""A registry without settings of a training, as some forks have it."""


class TaskRegistry:
    def __init__(self):
        self.task_classes, self.env_cfgs = {}, {}

    def register(self, name, task_class, config):
        self.task_classes[name], self.env_cfgs[name] = task_class, config


task_registry = TaskRegistry()
