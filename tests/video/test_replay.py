"""Policies of a run folder are replayed, drawn and shown on the run's page."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import refused
from markupsafe import escape

import envcoder_bench
from envcoder_bench.__main__ import main
from envcoder_bench.cli.eval_shapers import main as eval_shapers
from envcoder_bench.report.page.shell import PAGE
from envcoder_bench.run.folder.policies import open_run
from envcoder_bench.video import page as page_of_run
from envcoder_bench.video import render, viewer
from envcoder_bench.video.page import player, write_page
from envcoder_bench.video.record import model_bytes, record
from envcoder_bench.video.render import Look, NoVideo
from envcoder_bench.video.render import render as draw

pytestmark = pytest.mark.slow

CALM = """
def compute_reward(pole_angle, cart_vel):
    calm = -0.01 * torch.abs(cart_vel)
    return torch.cos(pole_angle) + calm, {"calm": calm, "<b>": calm}
"""
SPIKY = """
import torch
def compute_observation(state_dict):
    return torch.stack([state_dict["pole_angle"], state_dict["cart_vel"], torch.rand(len(state_dict["cart_vel"]))], 1)
"""
# one episode in the evaluation, so that its fitness is that of the recording
TINY = {
    "evaluation.num_envs": 1, "evaluation.final_episodes": 1, "evaluation.points": 1, "num_envs_per_candidate": 16,
    "learning_iterations": 3, "device": "cpu", "task.env.episodeLength": 120,
}  # fmt: skip
NEEDS_OPENGL = pytest.mark.skipif("render.missing()", reason="no OpenGL: see render.missing()")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    done = envcoder_bench.evaluate("Cartpole", {"calm": CALM, "spiky": SPIKY}, overrides=TINY, output_dir=path)
    assert done.succeeded
    return path


def recorded(folder, names=("calm", "spiky", "human", "unshaped"), **more):
    run = open_run(folder)
    return run, record(run.spec, [player(run, name) for name in names], **more)


@pytest.fixture(scope="module")
def recording(folder):
    return recorded(folder)[1]


def test_replay_has_the_fitness_of_the_evaluation(folder, recording):
    """The fitness equals results.csv, although the candidate's reward is computed and other candidates play."""
    known = {row.candidate: (row.fitness, row.episode_length) for row in open_run(folder).rows}
    for episode in recording.episodes:
        assert recording.episode_fitness(episode) == pytest.approx(known[episode.name][0], abs=1e-5)
        assert np.count_nonzero(episode.fitness) <= episode.steps - bool(episode.ended)
        if episode.ended:
            assert episode.steps == known[episode.name][1] + 1
    assert recording.same_start and recording.failed == {}
    assert list(recording.episodes[0].components) == ["calm", "<b>"] and recording.episodes[2].components == {}


def test_recorded_rewards_are_those_of_the_candidate(recording):
    calm = recording.episodes[0]
    np.testing.assert_array_equal(calm.components["calm"], calm.components["<b>"])
    # qpos after the step: cart, pole
    expected = np.cos(calm.qpos[1:, 1]) + calm.components["calm"]
    np.testing.assert_allclose(calm.reward, expected, atol=1e-5)


def test_other_seed_gives_another_episode(folder, recording):
    _, other = recorded(folder, ("calm",), seed=5, steps=4)
    assert other.episodes[0].steps <= 4
    assert not np.array_equal(other.episodes[0].qpos[0], recording.episodes[0].qpos[0])


def test_candidate_that_cannot_be_reloaded_is_omitted(folder, tmp_path):
    run = open_run(folder)
    sources = [own._replace(source="raise OSError") if own.name == "calm" else own for own in run.sources.values()]
    made = record(replace(run.spec, sources=tuple(sources)), [player(run, "calm"), player(run, "human")], steps=2)
    assert [own.name for own in made.episodes] == ["human"] and "OSError" in made.failed["calm"]


def frames_of(file):
    import av

    with av.open(str(file)) as video:
        assert video.streams.video[0].codec_context.name == "h264"
        return [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]


@NEEDS_OPENGL
def test_video_of_all_policies_has_expected_size_and_frames(folder, recording, tmp_path):
    three = replace(recording, episodes=recording.episodes[:3])
    look = Look(96, 64, fps=5, seconds=0.4, together=True, columns=2)
    files = [tmp_path / "all.mp4"]
    assert draw(three, model_bytes(open_run(folder).spec, three), files, look) == pytest.approx([0.6])
    frames = frames_of(files[0])
    assert len(frames) == 3 and frames[0].shape == (128, 192, 3)
    assert frames[0][20:44, :96].std() > 5, "something is there"
    assert frames[0][66:, 98:].std() < 5, "nothing in the fourth place"
    assert not np.array_equal(frames[0], frames[-1])


@NEEDS_OPENGL
def test_page_has_videos_of_the_best_and_the_baselines(folder, monkeypatch):
    monkeypatch.setattr(page_of_run, "CLIP", Look(96, 64, fps=5, seconds=0.4, fast=True, posters=True))
    assert write_page(folder, 1) == folder / PAGE
    page = (folder / PAGE).read_text(encoding="utf-8")
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    shown = [own["name"] for own in data["videos"]["episodes"]]
    assert len(shown) == 3 and {"human", "unshaped"} < set(shown)
    assert all(len(own["mp4"]) > 1000 and own["length_s"] == pytest.approx(0.6) for own in data["videos"]["episodes"])
    assert all(base64.b64decode(own["poster"])[:2] == b"\xff\xd8" for own in data["videos"]["episodes"])  # JPEG
    files = {path.stem: frames_of(path) for path in (folder / "videos").glob("*.mp4")}
    assert set(files) == set(shown)
    assert all(len(frames) == 3 and frames[0].shape == (64, 96, 3) for frames in files.values())
    assert len(page) < 2e6


