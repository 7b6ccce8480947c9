"""Draws the time to the loss against the bandwidth: python -m benchmarks.network.figure.

Reads results/data/network.json and writes docs/images/network.png. Open markers are extrapolated.
"""

import json
from typing import Any

import matplotlib

matplotlib.use('Agg')

import matplotlib.pyplot as plt
from matplotlib import ticker

from benchmarks.network import RESULTS, ROOT
from benchmarks.network.report import TITLES, is_complete, link, seconds_to_loss, sorted_points
from vrl_jax.report import names, style

FIGURE = ROOT / 'docs' / 'images' / 'network.png'
_UNLIMITED = 1e10  # its position in the figure


def draw(points: list[dict[str, Any]]) -> None:
  """Draws the time to the loss against the bandwidth, one panel per task."""
  found = [task for task in TITLES if any(point['task'] == task for point in points)]
  with plt.rc_context(style.RC):
    drawn, axes = plt.subplots(1, len(found), figsize=(style.WIDTH, 2.9), squeeze=False, layout='constrained')
    for axis, task in zip(axes[0], found):
      own = [point for point in points if point['task'] == task]
      for algorithm in dict.fromkeys(point['algorithm'] for point in own):
        _draw(axis, [point for point in own if point['algorithm'] == algorithm], style.look(algorithm))
      axis.set(xscale='log', yscale='log', xlabel='link of each host', ylabel='seconds to the loss')
      ticks = sorted({point['bandwidth'] or _UNLIMITED for point in own})
      axis.set_xticks(ticks, [link(None if tick == _UNLIMITED else tick) for tick in ticks])
      axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 3), numticks=20))
      axis.yaxis.set_major_formatter(ticker.StrMethodFormatter('{x:,g}'))
      axis.minorticks_off()
      axis.set_title(f'{TITLES[task]}, {names.format_bytes(own[0]["payload"])}, to training loss {own[0]["loss"]:g}')
    handles, labels = axes[0][0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc='outside lower center', ncols=len(labels))
    FIGURE.parent.mkdir(exist_ok=True)
    drawn.savefig(FIGURE, dpi=style.DPI)
    plt.close(drawn)


def _draw(axis, points, look):
  points = sorted(points, key=lambda point: point['bandwidth'] or _UNLIMITED)
  x = [point['bandwidth'] or _UNLIMITED for point in points]
  y = [seconds_to_loss(point) for point in points]
  name = names.algorithm(points[0]['algorithm'])
  axis.plot(x, y, color=look.color, dashes=look.dashes or (None, None), marker=look.marker, label=name)
  extrapolated = [i for i, point in enumerate(points) if not is_complete(point)]
  open_marks = {'marker': look.marker, 'color': look.color, 'markerfacecolor': 'white', 'linestyle': 'none'}
  axis.plot([x[i] for i in extrapolated], [y[i] for i in extrapolated], zorder=3, **open_marks)


if __name__ == '__main__':
  draw(sorted_points(json.loads(RESULTS.read_text()))[0])
