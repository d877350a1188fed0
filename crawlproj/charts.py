"""Charts as standalone SVG text. Pure: needs no other package and writes no file.

Colours are attributes, so that a chart works on its own in any viewer, on a light background. A page can
override them by class; `DARK_STYLE` does that for dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

#: Default width; a page may scale the chart to any size.
WIDTH_PX = 720
#: For series and parts, in this order; chosen to be distinct for colour-blind readers, too.
COLOURS = ("#2563c9", "#d4571b", "#0b8a67", "#a3348f", "#b58600", "#6b51c7", "#0b86a8", "#6b7280")
_DARK_COLOURS = ("#6ea8ff", "#ff9966", "#3fcfa4", "#e58ad4", "#e3b93c", "#a896ff", "#4cc9e8", "#a3abb8")
_GROUND, _INK, _FAINT, _GRID = "#ffffff", "#1f2328", "#5c6570", "#e1e4e8"
#: When colours run out, lines are dashed.
_DASHES = ("", "7 4", "2 3", "9 3 2 3")
#: A line with more points is drawn without dots.
_DOTTED_POINTS = 40

_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_SIZE_PX = 13
_TITLE_PX = 16
_LINE_PX = 20
_PAD_PX = 16
_PLOT_PX = 240
_BAR_PX = 18
_ROW_PX = 26
#: Even the smallest value is visible.
_LEAST_PX = 1.0
#: The width of an average character relative to the font size: text widths are estimates.
_CHAR = 0.56

#: Style rules for pages that follow the reader's light or dark theme.
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

    Points that cannot be drawn are left out: infinite ones, and those not above 0 on a logarithmic axis.
    """
    lines = {
        name: [
            (float(at), float(value))
            for at, value in points
            if _can_draw(at, is_log=log_x) and _can_draw(value, is_log=log_y)
        ]
        for name, points in series.items()
    }
    points = [point for line in lines.values() for point in line]
    chart = _Chart(title, width_px)
    chart.add_legend(list(series) if len(series) > 1 else [], of_lines=True)
    if not points:
        return chart.without_data()
    frame = _Frame(
        chart,
        _axis([at for at, _ in points], is_log=log_x),
        _axis([value for _, value in points], is_log=log_y, from_zero=True),
        y,
    )
    for tick in frame.x.ticks:
        place = frame.place_x(tick)
        chart.add(_grid(place, frame.top, place, frame.bottom))
        chart.text(place, frame.bottom + 18, _number(tick), anchor="middle", faint=True)
    chart.text(frame.left + frame.width / 2, frame.bottom + 37, x, anchor="middle", faint=True)
    for number, (name, line) in enumerate(lines.items()):
        places = [(frame.place_x(at), frame.place_y(value)) for at, value in line]
        if line:
            chart.add(_polyline(places, number))
        if len(line) > _DOTTED_POINTS:
            continue
        for (at, value), (left, top) in zip(line, places, strict=True):
            tip = f"{name + ': ' if len(series) > 1 and name else ''}{_number(at)}, {_value(value)}"
            chart.add(f'<circle {_fill(number)}cx="{left:.1f}" cy="{top:.1f}" r="3.5">{_tip(tip)}</circle>')
    return chart.finish(frame.bottom + 44)


def bar_chart(
    title: str, unit: str, values: Mapping[str, float], *, whole: float = 0, width_px: int = WIDTH_PX
) -> str:
    """Return a horizontal bar for each of *values*, none below zero, followed by its number.

    If they are parts of a *whole*, their shares are shown, too.
    """
    return stacked_bars(
        title, unit, {label: {"": value} for label, value in values.items()}, whole=whole, width_px=width_px
    )


