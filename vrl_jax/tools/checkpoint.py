"""Lists the checkpoints of a run, or exports the consensus model of one for use without vrl_jax.

    python -m vrl_jax.tools.checkpoint WORKDIR
    python -m vrl_jax.tools.checkpoint WORKDIR --export model.msgpack [--step 400]

It only reads, so it can look at a run that is going on.

    params = flax.serialization.msgpack_restore(open('model.msgpack', 'rb').read())
    params = numpy.load('model.npz')  # 'Dense_0/kernel', …
"""

import argparse
import io
import os
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

from vrl_jax import rounds
from vrl_jax.checkpoint import best_step
from vrl_jax.errors import DataError, UserError
from vrl_jax.experiment import make_algorithm
from vrl_jax.restore import FOLDER, read_about, read_state, stored_steps


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command; returns the exit status.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   main([workdir])  # says on stderr that there are no checkpoints
  3
  """
  parser = argparse.ArgumentParser(prog='python -m vrl_jax.tools.checkpoint', description=__doc__.split('\n')[0])
  parser.add_argument('workdir', type=pathlib.Path, help='the folder of a run')
  parser.add_argument('--export', type=pathlib.Path, metavar='FILE', help='a file to write: .msgpack or .npz')
  parser.add_argument('--step', type=int, help='which checkpoint to export; the newest if not given')
  parser.add_argument('--force', action='store_true', help='write over FILE if it is there')
  args = parser.parse_args(argv)
  logging.set_verbosity(logging.FATAL)
  try:
    steps = stored_steps(args.workdir)
    if not steps:
      raise DataError(f'{args.workdir / FOLDER}: there are no checkpoints')
    if args.export is None:
      print(listing(args.workdir))
    else:
      print(export(args.workdir, args.export, steps[-1] if args.step is None else args.step, force=args.force))
  except UserError as error:
    print(f'error: {error}', file=sys.stderr)
    return error.exit_status
  return 0


def listing(workdir: pathlib.Path) -> str:
  """A table of the run's checkpoints: step, time, size, train loss, which is the best.

  >>> import tempfile
  >>> from vrl_jax.checkpoint import Checkpoints
  >>> about = {'seconds': 1.0, 'config': {}}
  >>> with tempfile.TemporaryDirectory() as workdir:
  ...   with Checkpoints(pathlib.Path(workdir)) as checkpoints:
  ...     for step, loss in ((10, 0.25), (20, 0.5)):
  ...       checkpoints.save(step, {'x': np.zeros(8)}, about | {'train_loss': loss})
  ...   for line in listing(pathlib.Path(workdir)).splitlines()[1:]:
  ...     print(line.split()[0], line.split()[5:])
  10 ['0.25', 'best']
  20 ['0.5']
  """
  abouts = {}
  for step in stored_steps(workdir):
    try:
      abouts[step] = read_about(workdir, step)
    except DataError:
      abouts[step] = None
  best = best_step({step: about['train_loss'] if about else None for step, about in abouts.items()})
  rows = [f'{"step":>10}  {"time":19}  {"size":>10}  {"train loss":>12}']
  for step, about in abouts.items():
    size = sum(path.stat().st_size for path in (workdir / FOLDER / str(step)).rglob('*') if path.is_file())
    when = time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(about['time'])) if about else ''
    loss = f'{about["train_loss"]:12.6g}' if about else '  unreadable'
    rows.append(f'{step:>10}  {when:19}  {_size(size):>10}  {loss}{"  best" if step == best else ""}')
  return '\n'.join(rows)


def export(workdir: pathlib.Path, path: pathlib.Path, step: int, *, force: bool = False) -> str:
  """Writes the consensus model of a checkpoint; returns a line that says so.

  Args:
    workdir: the run's folder.
    path: a .msgpack (flax's own form of a tree of arrays) or .npz file (an array for each parameter, `a/b` for b in
      a); with batch normalisation it holds `params` and `batch_stats`.
    step: the checkpoint's.
    force: whether to write over `path`.

  >>> import contextlib, tempfile
  >>> from vrl_jax.config_files import load_config
  >>> from vrl_jax.train import train_and_evaluate
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
    raise UserError(f'{path}: the name must end in one of {", ".join(_WRITERS)}')
  if step not in (steps := stored_steps(workdir)):
    raise UserError(f'--step={step}: there are checkpoints of step {", ".join(map(str, steps))}')
  if path.exists() and not force:
    raise UserError(f'{path}: is there already; --force writes over it')
  model = consensus(workdir, step)
  content = model._asdict() if model.batch_stats else model.params
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  try:
    temporary.write_bytes(_WRITERS[path.suffix](content))
    temporary.replace(path)
  except OSError as error:
    temporary.unlink(missing_ok=True)
    raise UserError(f'{path}: cannot be written ({error.strerror})') from error
  count = sum(x.size for x in jax.tree.leaves(model.params))
  return f'{path}: the consensus model of step {step}, {count:,} parameters, {_size(path.stat().st_size)}'


