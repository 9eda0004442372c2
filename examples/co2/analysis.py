"""Forty years of carbon dioxide on Mauna Loa: a table on stdout and a chart in co2.svg.

Standard library only. Reads co2.csv (year,month,ppm) from the working directory.
"""

import csv
from html import escape
from statistics import fmean

MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def read(path):
    """Return the rows as (year, month, ppm)."""
    with open(path, newline="", encoding="utf-8") as file:
        return [(int(r["year"]), int(r["month"]), float(r["ppm"])) for r in csv.DictReader(file)]


def decimal_year(year, month):
    """Return the middle of the month as a decimal year."""
    return year + (month - 0.5) / 12


def least_squares(points):
    """Return (slope, intercept) of the straight line nearest to the (x, y) points."""
    mean_x, mean_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return slope, mean_y - slope * mean_x


def by_decade(rows):
    """Return (label, years, mean ppm, growth in ppm a year) for each decade."""
    table = []
    for decade in sorted({year // 10 for year, _, _ in rows}):
        part = [(decimal_year(y, m), ppm) for y, m, ppm in rows if y // 10 == decade]
        years = len(part) // 12
        growth = least_squares(part)[0] if years > 1 else None
        table.append((f"{decade * 10}s", years, fmean(ppm for _, ppm in part), growth))
    return table


def running_mean(rows):
    """Return (decimal year, ppm) of the twelve-month mean, centred as climatologists do:
    thirteen months, the first and the last counted half."""
    ppm = [value for _, _, value in rows]
    points = []
    for i in range(6, len(ppm) - 6):
        mean = (ppm[i - 6] / 2 + sum(ppm[i - 5 : i + 6]) + ppm[i + 6] / 2) / 12
        points.append((decimal_year(*rows[i][:2]), mean))
    return points


def seasonal_cycle(rows):
    """Return for each month the mean distance from the running mean, in ppm."""
    smooth = dict(running_mean(rows))
    distances = [[] for _ in MONTHS]
    for year, month, ppm in rows:
        if (mean := smooth.get(decimal_year(year, month))) is not None:
            distances[month - 1].append(ppm - mean)
    cycle = [fmean(d) for d in distances]
    return [value - fmean(cycle) for value in cycle]


def report(rows, trend, cycle):
    """Print the findings."""
    first, last = rows[0], rows[-1]
    print(f"Mauna Loa CO2, {MONTHS[first[1] - 1]} {first[0]} to {MONTHS[last[1] - 1]} {last[0]}: {len(rows)} monthly means\n")
    print("decade   years   mean ppm   growth ppm/year")
    print("------   -----   --------   ---------------")
    for label, years, mean, growth in by_decade(rows):
        shown = "-" if growth is None else f"{growth:.2f}"
        print(f"{label}   {years:5}   {mean:8.2f}   {shown:>15}")
    top, bottom = cycle.index(max(cycle)), cycle.index(min(cycle))
    print(f"\nall years: {trend[0]:+.2f} ppm a year (least squares)")
    print(f"each year: highest in {MONTHS[top]} ({cycle[top]:+.2f} ppm), lowest in {MONTHS[bottom]} ({cycle[bottom]:+.2f} ppm)")


# The chart: two panels on one canvas, in pixels.

WIDTH, HEIGHT = 960, 720
LEFT, RIGHT = 76, 932
INK, MUTED, GRID = "#1f2933", "#66727f", "#e4e8ec"
MONTHLY, MEAN, TREND = "#8fb8de", "#1b5e9b", "#d1495b"


class Panel:
    """One pair of axes: it maps data to pixels and collects SVG elements."""

    def __init__(self, top, bottom, xs, ys):
        self.top, self.bottom, self.xs, self.ys = top, bottom, xs, ys
        self.parts = []

    def x(self, value):
        """Return the pixel column of a data value."""
        low, high = self.xs
        return LEFT + (value - low) / (high - low) * (RIGHT - LEFT)

    def y(self, value):
        """Return the pixel row of a data value."""
        low, high = self.ys
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)

    def text(self, x, y, words, anchor="middle", size=13, colour=MUTED, extra=""):
        """Add a label."""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{extra}>{escape(words)}</text>')

    def line(self, x1, y1, x2, y2, colour, width=1, extra=""):
        """Add a straight line."""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"{extra}/>')

    def curve(self, points, colour, width):
        """Add a line through data points."""
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>')

    def axes(self, title, unit, yticks, xticks):
        """Add title, grid, ticks and labels. Each tick is (value, label)."""
        self.text(LEFT, self.top - 18, title, "start", 16, INK, ' font-weight="600"')
        for value, label in yticks:
            self.line(LEFT, self.y(value), RIGHT, self.y(value), GRID)
            self.text(LEFT - 10, self.y(value) + 4.5, label, "end")
        for value, label in xticks:
            self.line(self.x(value), self.bottom, self.x(value), self.bottom + 6, MUTED)
            self.text(self.x(value), self.bottom + 22, label)
        self.line(LEFT, self.bottom, RIGHT, self.bottom, MUTED)
        middle = (self.top + self.bottom) / 2
        self.text(24, middle, unit, extra=f' transform="rotate(-90 24 {middle:.1f})"')


def draw_record(rows, trend):
    """Return the upper panel: every month, the running mean and the trend."""
    monthly = [(decimal_year(y, m), ppm) for y, m, ppm in rows]
    start, end = rows[0][0], rows[-1][0] + 1
    panel = Panel(96, 408, (start, end), (310, 370))
    panel.axes("Monthly record", "CO\u2082, ppm", [(v, str(v)) for v in range(310, 371, 10)], [(v, str(v)) for v in range(1960, end, 5)])
    panel.curve(monthly, MONTHLY, 1.6)
    panel.curve([(x, trend[1] + trend[0] * x) for x in (start, end)], TREND, 1.6)
    panel.curve(running_mean(rows), MEAN, 2.4)
    legend = [(MONTHLY, 1.6, "monthly mean"), (MEAN, 2.4, "12-month running mean"), (TREND, 1.6, f"linear trend, {trend[0]:+.2f} ppm a year")]
    for i, (colour, width, label) in enumerate(legend):
        row = panel.top + 18 + 22 * i
        panel.line(LEFT + 16, row, LEFT + 48, row, colour, width)
        panel.text(LEFT + 58, row + 4.5, label, "start", colour=INK)
    return panel


def draw_cycle(cycle):
    """Return the lower panel: what the seasons add and take away."""
    panel = Panel(494, 656, (0.5, 12.5), (-4.8, 4))
    panel.axes(
        "Seasonal cycle: distance from the running mean, average of all years", "ppm",
        [(v, f"{v:+d}".replace("-", "\u2212") if v else "0") for v in (-4, -2, 0, 2, 4)], list(enumerate(MONTHS, 1)),
    )
    zero = panel.y(0)
    for month, value in enumerate(cycle, 1):
        x, y, up = panel.x(month), panel.y(value), value >= 0
        panel.parts.append(f'<rect x="{x - 22:.1f}" y="{min(y, zero):.1f}" width="44" height="{abs(y - zero):.1f}" rx="2" fill="{MEAN if up else MONTHLY}"/>')
        panel.text(x, y - 6 if up else y + 16, f"{value:+.1f}".replace("-", "\u2212"), size=12, colour=INK)
    panel.line(LEFT, zero, RIGHT, zero, MUTED)
    return panel


def chart(rows, trend, cycle):
    """Return the whole chart as SVG."""
    panels = [draw_record(rows, trend), draw_cycle(cycle)]
    heading = f"Carbon dioxide in the air at Mauna Loa, {rows[0][0]}\u2013{rows[-1][0]}"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="Inter, Helvetica Neue, Helvetica, Arial, DejaVu Sans, sans-serif" role="img">',
        f"<title>{escape(heading)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="44" font-size="22" font-weight="700" fill="{INK}">{escape(heading)}</text>',
        *(part for panel in panels for part in panel.parts),
        f'<text x="{RIGHT}" y="{HEIGHT - 14}" text-anchor="end" font-size="11" fill="{MUTED}">'
        "Data: Keeling and Whorf, Scripps Institution of Oceanography (CC BY 4.0)</text>",
        "</svg>\n",
    ])


def main():
    """Analyse, report, draw."""
    rows = read("co2.csv")
    trend = least_squares([(decimal_year(y, m), ppm) for y, m, ppm in rows])
    cycle = seasonal_cycle(rows)
    report(rows, trend, cycle)
    with open("co2.svg", "w", encoding="utf-8") as file:
        file.write(chart(rows, trend, cycle))
    print("\nchart: co2.svg")


main()
