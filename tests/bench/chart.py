"""Charts of the documentation: curves and dots over two axes, as SVG."""

import html
import math
from dataclasses import dataclass, field

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 80, 56, 740, 360
COLOURS = ("#2563eb", "#d9480f", "#2f9e44", "#9c36b5", "#0c8599", "#e8590c", "#868e96", "#c2255c")
STYLE = ('text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #6b7280; } .title { font-size: 16px; fill: #1f2430; }'
         " .middle { text-anchor: middle; } .end { text-anchor: end; } .grid { stroke: #e6e8ec; } .curve { fill: none; stroke-width: 2; }")


@dataclass
class Series:
    name: str
    points: list
    dots: bool = False  # no line between them
    names: list = field(default_factory=list)  # tooltips of the points


@dataclass
class Axis:
    name: str
    log: bool = False
    low: float = 0.0
    high: float = 0.0  # 0: the largest value


def ticks(axis):
    if axis.log:
        first, last = math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high))
        marks = [m * 10.0 ** e for e in range(first, last + 1) for m in (1, 2, 5)]
    else:
        power = 10 ** math.floor(math.log10((axis.high - axis.low) / 4))
        step = next(m * power for m in (1, 2, 5, 10) if (axis.high - axis.low) / (m * power) <= 8)
        marks = [step * i for i in range(math.ceil(axis.low / step), math.floor(axis.high / step) + 1)]
    return [mark for mark in marks if axis.low <= mark <= axis.high * 1.0001]


def fit(axis, values):
    values = [value for value in values if value > 0 or not axis.log]
    axis.high = axis.high or 1.05 * max(values)
    if axis.log:
        axis.low = axis.low or 0.9 * min(values)


def chart(title, x_axis, y_axis, series, diagonal=False, legend=(LEFT + 12, TOP + 4)):
    """`diagonal`: a line where both are equal. `legend`: its upper left corner."""
    fit(x_axis, [x for one in series for x, _ in one.points])
    fit(y_axis, [y for one in series for _, y in one.points])

    def place(axis, value, begin, end):
        if axis.log:
            share = math.log(max(value, axis.low) / axis.low) / math.log(axis.high / axis.low)
        else:
            share = (value - axis.low) / (axis.high - axis.low)
        return begin + (end - begin) * share

    def x(value): return place(x_axis, value, LEFT, RIGHT)
    def y(value): return place(y_axis, value, BOTTOM, TOP)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
           f"<title>{html.escape(title)}</title>", f"<style>{STYLE}</style>",
           f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>',
           f'<text class="title" x="{LEFT}" y="24">{html.escape(title)}</text>',
           f'<text x="{LEFT}" y="44">{html.escape(y_axis.name)}</text>',
           f'<text class="middle" x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 44}">{html.escape(x_axis.name)}</text>']
    for mark in ticks(y_axis):
        out.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>'
                   f'<text class="end" x="{LEFT - 8}" y="{y(mark) + 4:.1f}">{mark:g}</text>')
    for mark in ticks(x_axis):
        out.append(f'<text class="middle" x="{x(mark):.1f}" y="{BOTTOM + 22}">{mark:g}</text>')
    if diagonal:
        low, high = max(x_axis.low, y_axis.low), min(x_axis.high, y_axis.high)
        out.append(f'<line class="grid" x1="{x(low):.1f}" y1="{y(low):.1f}" x2="{x(high):.1f}" y2="{y(high):.1f}"/>')
    for index, one in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        if not one.dots:
            points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in one.points)
            out.append(f'<polyline class="curve" stroke="{colour}" points="{points}"/>')
        for number, (a, b) in enumerate(one.points):
            name = f"<title>{html.escape(one.names[number])}</title>" if one.names else ""
            out.append(f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3.5" fill="{colour}">{name}</circle>')
        at_x, at_y = legend[0], legend[1] + 18 * index
        out.append(f'<rect x="{at_x}" y="{at_y}" width="12" height="12" fill="{colour}"/>'
                   f'<text x="{at_x + 18}" y="{at_y + 10}">{html.escape(one.name)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
