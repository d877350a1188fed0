"""Charts as standalone SVG text, made from numbers. Pure: needs no other package and writes no file.

Colours are attributes, so that a chart is whole by itself, in any viewer, on a light ground. A page that
holds charts gives them other colours through their classes; `DARK_STYLE` does that for dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

#: Width of a chart unless told otherwise, in pixels; what holds it may show it in any size.
WIDTH_PX = 720
#: For series and parts, in this order; told apart also by people who see few colours.
COLOURS = ("#2563c9", "#d4571b", "#0b8a67", "#a3348f", "#b58600", "#6b51c7", "#0b86a8", "#6b7280")
_DARK_COLOURS = ("#6ea8ff", "#ff9966", "#3fcfa4", "#e58ad4", "#e3b93c", "#a896ff", "#4cc9e8", "#a3abb8")
_GROUND, _INK, _FAINT, _GRID = "#ffffff", "#1f2328", "#5c6570", "#e1e4e8"
#: Lines beyond the colours are dashed, so that no two look the same.
_DASHES = ("", "7 4", "2 3", "9 3 2 3")
#: A line of more points is drawn without dots.
_DOTTED_POINTS = 40

_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_SIZE_PX = 13
_TITLE_PX = 16
_LINE_PX = 20
_PAD_PX = 16
_PLOT_PX = 240
_BAR_PX = 18
_ROW_PX = 26
#: However little something is, it can be seen.
_LEAST_PX = 1.0
#: Widths are guessed, since no font is at hand: an average character takes so much of its size.
_CHAR = 0.56

#: Style rules for pages that follow the reader's choice of light or dark.
DARK_STYLE = (
    "@media (prefers-color-scheme: dark) {"
    ".chart-ground{fill:#161b22}.chart-ink{fill:#e6edf3}.chart-faint{fill:#9aa4b0}"
    ".chart-grid{stroke:#30363d}"
    + "".join(
        f".chart-fill.chart-c{number}{{fill:{colour}}}.chart-line.chart-c{number}{{stroke:{colour}}}"
        for number, colour in enumerate(_DARK_COLOURS)
    )
    + "}"
)


def line_chart(
    title: str,
    x: str,
    y: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    log_x: bool = False,
    log_y: bool = False,
    width_px: int = WIDTH_PX,
) -> str:
    """Return one line for each of *series*, drawn in the order of its points; *x* and *y* name the axes.

    Points that have no place are left out: what is not finite, and on a logarithmic axis what is not above 0.
    """
    lines = {
        name: [
            (float(at), float(value))
            for at, value in points
            if _has_place(at, is_log=log_x) and _has_place(value, is_log=log_y)
        ]
        for name, points in series.items()
    }
    points = [point for line in lines.values() for point in line]
    chart = _Chart(title, width_px)
    chart.add_legend(list(series) if len(series) > 1 else [], of_lines=True)
    if not points:
        return chart.without_data()
    frame = _Frame.of(
        chart,
        _axis([at for at, _ in points], is_log=log_x),
        _axis([value for _, value in points], is_log=log_y, from_zero=True),
        y,
    )
    frame.draw_y(chart)
    frame.draw_x(chart, x)
    for number, (name, line) in enumerate(lines.items()):
        _draw_line(chart, frame, number, name if len(series) > 1 else "", line)
    return chart.finish(frame.bottom + 44)


def bar_chart(
    title: str, unit: str, values: Mapping[str, float], *, whole: float = 0, width_px: int = WIDTH_PX
) -> str:
    """Return a horizontal bar for each of *values*, none below zero, with its number behind it.

    If they are parts of a *whole*, their shares of it stand there, too.
    """
    return _bars(title, unit, {label: {"": value} for label, value in values.items()}, width_px, whole)


def stacked_bars(
    title: str, unit: str, values: Mapping[str, Mapping[str, float]], *, width_px: int = WIDTH_PX
) -> str:
    """Return a horizontal bar for each label, put together of its parts, with their sum behind it."""
    return _bars(title, unit, values, width_px)


def column_chart(title: str, x: str, y: str, values: Mapping[str, float], *, width_px: int = WIDTH_PX) -> str:
    """Return an upright column for each of *values*, for what has an order: sizes, depths, times."""
    chart = _Chart(title, width_px)
    if not any(values.values()):
        return chart.without_data()
    frame = _Frame.of(chart, _Axis(0, len(values), []), _axis(list(values.values()), from_zero=True), y)
    frame.draw_y(chart)
    step_px = frame.width / len(values)
    # Where labels would touch, only every second, third, ... is written.
    every = math.ceil((max(map(_wide, values)) + 8) / step_px)
    for number, (label, value) in enumerate(values.items()):
        left, height = frame.left + number * step_px, frame.bottom - frame.place_y(value)
        if value:
            height = max(height, _LEAST_PX)
            box = (left + step_px * 0.1, frame.bottom - height, step_px * 0.8, height)
            chart.add(_rect(*box, 0, f"{label}: {_value(value)}"))
        if number % every == 0:
            chart.text(left + step_px / 2, frame.bottom + 18, label, anchor="middle", faint=True)
    chart.text(frame.left + frame.width / 2, frame.bottom + 38, x, anchor="middle", faint=True)
    return chart.finish(frame.bottom + 48)


@dataclass(slots=True)
class _Chart:
    """The pieces of a chart so far; ``top`` is where the next one may begin."""

    title: str
    width: int
    pieces: list[str] = field(default_factory=list)
    top: float = _PAD_PX

    def __post_init__(self) -> None:
        room = self.width - 2 * _PAD_PX
        shown = _shorten(self.title, room, _TITLE_PX)
        self.add(
            f'<text class="chart-ink" fill="{_INK}" x="{_PAD_PX}" y="{self.top + 14:.0f}" '
            f'font-size="{_TITLE_PX}" font-weight="600">{escaped(shown)}</text>'
        )
        self.top += 30

    def add(self, piece: str) -> None:
        self.pieces.append(piece)

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", faint: bool = False) -> None:
        kind, colour = ("chart-faint", _FAINT) if faint else ("chart-ink", _INK)
        self.add(
            f'<text class="{kind}" fill="{colour}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{escaped(text)}</text>"
        )

    def add_legend(self, names: Sequence[str], *, of_lines: bool = False) -> None:
        left: float = _PAD_PX
        for number, name in enumerate(names):
            shown = _shorten(name, self.width - 2 * _PAD_PX - 26)
            right = left + 26 + _wide(shown)
            if right > self.width - _PAD_PX and left > _PAD_PX:
                left, self.top = _PAD_PX, self.top + _LINE_PX
                right = left + 26 + _wide(shown)
            middle = self.top + 6
            sign = [(left, middle), (left + 18, middle)]
            self.add(_polyline(sign, number) if of_lines else _rect(left, self.top, 14, 12, number))
            self.text(left + 24, self.top + 11, shown)
            left = right + 16
        if names:
            self.top += _LINE_PX + 4

    def without_data(self) -> str:
        self.text(self.width / 2, self.top + 40, "no data", anchor="middle", faint=True)
        return self.finish(self.top + 80)

    def finish(self, height: float) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height:.0f}" '
            f'width="{self.width}" height="{height:.0f}" role="img" aria-label="{escaped(self.title)}" '
            f'font-family="{_FONT}" font-size="{_SIZE_PX}">'
            f'<rect class="chart-ground" fill="{_GROUND}" width="100%" height="100%" rx="8"/>'
            + "".join(self.pieces)
            + "</svg>"
        )


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    ticks: list[float]
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return where *value* is between the ends: 0 to 1."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True)
class _Frame:
    """The rectangle that points are drawn in, and its two axes."""

    x: _Axis
    y: _Axis
    left: float
    top: float
    width: float

    @classmethod
    def of(cls, chart: _Chart, x: _Axis, y: _Axis, y_name: str) -> _Frame:
        chart.text(_PAD_PX, chart.top + 11, y_name, faint=True)
        left = _PAD_PX + 8 + max(_wide(_number(tick)) for tick in y.ticks)
        return cls(x, y, left, chart.top + 26, chart.width - left - _PAD_PX - 8)

    @property
    def bottom(self) -> float:
        return self.top + _PLOT_PX

    def place_x(self, value: float) -> float:
        return self.left + self.width * self.x.place(value)

    def place_y(self, value: float) -> float:
        return self.bottom - _PLOT_PX * self.y.place(value)

    def draw_y(self, chart: _Chart) -> None:
        for tick in self.y.ticks:
            at = self.place_y(tick)
            chart.add(_grid(self.left, at, self.left + self.width, at))
            chart.text(self.left - 8, at + 4.5, _number(tick), anchor="end", faint=True)

    def draw_x(self, chart: _Chart, name: str) -> None:
        for tick in self.x.ticks:
            at = self.place_x(tick)
            chart.add(_grid(at, self.top, at, self.bottom))
            chart.text(at, self.bottom + 18, _number(tick), anchor="middle", faint=True)
        chart.text(self.left + self.width / 2, self.bottom + 37, name, anchor="middle", faint=True)


def _draw_line(
    chart: _Chart, frame: _Frame, number: int, name: str, points: Sequence[tuple[float, float]]
) -> None:
    if not points:
        return
    chart.add(_polyline([(frame.place_x(at), frame.place_y(value)) for at, value in points], number))
    if len(points) > _DOTTED_POINTS:
        return
    colour = number % len(COLOURS)
    for at, value in points:
        tip = f"{name + ': ' if name else ''}{_number(at)}, {_value(value)}"
        chart.add(
            f'<circle class="chart-fill chart-c{colour}" fill="{COLOURS[colour]}" '
            f'cx="{frame.place_x(at):.1f}" cy="{frame.place_y(value):.1f}" r="3.5">{_tip(tip)}</circle>'
        )


def _bars(
    title: str, unit: str, rows: Mapping[str, Mapping[str, float]], width_px: int, whole: float = 0
) -> str:
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    chart = _Chart(title, width_px)
    chart.add_legend([part for part in parts if part])
    sums = {label: sum(row.values()) for label, row in rows.items()}
    longest = max(sums.values(), default=0)
    if not longest:
        return chart.without_data()
    labels_px = min(max(map(_wide, rows)), width_px * 0.4)
    left = _PAD_PX + labels_px + 8
    ends = {
        label: f"{_value(value)} ({share(value, whole)})" if whole else _value(value)
        for label, value in sums.items()
    }
    room = width_px - left - _PAD_PX - 8 - max(map(_wide, ends.values()))
    if unit:
        chart.text(left, chart.top + 11, unit, faint=True)
        chart.top += _LINE_PX
    for label, row in rows.items():
        middle = chart.top + _BAR_PX / 2
        chart.add(f"<g>{_tip(label)}")
        chart.text(left - 8, middle + 4.5, _shorten(label, labels_px), anchor="end")
        chart.add("</g>")
        at = left
        for part, value in row.items():
            width = room * value / longest
            tip = f"{label}{', ' if part else ''}{part}: {_value(value)} {unit}"
            if value:
                # A pixel less, so that the parts of a bar stand apart.
                shown = max(width - bool(part), _LEAST_PX)
                chart.add(_rect(at, chart.top, shown, _BAR_PX, parts.index(part), tip))
            at += width
        chart.text(at + 6, middle + 4.5, ends[label])
        chart.top += _ROW_PX
    return chart.finish(chart.top + 8)


def _axis(values: Sequence[float], *, is_log: bool = False, from_zero: bool = False) -> _Axis:
    low, high = min(values), max(values)
    if is_log:
        return _log_axis(low, high)
    if from_zero:
        low, high = min(low, 0), max(high, 0)
    if math.isclose(low, high):
        more = abs(high) / 10 or 1
        low, high = (0, more) if from_zero else (low - more, high + more)
    step = _step((high - low) / 6)
    if from_zero:
        low, high = math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return _Axis(low, high, [number * step for number in range(first, last + 1)])


def _log_axis(low: float, high: float) -> _Axis:
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    decades = range(first, last + 1, math.ceil((last - first) / 8))
    ticks = [10.0**decade for decade in decades]
    if last - first <= 2:
        ticks = sorted([*ticks, *(10.0**decade * more for decade in range(first, last) for more in (2, 5))])
    return _Axis(10.0**first, 10.0**last, ticks, is_log=True)


def _step(least: float) -> float:
    """Return the next of 1, 2 and 5, with any number of zeros, from *least* up."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * more for more in (1, 2, 5, 10) if power * more >= least * (1 - 1e-9))


