"""A plot with two logarithmic axes, as SVG text.

Written by hand: a plotting library would be by far the largest of all requirements,
for one picture.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 310, 240
_LEFT, _TOP, _RIGHT, _BOTTOM = 48, 28, 10, 60
_COLOURS = ("#1f5fa8", "#c2410c")
_STYLE = (
    "text{font:11px sans-serif;fill:#333}.t{font-weight:bold}"
    ".g{stroke:#ddd}.l{fill:none;stroke-width:2}"
)


@dataclasses.dataclass(frozen=True)
class Line:
    """One line: its name, points (x, y) above zero; open points are lower bounds."""

    name: str
    points: Sequence[tuple[float, float]]
    bounds: Sequence[tuple[float, float]] = ()


@dataclasses.dataclass(frozen=True)
class Panel:
    """One pair of axes: a title and its lines."""

    title: str
    lines: Sequence[Line]


def svg(panels: Sequence[Panel], x_title: str, y_title: str) -> str:
    """Return a picture of panels side by side, all with the same axes."""
    points = [
        point
        for panel in panels
        for line in panel.lines
        for point in (*line.points, *line.bounds)
    ]
    names = list(dict.fromkeys(line.name for p in panels for line in p.lines))
    colours = dict(zip(names, _COLOURS, strict=False))
    axes = _Axes([x for x, _y in points], [y for _x, y in points], colours)
    body = "".join(
        f'<g transform="translate({k * _WIDTH},0)">{axes.panel(panel)}</g>'
        for k, panel in enumerate(panels)
    )
    width = _WIDTH * len(panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_HEIGHT}"'
        f' viewBox="0 0 {width} {_HEIGHT}"><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{body}'
        f'<text x="{width / 2}" y="{_HEIGHT - 26}" text-anchor="middle">'
        f"{escape(x_title)}</text>"
        f'<text transform="translate(11,{_HEIGHT / 2 - 10}) rotate(-90)"'
        f' text-anchor="middle">{escape(y_title)}</text>{_legend(colours, width)}</svg>\n'
    )


def _legend(colours: Mapping[str, str], width: float) -> str:
    out = []
    for k, (name, colour) in enumerate(colours.items()):
        x = width / 2 + (k - len(colours) / 2) * 190
        out.append(
            f'<rect x="{x:.0f}" y="{_HEIGHT - 15}" width="14" height="4"'
            f' fill="{colour}"/><text x="{x + 20:.0f}" y="{_HEIGHT - 9}">'
            f"{escape(name)}</text>"
        )
    return "".join(out)


class _Axes:
    """Where values are in a panel."""

    def __init__(
        self, xs: list[float], ys: list[float], colours: Mapping[str, str]
    ) -> None:
        self.colours = colours
        self.xs = sorted(set(xs))
        self.x_range = (math.log10(min(xs)) - 0.1, math.log10(max(xs)) + 0.1)
        self.y_range = (math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys))))

    def x(self, value: float) -> float:
        low, high = self.x_range
        part = (math.log10(value) - low) / (high - low)
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        part = (math.log10(value) - low) / max(1, high - low)
        return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)

    def panel(self, panel: Panel) -> str:
        """Return the grid, the title and the lines of a panel."""
        lines = [self._line(line) for line in panel.lines]
        return (
            f'<text class="t" x="{_LEFT}" y="16">{escape(panel.title)}</text>'
            f"{self._grid()}{''.join(lines)}"
        )

    def _grid(self) -> str:
        out = []
        for power in range(int(self.y_range[0]), int(self.y_range[1]) + 1):
            y = self.y(10.0**power)
            out.append(
                f'<line class="g" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}"'
                f' y2="{y:.1f}"/><text x="{_LEFT - 4}" y="{y + 4:.1f}"'
                f' text-anchor="end">{10.0**power:g}</text>'
            )
        for value in self.xs:
            x = self.x(value)
            out.append(
                f'<line class="g" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" x1="{x:.1f}"'
                f' x2="{x:.1f}"/><text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 14}"'
                f' text-anchor="middle">{value:g}</text>'
            )
        return "".join(out)

    def _line(self, line: Line) -> str:
        colour = self.colours[line.name]
        places = [(self.x(x), self.y(y)) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dots = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
            for x, y in places
        )
        arrows = "".join(
            f'<path d="M{self.x(x):.1f} {self.y(y) - 12:.1f}l-4 7h8z'
            f'm0 7v6" fill="#fff" stroke="{colour}"/>'
            for x, y in line.bounds
        )
        return f'<polyline class="l" stroke="{colour}" points="{path}"/>{dots}{arrows}'
