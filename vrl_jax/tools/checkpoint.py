"""Lists the checkpoints of a run, or exports the consensus model of a checkpoint for use without vrl_jax.

    python -m vrl_jax.tools.checkpoint WORKDIR
    python -m vrl_jax.tools.checkpoint WORKDIR --export model.msgpack [--step 400]

It only reads the run directory, so the run may still be in progress. To load an exported model:

    params = flax.serialization.msgpack_restore(open('model.msgpack', 'rb').read())
    params = numpy.load('model.npz')  # 'Dense_0/kernel', …
"""

import io
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import flax.serialization
import flax.traverse_util
import jax
import ml_collections
import numpy as np
from absl import logging

from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.engine.state import Model, WorkerState, make_consensus
from vrl_jax.errors import DataError, UserError
from vrl_jax.report.names import format_bytes
from vrl_jax.storage import atomic_path
from vrl_jax.tools.arguments import ArgumentParser, reports_errors
from vrl_jax.training.algorithm import make_algorithm
from vrl_jax.training.checkpoint import best_step
from vrl_jax.training.restore import FOLDER, read_metadata, read_state, stored_steps


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
  parser.add_argument('workdir', type=pathlib.Path, help='run directory')
  parser.add_argument('--export', type=pathlib.Path, metavar='FILE', help='export the model to FILE (.msgpack or .npz)')
  parser.add_argument('--step', type=int, help='step of the checkpoint to export; default: the latest')
  parser.add_argument('--force', action='store_true', help='overwrite FILE if it exists')
  args = parser.parse_args(argv)
  logging.set_verbosity(logging.FATAL)
  steps = stored_steps(args.workdir)
  if not steps:
    raise DataError(f'{args.workdir / FOLDER}: no checkpoints; give the directory of a run that has saved one')
  if args.export is None:
    print(listing(args.workdir))
  else:
    print(export(args.workdir, args.export, steps[-1] if args.step is None else args.step, force=args.force))
  return 0


def listing(workdir: pathlib.Path) -> str:
  """A table of the checkpoints of a run: step, time, size and train loss; the best is marked.

  >>> import tempfile
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


def export(workdir: pathlib.Path, path: pathlib.Path, step: int, *, force: bool = False) -> str:
  """Writes the consensus model of a checkpoint; returns a line that describes it.

  Args:
    workdir: the run directory.
    path: a .msgpack file (flax's serialization of a tree of arrays) or an .npz file (one array per parameter, named by
      its path, such as `Dense_0/kernel`). With batch normalisation the tree is `params` and `batch_stats`.
    step: the step of the checkpoint.
    force: whether to overwrite `path`.

  >>> import contextlib, tempfile
  >>> from vrl_jax.config.files import load_config
  >>> from vrl_jax.training.loop import train_and_evaluate
  >>> config = load_config('quadratic')
  >>> config.steps = 40
  >>> with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
  ...   workdir, model = pathlib.Path(name), pathlib.Path(name, 'model.npz')
  ...   summary = train_and_evaluate(config, workdir)
  ...   line = export(workdir, model, step=40)
  ...   x = np.load(model)['params']
  >>> abs(float(x[0])) == summary['distance_to_optimum']
  True
  """
  if path.suffix not in _WRITERS:
    raise UserError(f'{path}: the suffix must be one of {", ".join(_WRITERS)}')
  if step not in (steps := stored_steps(workdir)):
    raise UserError(f'--step={step}, must be one of {", ".join(map(str, steps))}')
  if path.exists() and not force:
    raise UserError(f'{path}: already exists; use --force to overwrite it')
  model = consensus_model(workdir, step)
  content = model._asdict() if model.batch_stats else model.params
  try:
    with atomic_path(path) as temporary:
      temporary.write_bytes(_WRITERS[path.suffix](content))
  except OSError as error:
    raise UserError(f'{path}: cannot write the file ({error.strerror})') from error
  count = sum(x.size for x in jax.tree.leaves(model.params))
  return f'{path}: the consensus model of step {step}, {count:,} parameters, {format_bytes(path.stat().st_size)}'


def consensus_model(workdir: pathlib.Path, step: int) -> Model:
  """The consensus model of a checkpoint as NumPy arrays: the mean over the workers, or as the algorithm defines it.

  >>> import contextlib, tempfile
  >>> from vrl_jax.config.files import load_config
  >>> from vrl_jax.training.loop import train_and_evaluate
  >>> config = load_config('quadratic')
  >>> config.steps = 40
  >>> with tempfile.TemporaryDirectory() as workdir, contextlib.redirect_stdout(io.StringIO()):
  ...   _ = train_and_evaluate(config, workdir)
  ...   x = consensus_model(pathlib.Path(workdir), step=40).params
  >>> type(x), x.shape, x.dtype
  (<class 'numpy.ndarray'>, (1,), dtype('float64'))
  """
  metadata = read_metadata(workdir, step)
  try:
    config = ml_collections.ConfigDict(metadata['config'])
    with jax.enable_x64(config.x64):
      algorithm = make_algorithm(config, steps=max(1, step))
      state = read_state(workdir, step, _template(algorithm, metadata['leaves']), metadata)
      one = make_consensus(algorithm, config.get('batch_stats'))
      over_workers = jax.vmap(jax.vmap(one, axis_name=AXES[1]), axis_name=AXES[0])
      model = over_workers(*jax.tree.map(lambda x: x[None], (state.params, state.opt_state, state.batch_stats)))
      return jax.tree.map(lambda x: np.asarray(x)[0, 0], model)
  except (AttributeError, KeyError) as error:
    raise DataError(
      f'{workdir}: the checkpoint of step {step} is from an incompatible version ({error}); export it with that version'
    ) from error


def _template(algorithm, leaves):
  """The structure of the state, from the names of its leaves."""
  shapes = {tuple(name.split('/')): jax.ShapeDtypeStruct(tuple(shape), dtype) for name, dtype, shape, _ in leaves}
  named = flax.traverse_util.unflatten_dict({path: x for path, x in shapes.items() if path[0] != 'opt_state'})
  opt_state = jax.eval_shape(jax.vmap(algorithm.transform.init), named['params'])
  return WorkerState(opt_state=opt_state, **named)


def _npz(params):
  flat = flax.traverse_util.flatten_dict(params, sep='/') if isinstance(params, dict) else {'params': params}
  file = io.BytesIO()
  np.savez(file, **flat)
  return file.getvalue()


_WRITERS: dict[str, Callable[[Any], bytes]] = {'.msgpack': flax.serialization.to_bytes, '.npz': _npz}


if __name__ == '__main__':
  sys.exit(main())