def test_renderer_crash_raises_no_video(folder, recording, tmp_path, monkeypatch):
    monkeypatch.setattr(render, "missing", lambda: "")
    monkeypatch.setattr(render, "backend", lambda: "no_such_backend")
    with pytest.raises(NoVideo, match="OpenGL does not work"):
        one = replace(recording, episodes=recording.episodes[:1])
        draw(one, model_bytes(open_run(folder).spec, one), [tmp_path / "0.mp4"], Look(64, 64))
    assert list(tmp_path.iterdir()) == []


def test_page_without_opengl_has_the_reason(folder, monkeypatch, capsys):
    monkeypatch.setattr(render, "backend", lambda: "")
    render.missing.cache_clear()
    try:
        page = write_page(folder).read_text(encoding="utf-8")
        assert main(["play", str(folder)]) == 2
    finally:
        render.missing.cache_clear()
    assert "No videos: " in page and "apt-get install libegl1" in page and "<video" not in page
    assert "apt-get install libegl1" in capsys.readouterr().err


def test_play_writes_a_video(folder, tmp_path, capsys, monkeypatch):
    drawn = []
    monkeypatch.setattr(render, "missing", lambda: "")
    monkeypatch.setattr(render, "render", lambda *given: drawn.append(given))
    words = ["play", str(folder), "--candidate", "calm", "human", "--seconds", "0.2", "--size", "64x65"]
    assert main([*words, "--video", str(tmp_path / "out.mp4")]) == 0
    assert "calm (seed 0): fitness " in capsys.readouterr().out
    ((made, model, files, look),) = drawn
    assert [episode.name for episode in made.episodes] == ["calm", "human"] and model
    assert files == [tmp_path / "out.mp4"] and look.together and (look.width, look.height) == (64, 64)


@pytest.mark.parametrize(
    "words, message",
    [
        ("{run} --candidate clam", "no candidate 'clam' (did you mean calm?)"),
        ("{run}/candidates", "it is not the folder of a run"),
        ("{run} --video out.avi", "--video out.avi: the file must end with .mp4"),
        ("{run} --video nowhere/out.mp4", "the folder nowhere does not exist"),
        ("{run} --size 5", "--size 5: give WIDTHxHEIGHT"),
        ("{run} --seconds 0", "--seconds 0: it must be greater than 0"),
        ("{run} --view", "--view needs a display"),
        ("{run} --sim mujoco_warp --device cuda:99", "device cuda:99 was asked for"),
        ("{run} --device tpu", "unknown device 'tpu'"),
        ("{run} --view --video out.mp4", "--view and --video: give one of them"),
    ],
)
def test_bad_input_of_play_is_refused(folder, words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(viewer, "missing", lambda: "--view needs a display")
    monkeypatch.setattr(render, "missing", lambda: "")
    before = sorted(folder.rglob("*"))
    assert message in refused(main, ["play", *words.format(run=folder).split()], capsys)
    assert list(tmp_path.iterdir()) == [] and sorted(folder.rglob("*")) == before


def test_replay_in_mujoco_warp_matches_the_cpu(folder, recording):
    """On Warp's CPU device; the first steps match MuJoCo on the CPU up to single precision."""
    _, warped = recorded(folder, steps=5, where=("mujoco_warp", "cpu"))
    assert [own.name for own in warped.episodes] == [own.name for own in recording.episodes]
    for own, reference in zip(warped.episodes, recording.episodes):
        assert own.qpos.shape[0] > 1
        np.testing.assert_allclose(own.qpos, reference.qpos[: len(own.qpos)], atol=1e-3)
        np.testing.assert_allclose(own.fitness, reference.fitness[: len(own.fitness)], atol=1e-3)


def test_eval_shapers_writes_the_page_and_resume_keeps_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ENVCODER_BENCH_VIDEO", "0")
    (tmp_path / "calm.py").write_text("import torch\n" + CALM)
    words = [f"{key}={value}" for key, value in TINY.items()]
    path = tmp_path / "run"
    assert eval_shapers(["--task", "Cartpole", "--candidates", str(tmp_path / "calm.py"), "--no_baselines",
                         "--output_dir", str(path), *words]) == 0  # fmt: skip
    assert "report.html" in capsys.readouterr().out
    page = (path / PAGE).read_text(encoding="utf-8")
    assert "No videos were asked for" in page and "learning_iterations=3" in page
    (path / PAGE).write_text("mine")
    assert eval_shapers(["--resume", str(path)]) == 0
    assert (path / PAGE).read_text() == "mine"
    assert main(["report", str(path), "--video", "0"]) == 0
    again = (path / PAGE).read_text(encoding="utf-8")  # no code of the run was executed
    judged = "no trajectories of the baselines and the untrained policy are kept"
    assert again.replace(str(escape(page_of_run.NOT_EXECUTED)), judged) == page and judged not in again
    assert eval_shapers(["--resume", str(path), "--video", "-1"]) == 2
