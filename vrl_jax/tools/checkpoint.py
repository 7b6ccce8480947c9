"""Lists the checkpoints of a run, or exports the consensus model of a checkpoint for use without vrl_jax.

    python -m vrl_jax.tools.checkpoint WORKDIR
    python -m vrl_jax.tools.checkpoint WORKDIR --export model.npz [--step 400]

It only reads the run directory, so the run may still be in progress. docs/export.md shows how to load the model.
"""

import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
from absl import logging

from vrl_jax.errors import DataError
from vrl_jax.report.names import format_bytes
from vrl_jax.tools.arguments import ArgumentParser, expanded_path, reports_errors
from vrl_jax.training.checkpoint import best_step
from vrl_jax.training.consensus import checkpoint_step
from vrl_jax.training.export import FORMATS, export_model
from vrl_jax.training.restore import FOLDER, read_metadata, stored_steps


@reports_errors
def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit status.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   main([workdir])  # prints to stderr that there are no checkpoints
  3
  """
  parser = ArgumentParser(
    prog='python -m vrl_jax.tools.checkpoint',
    description='Lists the checkpoints of a run, or exports the consensus model of one for use without vrl_jax.',
  )
  parser.add_argument('workdir', type=expanded_path, help='run directory')
  parser.add_argument(
    '--export', type=expanded_path, metavar='FILE', help=f'export the model to FILE ({", ".join(FORMATS)})'
  )
  parser.add_argument('--step', type=int, help='step of the checkpoint to export; default: the latest')
  parser.add_argument('--force', action='store_true', help='overwrite FILE if it exists')
  args = parser.parse_args(argv)
  logging.set_verbosity(logging.FATAL)
  jax.config.update('jax_platforms', 'cpu')  # an accelerator is not needed, and may be in use
  step = checkpoint_step(args.workdir, args.step)
  if args.export is None:
    print(listing(args.workdir))
  else:
    print(export_model(args.workdir, args.export, step=step, overwrite=args.force))
  return 0


def listing(workdir: pathlib.Path) -> str:
  """A table of the checkpoints of a run: step, time, size and train loss; the best is marked.

  >>> import tempfile
  >>> import numpy as np
  >>> from vrl_jax.training.checkpoint import CheckpointWriter
  >>> metadata = {'seconds': 1.0, 'config': {}}
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   with CheckpointWriter.open(pathlib.Path(workdir)) as writer:
  ...     for step, loss in ((10, 0.25), (20, 0.5)):
  ...       writer.save(step, {'x': np.zeros(8)}, metadata | {'train_loss': loss})
  ...   for line in listing(pathlib.Path(workdir)).splitlines()[1:]:
  ...     print(line.split()[0], line.split()[5:])
  10 ['0.25', 'best']
  20 ['0.5']
  """
  checkpoints: dict[int, dict[str, Any] | None] = {}
  for step in stored_steps(workdir):
    try:
      checkpoints[step] = read_metadata(workdir, step)
    except DataError:
      checkpoints[step] = None
  best = best_step({step: metadata['train_loss'] if metadata else None for step, metadata in checkpoints.items()})
  rows = [f'{"step":>10}  {"time":19}  {"size":>10}  {"train loss":>12}']
  for step, metadata in checkpoints.items():
    size = sum(path.stat().st_size for path in (workdir / FOLDER / str(step)).rglob('*') if path.is_file())
    when = time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(metadata['time'])) if metadata else ''
    loss = f'{metadata["train_loss"]:12.6g}' if metadata else '  unreadable'
    rows.append(f'{step:>10}  {when:19}  {format_bytes(size):>10}  {loss}{"  best" if step == best else ""}')
  return '\n'.join(rows)


if __name__ == '__main__':
  sys.exit(main())
