from isaacgym import gymapi, gymutil


def class_to_dict(node):
    if not hasattr(node, "__dict__"):
        return node
    return {key: class_to_dict(getattr(node, key)) for key in dir(node) if not key.startswith("_")}


def parse_sim_params(arguments, config):
    params = gymapi.SimParams()
    params.use_gpu_pipeline = arguments.use_gpu_pipeline
    gymutil.parse_sim_config(config["sim"], params)
    return params
