"""Campaigns whose jobs are not trained: runs with made-up fitness take the place of processes."""

from envcoder_bench.results.ranking import rank, summary, write_summary
from envcoder_bench.results.rows import Result, write_results
from envcoder_bench.run.folder.run_folder import CandidateSource, RunFolder
from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.serve import jobs
from envcoder_bench.serve.campaign import Campaign, State
from envcoder_bench.serve.tools import Tools

SOURCE = "def compute_reward(pole_angle):\n    return torch.cos(pole_angle) + torch.{}(pole_angle)\n"


def source(name):
    """A candidate's text, which differs from that of any other name."""
    return SOURCE.format(name)


def made_run(campaign, job, fitness):
    """Write the run folder of a job, with the fitness of each seed by candidate."""
    cfg = resolve("Cartpole", ["sim=mujoco_cpu", "device=cpu", f"seeds={job.seeds}", f"seed={job.seed}"]).config
    names = dict.fromkeys(["human", *(path.stem for path in campaign.files(job))])
    sources = [CandidateSource(name, f"{name}.py", source(name)) for name in names]
    folder = RunFolder.create(campaign.run(job), RunSpec.of(cfg, sources))
    rows = [
        Result(name, job.seed + k, "ok", x, x - 0.1, x + 0.1, episodes=8, env_steps=100)
        for name in names
        for k, x in enumerate(fitness(name, job.seeds))
    ]
    write_results(folder.results, rows)
    write_summary(folder.summary, summary(rank(rows), {"task": "Cartpole"}, {}))


def fake_jobs(patch, fitness):
    """Let jobs be made-up runs."""

    def wait(self, job):
        if not self._is_alive(job):
            self._begin(job)
            made_run(self._campaign, job, fitness)
        return 0

    patch.setattr(jobs.Runner, "_wait", wait)


def tools_in(folder, **settings):
    """Tools over a campaign in a folder, whose files are in the same folder."""
    folder.mkdir(exist_ok=True)
    tools = Tools(Campaign(folder / "campaign", State(**{"task": "Cartpole", **settings})), folder)
    tools._physics["Cartpole"] = None  # how fast this machine is decides nothing
    return tools
