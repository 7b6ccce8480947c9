"""The consensus model of a checkpoint, read without the run."""

import pathlib
from typing import Any

import flax.traverse_util
import jax
import ml_collections
import numpy as np

from vrl_jax.algorithms import Algorithm
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.engine.state import Model, WorkerState, make_consensus
from vrl_jax.errors import DataError, UserError
from vrl_jax.training.algorithm import make_algorithm
from vrl_jax.training.given import read_given
from vrl_jax.training.restore import FOLDER, describe_leaves, read_metadata, read_state, stored_steps


def consensus_model(
  workdir: pathlib.Path, step: int | None = None, *, algorithm: Algorithm | None = None, params: Any = None
) -> Model:
  """The consensus model of a checkpoint as NumPy arrays: the mean over the workers, or as the algorithm defines it.

  Args:
    workdir: the run directory; it is only read.
    step: the step of the checkpoint; None for the latest.
    algorithm: the algorithm, if it was given to the run as an object.
    params: the shapes of the parameters, for their structure; None makes dicts, by the names of the parameters.

  >>> import contextlib, io, tempfile
  >>> from vrl_jax.config.files import load_config
  >>> from vrl_jax.training.loop import train_and_evaluate
  >>> config = load_config('quadratic')
  >>> config.steps = 40
  >>> with tempfile.TemporaryDirectory() as workdir, contextlib.redirect_stdout(io.StringIO()):
  ...   _ = train_and_evaluate(config, workdir)
  ...   x = consensus_model(pathlib.Path(workdir)).params
  >>> type(x), x.shape, x.dtype
  (<class 'numpy.ndarray'>, (1,), dtype('float64'))
  """
  step = checkpoint_step(workdir, step)
  metadata = read_metadata(workdir, step)
  if algorithm is None and 'algorithm' in read_given(workdir):
    raise UserError(
      f'{workdir}: the algorithm of the run was given as an object, which is not stored; call vrl_jax.export_model with '
      'algorithm=, or export() of the result of vrl_jax.fit'
    )
  try:
    config = ml_collections.ConfigDict(metadata['config'])
    with jax.enable_x64(config.x64):
      algorithm = make_algorithm(config, steps=max(1, step)) if algorithm is None else algorithm
      template = _template(algorithm, metadata['leaves'], params)
      if params is None and [leaf[0] for leaf in describe_leaves(template)] != [leaf[0] for leaf in metadata['leaves']]:
        raise UserError(
          f'{workdir}: the parameters are in a structure that is not stored (no tree of dicts and lists); call '
          'vrl_jax.export_model with params=, a tree of the same structure'
        )
      state = read_state(workdir, step, template, metadata)
      one = make_consensus(algorithm, config.get('batch_stats'))
      over_workers = jax.vmap(jax.vmap(one, axis_name=AXES[1]), axis_name=AXES[0])
      model = over_workers(*jax.tree.map(lambda x: x[None], (state.params, state.opt_state, state.batch_stats)))
      return jax.tree.map(lambda x: np.asarray(x)[0, 0], model)
  except (AttributeError, KeyError) as error:
    raise DataError(
      f'{workdir}: the checkpoint of step {step} is from an incompatible version ({error}); export it with that version'
    ) from error


def checkpoint_step(workdir: pathlib.Path, step: int | None = None) -> int:
  """The step of a checkpoint of a run, by default of the latest.

  >>> checkpoint_step(pathlib.Path('nowhere'))
  Traceback (most recent call last):
    ...
  vrl_jax.errors.DataError: nowhere/checkpoints: no checkpoints; give the directory of a run that has saved one
  """
  steps = stored_steps(workdir)
  if not steps:
    raise DataError(f'{workdir / FOLDER}: no checkpoints; give the directory of a run that has saved one')
  if step is not None and step not in steps:
    raise UserError(f'step={step}, must be one of {", ".join(map(str, steps))}')
  return steps[-1] if step is None else step


def _template(algorithm, leaves, params):
  """The structure of the state, from the names of its leaves."""
  shapes = {tuple(name.split('/')): jax.ShapeDtypeStruct(tuple(shape), dtype) for name, dtype, shape, _ in leaves}
  named = flax.traverse_util.unflatten_dict({path: x for path, x in shapes.items() if path[0] != 'opt_state'})
  if params is not None:
    workers = named['step'].shape[0]
    named['params'] = jax.tree.map(lambda x: jax.ShapeDtypeStruct((workers, *x.shape), x.dtype), params)
  else:
    named['params'] = _with_sequences(named['params'])
  opt_state = jax.eval_shape(jax.vmap(algorithm.transform.init), named['params'])
  return WorkerState(opt_state=opt_state, **named)


def _with_sequences(tree):
  """Dicts with the keys '0', '1', ... as lists, which have the same names of leaves."""
  if not isinstance(tree, dict):
    return tree
  children = {name: _with_sequences(child) for name, child in tree.items()}
  numbers = [str(i) for i in range(len(children))]
  return [children[number] for number in numbers] if children.keys() == set(numbers) else children
