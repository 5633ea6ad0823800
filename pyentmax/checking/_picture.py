"""Heat maps of two derivatives and their difference, as inline SVG: no library, no network.

The colours run from blue through white (zero) to red-brown. They differ for people with any colour
vision, and both ends are equally dark. Text and lines have the page's own text colour, so that
light and dark pages are both readable.
"""

from __future__ import annotations

from html import escape

import numpy as np

from pyentmax.checking._differences import Array

MAX_CELLS = 16  # rows and columns shown at most: three maps of 256 cells are 100 kB of SVG
SIDE, GAP, TOP = 190, 26, 24  # pixels: a map's side, between maps, above them
BLUE, WHITE, RED = np.array([33, 102, 172]), np.array([255, 255, 255]), np.array([165, 60, 10])


def heat_maps(
    what: str, analytic: Array, numeric: Array, where: tuple[int, ...], tolerance: float
) -> str:
    """The SVG element: analytic, numeric, difference, with a frame around the largest difference.

    For arrays with more than two axes it shows the matrix with the largest difference, and for more
    than 16 rows or columns the block around it; a line below says so.
    """
    block, rows, columns, note = _window(analytic.shape, where)
    analytic, numeric = (np.atleast_2d(a[block])[rows, columns] for a in (analytic, numeric))
    difference = analytic - numeric
    limit = _largest(analytic, numeric)
    most = max(_largest(difference), tolerance)
    axes = " ∂pᵢ/∂zⱼ, i down, j across" if what == "Jacobian" else ""
    maps = (
        (f"analytic{axes}", analytic, limit, f"±{limit:.3g}"),
        ("numeric", numeric, limit, f"±{limit:.3g}"),
        ("difference", difference, most,
         f"±{most:.2g}, {'the tolerance' if most == tolerance else 'the largest'}"),
    )  # fmt: skip
    cell = min(SIDE / analytic.shape[0], SIDE / analytic.shape[1], 40)
    height, width = cell * analytic.shape[0], cell * analytic.shape[1]
    shift = max(width, SIDE) + GAP
    line = 'fill="none" stroke="currentColor" stroke-opacity=".6"'
    parts = []
    for k, (title, values, full, legend) in enumerate(maps):
        parts.append(f'<g transform="translate({1 + k * shift:g} {TOP})">')
        parts.append(f'<text y="-8" font-weight="bold">{title}</text>')
        # A white background, because the page's own would show between the cells.
        parts.append(_rectangle(0, 0, width, height, 'fill="#fff"'))
        for (i, j), value in np.ndenumerate(values):
            index = ", ".join(map(str, (*block, rows.start + i, columns.start + j)[-len(where) :]))
            text = (
                f"[{index}] analytic {analytic[i, j]:.6g}, numeric {numeric[i, j]:.6g}, "
                f"difference {difference[i, j]:.2g}"
            )
            fill = f'fill="{_colour(value, full)}"'
            parts.append(_rectangle(j * cell, i * cell, cell, cell, fill, text))
        parts.append(_rectangle(0, 0, width, height, line))
        if k == 2:  # a frame around the largest difference
            x, y = where[-1] - columns.start, where[-2] - rows.start if len(where) > 1 else 0
            frame = 'fill="none" stroke="#000" stroke-width="2"'
            parts.append(_rectangle(x * cell, y * cell, cell, cell, frame))
        parts.append(f"{_legend(height + 10, legend)}</g>")
    bottom = TOP + height + 44
    if note:
        parts.append(f'<text x="1" y="{bottom:g}" font-style="italic">{escape(note)}</text>')
    label = (
        f"{what}: heat maps of the analytic and the numeric values, within ±{limit:.3g}, and of "
        f"their difference, at most {_largest(difference):.2g} in this picture"
    )
    return _svg(3 * shift - GAP + 2, bottom + (8 if note else -20), label, parts, "crispEdges")


def _svg(width: float, height: float, label: str, parts: list[str], edges: str = "auto") -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(label)}" '
        f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="sans-serif" font-size="12" fill="currentColor" shape-rendering="{edges}" '
        f'style="max-width:100%;height:auto">{"".join(parts)}</svg>'
    )


