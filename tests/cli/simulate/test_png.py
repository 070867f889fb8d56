"""Plots as PNG: the marks of the drawing in its colors, text that can be read, a message where Pillow is missing."""

import sys
from io import BytesIO
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageColor, ImageFont

from webhook.cli.simulate import png
from webhook.cli.simulate.marks import GRID, LIGHT, WIDTH, Bar, Drawing, Line, Text, series_color
from webhook.cli.simulate.png import PngUnavailableError, require_png, strokes, to_png

PART = st.floats(0, 500).map(lambda each: round(each, 2))


def drawn(*marks, height=100):
    picture = Image.open(BytesIO(to_png(Drawing("a", height, marks))))
    picture.load()
    return picture


def ink(picture, box):
    """The part of a box that is not white."""
    pixels = picture.crop(box).convert("L").tobytes()
    return sum(255 - each for each in pixels) / 255 / len(pixels)


def test_a_picture_has_twice_the_pixels_of_its_drawing_for_dense_screens():
    picture = drawn(height=70)
    assert (picture.format, picture.size) == ("PNG", (WIDTH * 2, 140))
    assert ink(picture, (0, 0, *picture.size)) == 0


def test_lines_and_bars_are_where_the_drawing_has_them_in_its_colors():
    picture = drawn(Bar(10, 20, 30, 40, series_color(1)), Line(((100, 50), (200, 50)), GRID, 4))
    assert picture.getpixel((50, 80)) == ImageColor.getrgb(LIGHT[series_color(1)])
    assert picture.getpixel((300, 100)) == ImageColor.getrgb(LIGHT[GRID])
    assert {picture.getpixel(place) for place in ((18, 80), (82, 80), (50, 38), (50, 122), (300, 88))} == {(255,) * 3}


@pytest.mark.parametrize("fonts", [png._FONTS, ()], ids=["a font of the machine", "Pillow's own font"])
@pytest.mark.parametrize("anchor", ["start", "middle", "end"])
def test_text_is_written_at_its_anchor(monkeypatch, fonts, anchor):
    monkeypatch.setattr(png, "_FONTS", fonts)
    png._font.cache_clear()
    picture = drawn(Text(200, 50, "GPUs in use, 24 h", anchor))
    png._font.cache_clear()
    left, right = ink(picture, (160, 70, 396, 106)), ink(picture, (404, 70, 640, 106))
    assert {"start": left == 0 < right, "middle": left > 0 < right, "end": right == 0 < left}[anchor]
    assert max(left, right) > 0.02  # strokes of letters, not a few dots


def test_the_font_of_pillow_has_the_letters_of_our_own_texts():
    font = ImageFont.load_default(24)
    missing = bytes(font.getmask("\N{SNOWMAN}"))
    for letter in "ABCXYZabcxyz0123456789.,%-±":
        assert bytes(font.getmask(letter)) not in (missing, b""), letter


@given(st.lists(st.tuples(PART, PART), min_size=2, max_size=8), st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_a_dashed_line_has_strokes_and_gaps_of_its_lengths(points, dash):
    whole = length(points)
    found = list(strokes(points, dash))
    assert sum(map(length, found)) <= whole + 1e-6
    both = dash * 2 if len(dash) % 2 else dash
    for number, stroke in enumerate(found[:-1]):
        assert length(stroke) == pytest.approx(both[number * 2 % len(both)], abs=1e-4)
    assert list(strokes(points, ())) == [points]


def length(points):
    return sum(abs(complex(*end) - complex(*start)) for start, end in pairwise(points))


def test_without_pillow_a_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(PngUnavailableError, match=r"pip install 'fairgate\[png\]'; --csv writes plots as SVG"):
        require_png()
