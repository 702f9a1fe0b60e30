"""Text in pictures: the policy's name, the time and the fitness."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

INK, SHADE = (255, 255, 255), (20, 24, 31)


@cache
def _font(size: int, bold: bool) -> Any:
    import matplotlib
    from PIL import ImageFont

    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(str(fonts / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")), size)


def _fitted(text: str, width: float, font: Any) -> str:
    """Shorten a text to a width in pixels."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


def captioned(picture: np.ndarray, name: str, facts: str, note: str = "") -> np.ndarray:
    """Return the picture with the name at the top left, ``facts`` at the bottom left, and ``note`` in its middle."""
    from PIL import Image, ImageDraw

    height, width = picture.shape[:2]
    size = max(10, round(height / 18))
    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image, "RGBA")
    gap, line = size // 2, round(1.7 * size)
    bold, plain = _font(size, True), _font(size, False)
    for text, font, top in ((name, bold, 0), (facts, plain, height - line)):
        shown = _fitted(text, width - 2 * gap, font)
        draw.rectangle((0, top, font.getlength(shown) + 2 * gap, top + line), fill=(*SHADE, 165))
        draw.text((gap, top + line / 2), shown, fill=INK, font=font, anchor="lm")
    if note:
        shown = _fitted(note, width - 2 * gap, plain)
        half = plain.getlength(shown) / 2 + gap
        middle = width / 2, 0.3 * height
        box = (middle[0] - half, middle[1] - line / 2, middle[0] + half, middle[1] + line / 2)
        draw.rectangle(box, fill=(*SHADE, 165))
        draw.text(middle, shown, fill=INK, font=plain, anchor="mm")
    return np.asarray(image)
