"""H.264 videos in mp4 files, with PyAV."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

QUALITY = 26  # x264's constant rate factor: 18 looks lossless, 28 shows artefacts


class Encoder:
    """Encodes pictures ``(height, width, 3)`` uint8 of one even size to an mp4 file, which ``finish`` completes.

    One thread, so that the same pictures give the same bytes.
    """

    def __init__(self, path: Path, width: int, height: int, fps: int) -> None:
        import av

        self._av: Any = av
        # the index comes first, so that a browser plays it from the beginning
        self._file: Any = av.open(str(path), "w", format="mp4", options={"movflags": "faststart"})
        options = {"crf": str(QUALITY), "preset": "veryfast", "threads": "1"}
        self._stream: Any = self._file.add_stream("libx264", rate=Fraction(fps), options=options)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        self._stream.gop_size = fps  # a key frame each second, for seeking

    def add(self, picture: np.ndarray) -> None:
        """Add a picture."""
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
        self._file.mux(self._stream.encode(frame))

    def finish(self) -> None:
        """Complete the file."""
        self._file.mux(self._stream.encode())
        self._file.close()
