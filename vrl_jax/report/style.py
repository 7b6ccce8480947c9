"""The style of all figures: an algorithm has the same colour, dashes and marker everywhere.

The colours are the Okabe-Ito palette, which is safe for colour-blind readers; dashes and markers distinguish lines in
grey print.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from vrl_jax.system.storage import checksum

if TYPE_CHECKING:  # matplotlib 3.11
  from matplotlib.typing import RcKeyType

WIDTH = 7.2  # inches, the width of the text on a page
DPI = 150

RC: dict['RcKeyType', Any] = {
  'font.family': 'DejaVu Sans',
  'font.size': 8.5,
  'axes.titlesize': 8.5,
  'axes.labelsize': 8.5,
  'xtick.labelsize': 7.5,
  'ytick.labelsize': 7.5,
  'legend.fontsize': 8.5,
  'figure.titlesize': 10,
  'axes.spines.top': False,
  'axes.spines.right': False,
  'axes.edgecolor': '#666666',
  'axes.linewidth': 0.7,
  'xtick.color': '#333333',
  'ytick.color': '#333333',
  'xtick.major.width': 0.7,
  'ytick.major.width': 0.7,
  'axes.grid': True,
  'axes.axisbelow': True,
  'grid.color': '#e4e4e4',
  'grid.linewidth': 0.6,
  'lines.linewidth': 1.5,
  'lines.markersize': 4,
  'legend.frameon': False,
  'svg.fonttype': 'none',
  'svg.hashsalt': 'vrl_jax',  # makes the file reproducible
}


class Look(NamedTuple):
  """The colour of a line, its dashes in line widths (empty: solid) and its marker (a matplotlib code).

  >>> matplotlib_line = lambda look: {'color': look.color, 'marker': look.marker, 'dashes': look.dashes}
  >>> matplotlib_line(Look('#0072b2', (5, 2), 'D'))
  {'color': '#0072b2', 'marker': 'D', 'dashes': (5, 2)}
  """

  color: str
  dashes: tuple[float, ...]
  marker: str


_LOOKS = {
  's_sgd': Look('#000000', (), 'o'),
  'local_sgd': Look('#d55e00', (5, 2), 's'),
  'easgd': Look('#cc79a7', (1.2, 1.6), '^'),
  'vrl_sgd': Look('#0072b2', (), 'D'),
  'vrl_sgd_w': Look('#56b4e9', (7, 1.6, 1.5, 1.6), 'v'),
  'cocod_sgd': Look('#009e73', (4, 1.5, 1.2, 1.5), 'P'),
  'scaffold': Look('#e69f00', (3, 1.5), 'X'),
  'diloco': Look('#7a5195', (6, 2, 2, 2), '<'),
  'slowmo': Look('#8c6d31', (2, 2), '>'),
  'vrl_adaptive': Look('#004c76', (8, 1.5, 1.5, 1.5, 1.5, 1.5), 'p'),
  'd2': Look('#666666', (4, 2, 1, 2), 'h'),
  'extra': Look('#a0522d', (2, 1), '*'),
}
_OTHERS = (
  Look('#666666', (4, 2, 1, 2, 1, 2), 'p'),
  Look('#4b7f52', (8, 2), 'h'),
  Look('#a0522d', (2, 1), '*'),
)
_READABLE = 0.25  # luminance: a contrast of 5 with the page's dark background
_MARKERS = 'osD^vPX<>ph'
_DASHES = ((), (5, 2), (1.2, 1.6), (7, 1.6, 1.5, 1.6), (3, 1.5))


def look(algorithm: str, variant: int = 0, variants: int = 1) -> Look:
  """The colour, dashes and marker of a line.

  Args:
    algorithm: the algorithm's key; an unknown one gets a look that depends only on its name.
    variant: the index of the line, if a figure has several lines of the algorithm.
    variants: the number of lines of the algorithm. They differ in shade, dashes and marker; of up to three, the first
      has the colour of the algorithm.

  Returns:
    The look.

  >>> look('vrl_sgd')
  Look(color='#0072b2', dashes=(), marker='D')
  >>> [look('local_sgd', variant, variants=3).color for variant in range(3)]
  ['#d55e00', '#eaae80', '#6a2f00']
  """
  base = _LOOKS.get(algorithm) or _OTHERS[checksum(algorithm.encode()) % len(_OTHERS)]
  if variants == 1 or (variants <= 3 and variant == 0):
    return base
  start = _MARKERS.index(base.marker) if base.marker in _MARKERS else 0
  first = _DASHES.index(base.dashes) if base.dashes in _DASHES else 0
  shade = (0.5, 1.0, 0.0)[variant] if variants <= 3 else variant / (variants - 1)
  color = _mix(base.color, '#000000', 0.5 - shade) if shade < 0.5 else _mix(base.color, '#ffffff', shade - 0.5)
  return Look(color, _DASHES[(first + variant) % len(_DASHES)], _MARKERS[(start + variant) % len(_MARKERS)])


def on_dark(color: str) -> str:
  """The colour on a dark background: greys are inverted, others are lightened until they can be read.

  >>> on_dark('#000000'), on_dark('#0072b2'), on_dark('#56b4e9')
  ('#ffffff', '#4095c5', '#56b4e9')
  """
  if color[1:3] == color[3:5] == color[5:]:
    return _mix('#ffffff', '#000000', int(color[1:3], 16) / 255)
  share = 0.0
  while _luminance(_mix(color, '#ffffff', share)) < _READABLE:
    share += 0.05
  return _mix(color, '#ffffff', share)


def _luminance(color):
  """Relative luminance as in WCAG 2: 0 is black, 1 is white."""
  values = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
  linear = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
  return sum(weight * v for weight, v in zip((0.2126, 0.7152, 0.0722), linear))


def _mix(color, other, share):
  parts = [(int(color[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
  return '#' + ''.join(f'{round(a + (b - a) * share):02x}' for a, b in parts)
