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
  """Runs the command; returns the exit status."""
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
  """A table of the run's checkpoints: step, time, size, train loss, which is the best."""
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
    path: a .msgpack (flax's own form of a tree of arrays) or .npz file (an array for each parameter, `a/b` for b in a).
    step: the checkpoint's.
    force: whether to write over `path`.
  """
  if path.suffix not in _WRITERS:
    raise UserError(f'{path}: the name must end in one of {", ".join(_WRITERS)}')
  if step not in (steps := stored_steps(workdir)):
    raise UserError(f'--step={step}: there are checkpoints of step {", ".join(map(str, steps))}')
  if path.exists() and not force:
    raise UserError(f'{path}: is there already; --force writes over it')
  params = consensus(workdir, step)
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  try:
    temporary.write_bytes(_WRITERS[path.suffix](params))
    temporary.replace(path)
  except OSError as error:
    temporary.unlink(missing_ok=True)
    raise UserError(f'{path}: cannot be written ({error.strerror})') from error
  count = sum(x.size for x in jax.tree.leaves(params))
  return f'{path}: the consensus model of step {step}, {count:,} parameters, {_size(path.stat().st_size)}'


def consensus(workdir: pathlib.Path, step: int) -> Any:
  """The model that a checkpoint's workers agree on, as NumPy arrays: the mean, or whatever the algorithm says it is."""
  about = read_about(workdir, step)
  try:
    config = ml_collections.ConfigDict(about['config'])
    with jax.enable_x64(config.x64):
      algorithm = make_algorithm(config, steps=max(1, step))
      state = read_state(workdir, step, _template(algorithm, about['leaves']), about)
      over_workers = jax.vmap(jax.vmap(algorithm.consensus, axis_name=rounds.AXES[1]), axis_name=rounds.AXES[0])
      params = over_workers(*jax.tree.map(lambda x: x[None], (state.params, state.opt_state)))
      return jax.tree.map(lambda x: np.asarray(x)[0, 0], params)
  except (AttributeError, KeyError) as error:
    raise DataError(f'{workdir}: the checkpoint of step {step} is of another version: {error}') from error


def _template(algorithm, leaves):
  """The state's structure, from the names of the parameters in it."""
  flat = {
    tuple(name.split('/')[1:]): jax.ShapeDtypeStruct(tuple(shape), dtype)
    for name, dtype, shape, _ in leaves
    if name.split('/')[0] == 'params'
  }
  params = flat[()] if () in flat else flax.traverse_util.unflatten_dict(flat)
  others = {name: jax.ShapeDtypeStruct(tuple(shape), dtype) for name, dtype, shape, _ in leaves}
  opt_state = jax.eval_shape(jax.vmap(algorithm.init), params)
  return rounds.WorkerState(params, opt_state, others['step'], others['loss_sum'])


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
