"""The picture of the demo in the README and its numbers, from a run of `configs/demo.py`."""

import hashlib
import json
import pathlib
import tempfile
from importlib import metadata
from typing import Any

import matplotlib as mpl

from results import FOLDER
from results.builder.figures import CHECKSUM_KEY
from vrl_jax.cli.launch import main as launch
from vrl_jax.errors import UserError
from vrl_jax.report import read_sweep, specs, style
from vrl_jax.report.figures import draw
from vrl_jax.report.records import Run, Sweep

IMAGES = FOLDER.parent / 'docs' / 'images'
NAME = 'demo_loss'
COLUMNS = ('epoch', 'communications', 'train_loss')
_DIGITS = 3  # of the train losses in the picture
_FINAL_DIGITS = 6  # enough to round further without an error


def make_picture(workdir: pathlib.Path | None = None, target: pathlib.Path = IMAGES) -> list[pathlib.Path]:
  """Runs the demo and writes its picture and numbers.

  Args:
    workdir: a run directory that does not exist yet; None for a temporary one.
    target: the directory of the written files.

  Returns:
    The paths of the numbers and of the picture.

  Raises:
    UserError: the run directory exists, so it may hold a run of other code, or the run fails.
  """
  if workdir is not None and workdir.exists():
    raise UserError(f'{workdir}: already exists; give a new run directory')
  with tempfile.TemporaryDirectory() as folder:
    sweep = run_demo(workdir or pathlib.Path(folder, 'demo'))
  path = target / f'{NAME}.json'
  path.write_text(to_text(numbers(sweep)))
  return [path, draw_picture(path)]


def run_demo(workdir: pathlib.Path, *flags: str) -> Sweep:
  """Runs the demo and reads its runs; the flags are options of `launch.py`."""
  status = launch(['launch.py', '--config=configs/demo.py', f'--workdir={workdir}', *flags])
  if status:
    raise UserError(f'configs/demo.py failed with exit status {status}')
  return read_sweep(workdir)


def numbers(sweep: Sweep) -> dict[str, Any]:
  """The numbers that the picture shows: a curve for each run, and the final train losses."""
  return {
    'config': 'configs/demo.py',
    'jax': metadata.version('jax'),
    'final_train_loss': {run.name: _rounded(run.metrics[-1]['train_loss'], _FINAL_DIGITS) for run in sweep.runs},
    'curves': {run.name: _curve(run) for run in sweep.runs},
  }


def draw_picture(path: pathlib.Path) -> pathlib.Path:
  """Draws the stored numbers next to their file; the metadata of the PNG has a checksum of that file."""
  curves = json.loads(path.read_text())['curves']
  runs = []
  for name, curve in curves.items():
    points = zip(*(curve[column] for column in COLUMNS))
    metrics = tuple({'step': step, **dict(zip(COLUMNS, point))} for step, point in enumerate(points))
    runs.append(Run(name, {'algorithm': curve['algorithm']}, metrics, {'status': 'finished'}))
  picture = path.with_suffix('.png')
  with mpl.rc_context(style.RC):
    canvas = draw(runs, specs.Figure('loss', 'train_loss', ('epoch', 'communications')))
    canvas.savefig(picture, dpi=style.DPI, metadata={CHECKSUM_KEY: checksum(path)})
  return picture


def checksum(path: pathlib.Path) -> str:
  """A checksum of the file of the numbers."""
  return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def to_text(numbers: dict[str, Any]) -> str:
  """JSON with a line for each curve."""
  curves = ',\n'.join(f'  {json.dumps(name)}: {json.dumps(curve)}' for name, curve in numbers['curves'].items())
  head = [f'{json.dumps(key)}: {json.dumps(value)}' for key, value in numbers.items() if key != 'curves']
  return '{' + ',\n'.join([*head, f'"curves": {{\n{curves}\n}}']) + '}\n'


def _curve(run):
  columns = {column: [point[column] for point in run.metrics] for column in COLUMNS}
  columns['communications'] = [round(value) for value in columns['communications']]
  columns['train_loss'] = [_rounded(value, _DIGITS) for value in columns['train_loss']]
  return {'algorithm': run.algorithm, **columns}


def _rounded(value, digits):
  return float(f'{value:.{digits}g}')
