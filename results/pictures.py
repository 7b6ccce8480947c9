"""Draws the figures from the summaries, with what they were drawn from written into them."""

import hashlib
import io
import pathlib

import matplotlib as mpl
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from results import published
from results.summaries import Summary
from vrl_jax.errors import UserError
from vrl_jax.report import figures, specs, style
from vrl_jax.report.reference import Reference

_DPI, _COLOURS = 110, 128  # a whole page stays below 100 kB
_KEY = 'Source'


def file_name(summary: Summary, figure: str) -> str:
  """The file of one of a sweep's figures."""
  return f'{summary.name}.png' if figure in (summary.name, 'loss') else f'{summary.name}_{figure}.png'


def draw(summary: Summary, figure: str, folder: pathlib.Path) -> pathlib.Path:
  """Draws one of the figures that the sweep's config names to a folder."""
  found = [one for one in specs.figures(summary.sweep, None) if one.name == figure]
  if not found:
    there = ', '.join(one.name for one in specs.figures(summary.sweep, None))
    raise UserError(f'{summary.name}: no figure {figure!r}; there are {there}')
  path = folder / file_name(summary, figure)
  with mpl.rc_context(style.RC):
    canvas = figures.draw(summary.sweep.runs, found[0], tuple(_references(summary)))
    canvas.savefig(drawn := io.BytesIO(), dpi=_DPI)
  about = PngInfo()
  about.add_text(_KEY, digest(summary))
  with Image.open(drawn) as image:
    image.convert('RGB').quantize(_COLOURS).save(path, optimize=True, pnginfo=about)
  return path


def digest(summary: Summary) -> str:
  """What the sweep's figures are drawn from, in a word."""
  drawn = repr((summary.sweep, [(one.label, one.columns['train_loss'].tolist()) for one in _references(summary)]))
  return hashlib.sha256(drawn.encode()).hexdigest()[:16]


def source(path: pathlib.Path) -> str | None:
  """The digest that is written into a figure."""
  with Image.open(path) as image:
    return image.info.get(_KEY)


def _references(summary) -> list[Reference]:
  """Published curves start where `init_loss` lets ours start."""
  if summary.sweep.runs[0].config.get('init_loss') is None:
    return []
  return list(published.of(summary.sweep).values())
