"""A base class in the style of IsaacGymEnvs' VecTask, as small as tasks need it."""

import torch
from isaacgym import gymapi

EXISTING_SIM = None


def create_sim_once(gym, *args):
    """One simulation per process, as in IsaacGymEnvs."""
    global EXISTING_SIM
    if EXISTING_SIM is None:
        EXISTING_SIM = gym.create_sim(*args)
    return EXISTING_SIM


class VecTask:
    def __init__(self, config, rl_device, sim_device, graphics_device_id, headless):
        self.cfg, self.device, self.rl_device = config, sim_device, rl_device
        self.num_environments = config["env"]["numEnvs"]
        self.num_obs, self.num_actions = config["env"]["numObservations"], config["env"]["numActions"]
        self.control_freq_inv = config["env"].get("controlFrequencyInv", 1)
        self.clip_obs, self.clip_actions = config["env"]["clipObservations"], config["env"]["clipActions"]
        self.max_episode_length = config["env"]["episodeLength"]
        self.sim_params = gymapi.SimParams()
        self.sim_params.dt, self.sim_params.substeps = config["sim"]["dt"], config["sim"]["substeps"]
        self.sim_params.up_axis = gymapi.UP_AXIS_Z
        self.sim_params.gravity = gymapi.Vec3(*config["sim"]["gravity"])
        self.gym = gymapi.acquire_gym()
        self.create_sim()
        self.gym.prepare_sim(self.sim)
        n = self.num_envs
        self.obs_buf = torch.zeros(n, self.num_obs, device=self.device)
        self.rew_buf = torch.zeros(n, device=self.device)
        self.reset_buf = torch.ones(n, dtype=torch.long, device=self.device)
        self.progress_buf = torch.zeros(n, dtype=torch.long, device=self.device)
        self.extras = {}

    @property
    def num_envs(self):
        return self.num_environments

    def apply_randomizations(self, dr_params):
        raise AssertionError("the adapter replaces this method")

    def create_sim(self):
        self.sim = create_sim_once(self.gym, 0, -1, gymapi.SIM_PHYSX, self.sim_params)
        self.gym.add_ground(self.sim, gymapi.PlaneParams())
        self._create_envs()