def consensus(workdir: pathlib.Path, step: int) -> rounds.Model:
  """The model that a checkpoint's workers agree on, as NumPy arrays: the mean, or whatever the algorithm says it is.

  >>> import contextlib, tempfile
  >>> from vrl_jax.config_files import load_config
  >>> from vrl_jax.train import train_and_evaluate
  >>> config = load_config('quadratic')
  >>> config.steps = 40
  >>> with tempfile.TemporaryDirectory() as workdir, contextlib.redirect_stdout(io.StringIO()):
  ...   _ = train_and_evaluate(config, workdir)
  ...   x = consensus(pathlib.Path(workdir), step=40).params
  >>> type(x), x.shape, x.dtype
  (<class 'numpy.ndarray'>, (1,), dtype('float64'))
  """
  about = read_about(workdir, step)
  try:
    config = ml_collections.ConfigDict(about['config'])
    with jax.enable_x64(config.x64):
      algorithm = make_algorithm(config, steps=max(1, step))
      state = read_state(workdir, step, _template(algorithm, about['leaves']), about)
      one = rounds.consensus(algorithm, config.get('batch_stats'))
      over_workers = jax.vmap(jax.vmap(one, axis_name=rounds.AXES[1]), axis_name=rounds.AXES[0])
      model = over_workers(*jax.tree.map(lambda x: x[None], (state.params, state.opt_state, state.batch_stats)))
      return jax.tree.map(lambda x: np.asarray(x)[0, 0], model)
  except (AttributeError, KeyError) as error:
    raise DataError(f'{workdir}: the checkpoint of step {step} is of another version: {error}') from error


def _template(algorithm, leaves):
  """The state's structure, from the names of the parameters in it."""
  shapes = {tuple(name.split('/')): jax.ShapeDtypeStruct(tuple(shape), dtype) for name, dtype, shape, _ in leaves}
  named = flax.traverse_util.unflatten_dict({path: x for path, x in shapes.items() if path[0] != 'opt_state'})
  opt_state = jax.eval_shape(jax.vmap(algorithm.init), named['params'])
  return rounds.WorkerState(opt_state=opt_state, **named)


def _npz(params):
  flat = flax.traverse_util.flatten_dict(params, sep='/') if isinstance(params, dict) else {'params': params}
  file = io.BytesIO()
  np.savez(file, **flat)
  return file.getvalue()


_WRITERS: dict[str, Callable[[Any], bytes]] = {'.msgpack': flax.serialization.to_bytes, '.npz': _npz}


def _size(count):
  for unit in ('B', 'kB', 'MB'):
    if count < 1000:
      return f'{count:.3g} {unit}'
    count /= 1000
  return f'{count:.3g} GB'


if __name__ == '__main__':
  sys.exit(main())
