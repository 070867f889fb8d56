"""Drawings as PNG, by Pillow, which is an extra: `pip install 'fairgate[png]'`. In light colors, without a browser.

Text is in a font of the machine where there is one, for names in any script, else in the one that Pillow has itself.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from io import BytesIO
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Final, assert_never

from webhook.cli.simulate.marks import LIGHT, TEXT, TEXT_SIZE, WIDTH, Bar, Drawing, Line, Point, Text

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

_SCALE: Final = 2
"""Pixels of the picture for one of the drawing: sharp on dense screens and in documents."""

_FINER: Final = 2
"""Lines are drawn so much larger, and made smaller with smooth edges: Pillow's own have steps."""

_ANCHORS: Final = {"start": "ls", "middle": "ms", "end": "rs"}
_BOLD: Final = 0.5
_FONTS: Final = ("DejaVuSans.ttf", "LiberationSans-Regular.ttf", "NotoSans-Regular.ttf", "Arial.ttf", "Helvetica.ttc")


class PngUnavailableError(Exception):
    """PNG cannot be written here; has the reason and what to do."""


def require_png() -> None:
    """Raise PngUnavailableError where Pillow is missing."""
    try:
        import PIL  # noqa: F401, PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise PngUnavailableError(
            "--png needs Pillow: pip install 'fairgate[png]'; --csv writes plots as SVG"
        ) from error


def to_png(drawing: Drawing) -> bytes:
    """Return a drawing as a PNG file. Raises PngUnavailableError."""
    require_png()
    from PIL import Image, ImageDraw  # noqa: PLC0415 - an extra, and slow to import

    size = WIDTH * _SCALE, drawing.height * _SCALE
    finer = Image.new("RGB", (size[0] * _FINER, size[1] * _FINER), "white")
    for mark in drawing.marks:
        if not isinstance(mark, Text):
            _draw(ImageDraw.Draw(finer), mark)
    picture = finer.resize(size, Image.Resampling.BOX)
    for mark in drawing.marks:
        if isinstance(mark, Text):
            _write(ImageDraw.Draw(picture), mark)
    file = BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


def _draw(draw: "ImageDraw", mark: Line | Bar) -> None:
    scale = _SCALE * _FINER
    match mark:
        case Line(points=points, color=color, width=width, dash=dash):
            for stroke in strokes(points, dash):
                places = [(x * scale, y * scale) for x, y in stroke]
                draw.line(places, fill=LIGHT[color], width=round(width * scale), joint="curve")
        case Bar(x=x, y=y, width=width, height=height, color=color):
            corner = (x + width) * scale - 1, (y + height) * scale - 1
            draw.rectangle(
                (x * scale, y * scale, max(x * scale, corner[0]), max(y * scale, corner[1])), fill=LIGHT[color]
            )
        case _ as never:
            assert_never(never)


def _write(draw: "ImageDraw", mark: Text) -> None:
    place = mark.x * _SCALE, mark.y * _SCALE
    weight = _BOLD if mark.is_bold else 0
    draw.text(place, mark.text, font=_font(), fill=LIGHT[TEXT], anchor=_ANCHORS[mark.anchor], stroke_width=weight)


@cache
def _font() -> "FreeTypeFont | ImageFont":
    from PIL import ImageFont  # noqa: PLC0415 - an extra, and slow to import

    for name in _FONTS:
        try:
            return ImageFont.truetype(name, TEXT_SIZE * _SCALE)
        except OSError:
            continue
    return ImageFont.load_default(TEXT_SIZE * _SCALE)


def strokes(points: Sequence[Point], dash: Sequence[int]) -> Iterator[list[Point]]:
    """Yield the strokes of a dashed line through points; the line itself where it is solid."""
    if not dash or len(points) < 2:  # noqa: PLR2004 - a line has two ends
        yield list(points)
        return
    lengths = cycle((*dash, *dash) if len(dash) % 2 else dash)
    left, is_drawn = float(next(lengths)), True
    stroke = [points[0]]
    for start, end in pairwise(points):
        at, length = 0.0, math.dist(start, end)
        while length - at > left:
            at += left
            part = at / length
            place = start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part
            if is_drawn:
                yield [*stroke, place]
            stroke = [place]
            left, is_drawn = float(next(lengths)), not is_drawn
        left -= length - at
        stroke.append(end)
    if is_drawn:
        yield stroke