def _has_place(value: float, *, is_log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not is_log)


def _number(value: float) -> str:
    """Return *value* in few characters: 12.5k."""
    for scale, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale * 0.9995:
            return f"{value / scale:.3g}{letter}"
    # A tick may be a hair beside zero.
    return f"{value if abs(value) > 1e-12 else 0:.3g}"


def _value(value: float) -> str:
    """Return *value* as a person reads it out: 12,480 where a tick says 12.5k."""
    return f"{value:,.0f}" if 1000 <= value < 1e7 else _number(value)


def share(part: float, whole: float) -> str:
    """Return *part* in percent of *whole*."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.1:
        return "<0.1 %"
    return f"{percent:.0f} %" if percent in (0, 100) else f"{percent:.1f} %"


def _rect(x: float, y: float, width: float, height: float, number: int, tip: str = "") -> str:
    colour = number % len(COLOURS)
    return (
        f'<rect class="chart-fill chart-c{colour}" fill="{COLOURS[colour]}" '
        f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}">{_tip(tip)}</rect>'
    )


def _polyline(places: Sequence[tuple[float, float]], number: int) -> str:
    colour = number % len(COLOURS)
    dash = _DASHES[number // len(COLOURS) % len(_DASHES)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return (
        f'<polyline class="chart-line chart-c{colour}" fill="none" stroke="{COLOURS[colour]}" '
        f'stroke-width="2" stroke-linejoin="round" stroke-dasharray="{dash or "none"}" points="{points}"/>'
    )


def _grid(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line class="chart-grid" stroke="{_GRID}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
    )


def _tip(text: str) -> str:
    return f"<title>{escaped(text)}</title>" if text else ""


def escaped(text: str) -> str:
    """Return *text* as XML may hold it: labels can come from the web."""
    return escape("".join(char if char.isprintable() else " " for char in text))


def _wide(text: str, size_px: int = _SIZE_PX) -> float:
    return len(text) * size_px * _CHAR


def _shorten(text: str, room_px: float, size_px: int = _SIZE_PX) -> str:
    most = max(int(room_px / (size_px * _CHAR)), 1)
    return text if len(text) <= most else text[: most - 1] + "…"