def table(heading: str, picture: str, rows: list[tuple[str, str]], reason: str) -> str:
    """HTML with the picture above a two-column table, and the reason of the verdict below."""
    left = "text-align:left;font-size:inherit"
    cells = "".join(
        f'<tr><th scope="row" style="{left};padding:1px 14px 1px 0">{escape(name)}</th>'
        f'<td style="{left};font-family:monospace">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return (
        f"<div><div style='margin:4px 0'><strong>{escape(heading)}</strong></div>{picture}"
        f"<table style='border-collapse:collapse;margin:6px 0;font-size:inherit'>{cells}</table>"
        f"<em>{escape(reason)}</em></div>"
    )


def bars(units: dict[str, float], limit: float) -> str:
    """The SVG element: a bar per name, on a logarithmic scale from 1/1000 to 10¹⁰ units.

    Bars beyond the limit, which a line marks, are red-brown, the others blue.
    """
    left, width, step = 200.0, 380.0, 16

    def x(value: float) -> float:
        return left + width * float(np.log10(np.clip(value, 1e-3, 1e10)) + 3) / 13

    height, parts = TOP + step * len(units), []
    for k, (name, value) in enumerate(units.items()):
        fill = 'fill="#{:02x}{:02x}{:02x}"'.format(*(RED if value > limit else BLUE))
        bar = _rectangle(left, TOP + step * k, x(value) - left + 1, step - 4, fill)
        text = f'<text y="{TOP + step * k + 10:g}">{escape(name)}</text>'
        parts.append(f"<g><title>{escape(name)}: {value:.3g} units</title>{text}{bar}</g>")
    for value, name in ((1, "1 unit"), (limit, f"{limit:g} units")):
        line = _rectangle(x(value), TOP - 4, 1, height - TOP, 'fill="currentColor"')
        anchor = "start" if value == limit else "end"
        parts.append(f'{line}<text x="{x(value):.4g}" y="14" text-anchor="{anchor}">{name}</text>')
    label = f"errors of {len(units)} properties, in units of the contract of accuracy"
    return _svg(left + width, height, label, parts)


def _window(
    shape: tuple[int, ...], where: tuple[int, ...]
) -> tuple[tuple[int, ...], slice, slice, str]:
    """The matrix of the batch, its rows and columns to show, and a note about the selection."""
    block, matrix = where[:-2], shape[-2:] if len(shape) > 1 else (1, *shape)
    at = (0, *where)[-2:]

    def shown(i: int, n: int) -> slice:
        start = min(max(i - MAX_CELLS // 2, 0), max(n - MAX_CELLS, 0))
        return slice(start, min(start + MAX_CELLS, n))

    rows, columns = map(shown, at, matrix)
    notes = []
    if block:
        notes.append(f"matrix [{', '.join(map(str, block))}] of a batch of {shape[:-2]}")
    if max(matrix) > MAX_CELLS:
        notes.append(
            f"rows {rows.start}–{rows.stop - 1} of {matrix[0]}, "
            f"columns {columns.start}–{columns.stop - 1} of {matrix[1]}"
        )
    note = f"Shown: {', '.join(notes)}, around the largest error" if notes else ""
    return block, rows, columns, note


def _largest(*arrays: Array) -> float:
    values = [np.abs(a[np.isfinite(a)]) for a in arrays]
    return max((float(v.max()) for v in values if v.size), default=0.0)


def _colour(value: float, full: float) -> str:
    if not np.isfinite(value):
        return "#888"
    t = min(abs(value) / full, 1) if full else 0.0
    end = RED if value > 0 else BLUE
    return "#{:02x}{:02x}{:02x}".format(*np.rint(WHITE + t * (end - WHITE)).astype(int))


def _rectangle(x: float, y: float, width: float, height: float, style: str, title: str = "") -> str:
    size = f'x="{x:.4g}" y="{y:.4g}" width="{width:.4g}" height="{height:.4g}"'
    return (
        f"<rect {size} {style}/>"
        if not title
        else (f"<rect {size} {style}><title>{title}</title></rect>")
    )


def _legend(y: float, text: str) -> str:
    width, steps = 60, 15
    colours = [_colour(2 * k / (steps - 1) - 1, 1) for k in range(steps)]
    bars = [
        _rectangle(k * width / steps, y, width / steps, 9, f'fill="{colour}"')
        for k, colour in enumerate(colours)
    ]
    bars.append(_rectangle(0, y, width, 9, 'fill="none" stroke="currentColor" stroke-opacity=".6"'))
    return f'{"".join(bars)}<text x="{width + 6}" y="{y + 9:.4g}">{escape(text)}</text>'
