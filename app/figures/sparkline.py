"""A small line or bar chart as one SVG string: it needs no plotting library, so the first page shows it at once."""

from __future__ import annotations

import numpy as np

from app.figures import theme

WIDTH, HEIGHT = 240, 74
LEFT, RIGHT, TOP, BOTTOM = 34, 6, 8, 16


def sparkline(
    series: list[np.ndarray], mark: list[int], *, bars: bool = False, first: str, last: str, dark: bool = False
) -> str:
    """One curve (or one group of bars) a side over the same equally spaced indices, on one scale of values.

    ``mark`` is the highlighted index of each side; ``first`` and ``last`` label the ends of the horizontal axis.
    Values that are not finite leave a gap. Only numbers and the two labels enter the SVG.
    """
    finite = np.concatenate([np.asarray(values, float)[np.isfinite(values)] for values in series])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    low = min(0.0, low) if bars else low
    parts = [_axis(low, high, first, last)]
    for side, (values, index) in enumerate(zip(series, mark, strict=True)):
        slots = max(map(len, series))
        x, y = _places(np.asarray(values, float), low, high, slots, bars)
        colour = theme.category(side, dark)
        if bars:
            parts.append(_bars(x, y, (side, len(series), slots), index, colour))
        else:
            parts.append(_line(x, y, index, colour, dashed=side > 0))
    style = "width:100%;height:auto;display:block"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" style="{style}" role="img">{"".join(parts)}</svg>'


def _places(values: np.ndarray, low: float, high: float, slots: int, bars: bool) -> tuple[np.ndarray, np.ndarray]:
    """Where the values stand: each in the middle of its slot (bars), or the slots' places from end to end."""
    inner, index = WIDTH - LEFT - RIGHT, np.arange(len(values))
    x = LEFT + ((index + 0.5) * inner / slots if bars or slots == 1 else index * inner / (slots - 1))
    span = high - low
    part = (values - low) / span if span > 0 else np.where(np.isfinite(values), 0.5, np.nan)
    return x, HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def _axis(low: float, high: float, first: str, last: str) -> str:
    base, text = HEIGHT - BOTTOM, 'font-size="9" fill="currentColor" opacity="0.7"'
    numbers = f'<text x="{LEFT - 4}" y="{base}" text-anchor="end" {text}>{low:.3g}</text>'
    if high > low:
        numbers += f'<text x="{LEFT - 4}" y="{TOP + 6}" text-anchor="end" {text}>{high:.3g}</text>'
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}" stroke="currentColor" opacity="0.3"/>{numbers}'
        f'<text x="{LEFT}" y="{HEIGHT - 4}" {text}>{theme.label(first)}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end" {text}>{theme.label(last)}</text>'
    )


def _line(x: np.ndarray, y: np.ndarray, index: int, colour: str, *, dashed: bool) -> str:
    dash = ' stroke-dasharray="5 3"' if dashed else ""
    path, pen = "", "M"
    for across, down in zip(x, y, strict=True):
        path += f"{pen}{across:.1f} {down:.1f}" if np.isfinite(down) else ""
        pen = "L" if np.isfinite(down) else "M"
    line = f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
    if np.isfinite(y[index]):
        line += f'<circle cx="{x[index]:.1f}" cy="{y[index]:.1f}" r="3.5" fill="{colour}"/>'
    return line


def _bars(x: np.ndarray, y: np.ndarray, place_of: tuple[int, int, int], index: int, colour: str) -> str:
    """``place_of`` is the side, the number of sides and the number of slots."""
    side, sides, slots = place_of
    room = (WIDTH - LEFT - RIGHT) / slots * 0.8
    width, base, bars = min(room / sides, 28), HEIGHT - BOTTOM, ""
    for place, (across, down) in enumerate(zip(x, y, strict=True)):
        if np.isfinite(down):
            left = across - width * sides / 2 + side * width
            opacity = 1 if place == index else 0.45
            size = f'width="{max(width - 1, 1):.1f}" height="{max(base - down, 0.5):.1f}"'
            fill = f'fill="{colour}" opacity="{opacity}"'
            bars += f'<rect x="{left:.1f}" y="{down:.1f}" {size} {fill}/>'
    return bars
