"""Videos of a recording. Separate processes draw them, so that a fault of OpenGL does not affect the caller."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from envcoder_bench.core.folders import has_package, python_path
from envcoder_bench.video.draw import NO_OPENGL
from envcoder_bench.video.recording import Recording

PACKAGES = {"egl": "libegl1 libgl1-mesa-dri", "osmesa": "libosmesa6"}  # Debian's packages for each backend of OpenGL
BACKENDS = tuple(PACKAGES)
_PROBE = "import mujoco; mujoco.GLContext(16, 16).make_current()"


@dataclass(frozen=True)
class Look:
    """How videos look.

    Attributes:
        width, height: pixels of each policy's picture, even.
        fps: frames per second, in real time.
        seconds: length at most; None for whole episodes.
        limit: seconds of drawing, after which videos end early; None for no limit.
        together: whether one video shows all policies side by side; otherwise each has its own.
        columns: most pictures in a row of a video with all policies.
        fast: whether to draw coarser pictures, in a third of the time.
        seeds: whether a caption names the seed of the training.
        posters: whether each video has a still beside it, a JPEG file.
    """

    width: int = 384
    height: int = 288
    fps: int = 15
    seconds: float | None = 8.0
    limit: float | None = None
    together: bool = False
    columns: int = 4
    fast: bool = False
    seeds: bool = False
    posters: bool = False


class NoVideo(RuntimeError):
    """Frames cannot be rendered or encoded; the message names the remedy."""


def environment(backend: str) -> dict[str, str]:
    """Return the environment variables of a process that renders with a backend of OpenGL."""
    variables = {"MUJOCO_GL": backend, "PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1"}
    return {**os.environ, **variables}


@cache
def missing() -> str:
    """Return why frames cannot be rendered on this machine, with the remedy; empty if they can."""
    if not has_package("av"):
        return "the package av is not installed: pip install 'envcoder-bench[video]'"
    if backend():
        return ""
    if _wanted():
        return (
            f"the library of OpenGL that MUJOCO_GL={_wanted()} names is missing or does not work: apt-get install"
            f" {PACKAGES[_wanted()]}, or unset MUJOCO_GL"
        )
    packages = f"{PACKAGES['egl']} (for EGL), or {PACKAGES['osmesa']} (for OSMesa)"
    return f"OpenGL for pictures without a display is missing: apt-get install {packages}"


def _wanted() -> str:
    """Return the backend that the variable MUJOCO_GL names; empty if it names none of them."""
    wanted = os.environ.get("MUJOCO_GL", "").lower().strip()
    return wanted if wanted in BACKENDS else ""


@cache
def backend() -> str:
    """Return the backend of OpenGL that works here, ``egl`` or ``osmesa``; empty if none does."""
    for name in (_wanted(),) if _wanted() else BACKENDS:
        command = [sys.executable, "-c", _PROBE]
        try:
            done = subprocess.run(command, env=environment(name), capture_output=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return name
    return ""


def render(recording: Recording, model: bytes, outputs: Sequence[Path], look: Look) -> list[float]:
    """Draw and encode a recording.

    Args:
        model: the MjModel of its poses, as ``mj_saveModel`` writes it.
        outputs: the mp4 files: one if ``look.together``, else one for each episode.

    Returns:
        The length of each video in seconds.

    Raises:
        NoVideo: drawing is not possible on this machine, or failed.
    """
    reason = missing()
    if reason:
        raise NoVideo(reason)
    # two processes: drawing on a CPU uses one core each
    every = list(range(len(recording.episodes)))
    shares = [every] if look.together else [every[k::2] for k in range(2) if every[k::2]]
    with tempfile.TemporaryDirectory(prefix="envcoder_bench_video_") as name:
        folder = Path(name)
        (folder / "model.mjb").write_bytes(model)
        recording.save(folder / "recording.npz")
        running = []
        for k, episodes in enumerate(shares):
            files = [folder / f"{k}_{i}.mp4" for i in range(1 if look.together else len(episodes))]
            job: dict[str, Any] = {
                "model": str(folder / "model.mjb"), "recording": str(folder / "recording.npz"), "episodes": episodes,
                "size": [look.width, look.height], "fps": look.fps, "seconds": look.seconds, "limit": look.limit,
                "together": look.together, "columns": look.columns, "fast": look.fast,
                "seeds": look.seeds, "posters": look.posters,
                "outputs": [str(file) for file in files],
            }  # fmt: skip
            (folder / f"job{k}.json").write_text(json.dumps(job), encoding="utf-8")
            command = [sys.executable, "-m", "envcoder_bench.video.draw", str(folder / f"job{k}.json")]
            process = subprocess.Popen(
                command, env=environment(backend()), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            running.append((process, episodes, files))
        # wait for all; if one fails, end the others
        try:
            seconds = [_wait(process) for process, _, _ in running]
        finally:
            for process, _, _ in running:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        # only complete files get their name
        lengths = [0.0] * len(outputs)
        for drawn, (_, episodes, files) in zip(seconds, running):
            for k, file in zip([0] if look.together else episodes, files):
                lengths[k] = drawn
                outputs[k].parent.mkdir(parents=True, exist_ok=True)
                _move(file, outputs[k])
                if look.posters:
                    _move(poster(file), poster(outputs[k]))
    return lengths


def poster(video: Path) -> Path:
    """Return the file of a video's still."""
    return video.with_suffix(".jpg")


def _wait(process: subprocess.Popen[str]) -> float:
    out, err = process.communicate()
    if process.returncode:
        last = err.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        cause = "OpenGL does not work" if process.returncode == NO_OPENGL else "drawing failed"
        raise NoVideo(f"{cause}: {last[0]}")
    return float(json.loads(out.strip().splitlines()[-1])["seconds"])


def _move(source: Path, target: Path) -> None:
    from envcoder_bench.core.files import write_atomic

    write_atomic(target, source.read_bytes())