def stacked_bars(
    title: str,
    unit: str,
    rows: Mapping[str, Mapping[str, float]],
    *,
    whole: float = 0,
    width_px: int = WIDTH_PX,
) -> str:
    """Return a horizontal bar for each label, made of its parts and followed by their sum."""
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
                # One pixel less, to separate the parts of a bar.
                shown = max(width - bool(part), _LEAST_PX)
                chart.add(_rect(at, chart.top, shown, _BAR_PX, parts.index(part), tip))
            at += width
        chart.text(at + 6, middle + 4.5, ends[label])
        chart.top += _ROW_PX
    return chart.finish(chart.top + 8)


def column_chart(title: str, x: str, y: str, values: Mapping[str, float], *, width_px: int = WIDTH_PX) -> str:
    """Return a vertical column for each of *values*, which have an order: sizes, depths, times."""
    chart = _Chart(title, width_px)
    if not any(values.values()):
        return chart.without_data()
    frame = _Frame(chart, _Axis(0, len(values), []), _axis(list(values.values()), from_zero=True), y)
    step_px = frame.width / len(values)
    # Where labels would touch, only every second, third, ... is drawn.
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
    """The pieces of a chart so far; ``top`` is where the next one starts."""

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
            key = [(left, middle), (left + 18, middle)]
            self.add(_polyline(key, number) if of_lines else _rect(left, self.top, 14, 12, number))
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
        """Return the position of *value* on the axis: 0 to 1."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


class _Frame:
    """The rectangle that points are drawn in, and its two axes; draws the vertical one."""

    def __init__(self, chart: _Chart, x: _Axis, y: _Axis, y_name: str) -> None:
        self.x = x
        self.y = y
        self.left = _PAD_PX + 8 + max(_wide(_number(tick)) for tick in y.ticks)
        self.width = chart.width - self.left - _PAD_PX - 8
        self.top = chart.top + 26
        self.bottom = self.top + _PLOT_PX
        chart.text(_PAD_PX, chart.top + 11, y_name, faint=True)
        for tick in y.ticks:
            at = self.place_y(tick)
            chart.add(_grid(self.left, at, self.left + self.width, at))
            chart.text(self.left - 8, at + 4.5, _number(tick), anchor="end", faint=True)

    def place_x(self, value: float) -> float:
        return self.left + self.width * self.x.place(value)

    def place_y(self, value: float) -> float:
        return self.bottom - _PLOT_PX * self.y.place(value)


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
    """Return the smallest 1, 2 or 5 times a power of ten that is not below *least*."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * more for more in (1, 2, 5, 10) if power * more >= least * (1 - 1e-9))


def _can_draw(value: float, *, is_log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not is_log)


def _number(value: float) -> str:
    """Return *value* in few characters: 12.5k."""
    for scale, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale * 0.9995:
            return f"{value / scale:.3g}{letter}"
    # A tick at zero may be off by a rounding error.
    return f"{value if abs(value) > 1e-12 else 0:.3g}"


def _value(value: float) -> str:
    """Return *value* with more digits than a tick: 12,480 instead of 12.5k."""
    return f"{value:,.0f}" if 1000 <= value < 1e7 else _number(value)


def share(part: float, whole: float) -> str:
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.1:
        return "<0.1 %"
    return f"{percent:.0f} %" if percent in (0, 100) else f"{percent:.1f} %"


def _rect(x: float, y: float, width: float, height: float, number: int, tip: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f"<rect {_fill(number)}{place}>{_tip(tip)}</rect>"


def _fill(number: int) -> str:
    colour = number % len(COLOURS)
    return f'class="chart-fill chart-c{colour}" fill="{COLOURS[colour]}" '


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
    """Return *text* escaped for XML: labels can come from the web."""
    return escape("".join(char if char.isprintable() else " " for char in text))


def _wide(text: str) -> float:
    return len(text) * _SIZE_PX * _CHAR


def _shorten(text: str, room_px: float, size_px: int = _SIZE_PX) -> str:
    most = max(int(room_px / (size_px * _CHAR)), 1)
    return text if len(text) <= most else text[: most - 1] + "…"
