"""Curves of cost against size, as SVG files beside the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from measuring import Goal, Options, Report

from crawlproj.charts import line_chart

RESULTS = Path(__file__).parent / "results"
#: A cost that is the same at all sizes may still vary by this much.
FLAT = 1.15

Curve = Sequence[tuple[float, float]]


def draw(options: Options, name: str, title: str, x: str, y: str, curves: Mapping[str, Curve]) -> None:
    """Keep results/NAME.svg; sizes are powers of ten. Nothing is kept of a quick run."""
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.svg").write_text(line_chart(title, x, y, curves, log_x=True))


def want_flat(report: Report, what: str, curve: Curve) -> None:
    """Add the goal that the cost stays the same from the second size on; the first is often too small."""
    (smallest, first), *_, (largest, last) = curve[1:] if len(curve) > 2 else curve
    change = last / first if first else 1.0
    report.goals.append(
        Goal(
            f"{what}, {smallest:,.0f} to {largest:,.0f}",
            f"<= {FLAT:.2f} times",
            f"{change:.2f} times ({first:.3g} to {last:.3g})",
            change <= FLAT,
        )
    )
