"""Replay of a run's policies: recorded states, rendered frames, videos and the viewer."""

import os

VIDEO_VARIABLE = "ENVCODER_BENCH_VIDEO"  # environment variable: the default number of candidates with a video


def default_videos() -> int | None:
    """Return the number of candidates with a video that the environment asks for; None if it does not."""
    wanted = os.environ.get(VIDEO_VARIABLE, "")
    return int(wanted) if wanted.isdigit() else None
