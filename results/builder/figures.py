"""Draws the figures from the summaries; the metadata of each has a checksum of its data."""

import hashlib
import io
import pathlib

import matplotlib as mpl
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from results.builder import published, sending
from results.builder.summaries import Summary
from vrl_jax.errors import UserError
from vrl_jax.report import specs, style
from vrl_jax.report.figures import draw as draw_figure
from vrl_jax.report.reference import Reference

_DPI, _COLOURS = 110, 128  # keep a figure below 100 kB
CHECKSUM_KEY = 'Source'  # in the text metadata of a PNG


def file_name(summary: Summary, figure: str) -> str:
  """The file name of a figure of a sweep."""
  return f'{summary.name}.png' if figure in (summary.name, 'loss') else f'{summary.name}_{figure}.png'


def draw(summary: Summary, figure: str, folder: pathlib.Path) -> pathlib.Path:
  """Draws one of the figures in the config of the sweep; returns the written file."""
  found = [one for one in specs.figures(summary.sweep, None) if one.name == figure]
  if not found and figure != sending.FIGURE:
    known = ', '.join(one.name for one in specs.figures(summary.sweep, None))
    raise UserError(f'{summary.name}: no figure {figure!r}, must be one of {known}')
  path = folder / file_name(summary, figure)
  sweep, spec = (summary.sweep, found[0]) if found else (sending.over_slow_link(summary), sending.seconds_figure())
  with mpl.rc_context(style.RC):
    canvas = draw_figure(sweep.runs, spec, tuple(_references(summary)))
    canvas.savefig(png := io.BytesIO(), dpi=_DPI)
  metadata = PngInfo()
  metadata.add_text(CHECKSUM_KEY, checksum(summary, figure))
  with Image.open(png) as image:
    image.convert('RGB').quantize(_COLOURS).save(path, optimize=True, pnginfo=metadata)
  return path


def checksum(summary: Summary, figure: str = '') -> str:
  """A checksum of the data that a figure of a sweep shows."""
  sweep = sending.over_slow_link(summary) if figure == sending.FIGURE else summary.sweep
  data = repr((sweep, [(one.label, one.columns['train_loss'].tolist()) for one in _references(summary)]))
  return hashlib.sha256(data.encode()).hexdigest()[:16]


def stored_checksum(path: pathlib.Path) -> str | None:
  """The checksum in the metadata of a figure."""
  with Image.open(path) as image:
    return image.info.get(CHECKSUM_KEY)


def _references(summary: Summary) -> list[Reference]:
  """The published curves, for runs that start at their initial loss (`init_loss`)."""
  if summary.sweep.runs[0].config.get('init_loss') is None:
    return []
  return list(published.matching(summary.sweep).values())
