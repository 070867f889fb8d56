"""Drawings as SVG. Colors follow the page around it, and are light by themselves."""

from html import escape
from typing import Final, assert_never

from webhook.cli.simulate.marks import LIGHT, TEXT, TEXT_SIZE, WIDTH, Bar, Drawing, Mark, Polyline, Text

_STYLE: Final = f"text{{font-family:system-ui,sans-serif;font-size:{TEXT_SIZE}px;fill:var(--{TEXT},{LIGHT[TEXT]})}}"


def to_svg(drawing: Drawing) -> str:
    """Return a drawing as an SVG document."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {drawing.height}" role="img"'
    marks = "".join(map(_mark, drawing.marks))
    return f'{head} aria-label="{escape(drawing.title)}"><style>{_STYLE}</style>{marks}</svg>'


def _mark(mark: Mark) -> str:
    match mark:
        case Polyline(points=points, color=color, width=width, dash=dash):
            places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            dashes = f' stroke-dasharray="{" ".join(map(str, dash))}"' if dash else ""
            return (
                f'<polyline points="{places}" fill="none" stroke="{_color(color)}" stroke-width="{width:g}"{dashes}/>'
            )
        case Bar(x=x, y=y, width=width, height=height, color=color):
            size = f'width="{width:.1f}" height="{height:.1f}"'
            return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{_color(color)}"/>'
        case Text(x=x, y=y, text=text, anchor=anchor, is_bold=is_bold):
            weight = "bold" if is_bold else "normal"
            place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
            return f"<text {place}>{escape(text)}</text>"
        case _ as never:
            assert_never(never)


def _color(use: str) -> str:
    return f"var(--{use},{LIGHT[use]})"
