"""The algorithm of a config, and a check that it fits the model and the workers."""

import contextlib
import inspect
from typing import Any

import jax
import ml_collections

from vrl_jax.algorithms import Algorithm, overlapped, precede, quantised, streaming
from vrl_jax.algorithms.core.axes import AXES, OnDevice
from vrl_jax.config.algorithms import algorithm_factory, algorithm_options, custom_fields
from vrl_jax.config.dotted import is_dotted, user_code
from vrl_jax.config.optimizers import clipping, inner_optimizer
from vrl_jax.engine.periods import Periods
from vrl_jax.errors import UserError
from vrl_jax.jaxprs import jaxprs_in
from vrl_jax.tasks.task import task_fields, task_names


def make_algorithm(config: ml_collections.ConfigDict, steps: int) -> Algorithm:
  """The config's algorithm around its inner optimizer.

  >>> import numpy as np
  >>> from vrl_jax.config.files import load_config
  >>> config = load_config('quadratic')
  >>> config.algorithm, config.alpha = 'easgd', 0.25
  >>> make_algorithm(config, steps=100).transform.init(np.zeros(1))._fields
  ('inner', 'centre')
  """
  factory = algorithm_factory(config.algorithm)
  options = {name: config[name] for name in algorithm_options(config.algorithm)}
  if 'seed' in inspect.signature(factory).parameters:
    options['seed'] = config.seed
  inner = inner_optimizer(config, steps)
  try:
    with _user_code(config):
      algorithm = factory(inner, axis_name=AXES, **options)
  except ValueError as error:
    raise UserError(f'algorithm={config.algorithm!r}: {error}') from error
  if not isinstance(algorithm, Algorithm):
    kind = type(algorithm).__name__
    raise UserError(f'algorithm={config.algorithm!r} returns a {kind}, must return a vrl_jax.Algorithm')
  algorithm = _sent(config, algorithm)
  return precede(clipping(config), algorithm) if config.clip_norm else algorithm


def _sent(config, algorithm):
  """The algorithm with the config's way of sending models."""
  for field, off, combinator in (('fragments', 1, streaming), ('delay', 0, overlapped), ('bits', 32, quantised)):
    if config[field] != off:
      try:
        algorithm = combinator(algorithm, config[field])
      except ValueError as error:
        raise UserError(f'{field}={config[field]} with algorithm={config.algorithm!r}: {error}') from error
  return algorithm


def check_delay(config: ml_collections.ConfigDict, periods: Periods) -> None:
  """Raises UserError if transfers would take longer than there is until the next one.

  >>> from vrl_jax.config.fields import default_config
  >>> from vrl_jax.engine.periods import make_periods
  >>> config = default_config()
  >>> config.update(fragments=4, delay=6)
  >>> check_delay(config, make_periods(steps=100, period=20))
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: delay=6 with period=20 and fragments=4, must be at most 5, when the next transfer starts
  """
  longest = max([periods.period, periods.max_period or 0, *(period for _, period in periods.stages)])
  if config.delay > longest // config.fragments:
    raise UserError(
      f'delay={config.delay} with period={longest} and fragments={config.fragments}, must be at most '
      f'{longest // config.fragments}, when the next transfer starts'
    )


def check_option_names(config: ml_collections.ConfigDict) -> None:
  """Raises UserError if an option of the algorithm has the name of a field of the task.

  >>> from vrl_jax.config.files import load_config
  >>> check_option_names(load_config('quadratic'))
  """
  own, of_task = (
    [field.name for field in fields] for fields in (custom_fields(config.algorithm), _task_fields(config))
  )
  if clash := set(own).intersection(of_task):
    raise UserError(
      f'algorithm={config.algorithm!r}: its option {min(clash)!r} is already a field of the task; rename it'
    )


def check_algorithm(
  config: ml_collections.ConfigDict, algorithm: Algorithm, params: Any, *, given: bool = False
) -> None:
  """Raises UserError if the algorithm refuses the number of workers or the parameters; it is traced, not run.

  Args:
    config: the config.
    algorithm: made from it, or given.
    params: the shapes of the parameters of one worker.
    given: whether the algorithm was given as an object, which the config only names.

  >>> import numpy as np
  >>> from vrl_jax.config.files import load_config
  >>> config = load_config('quadratic')
  >>> config.update(algorithm='easgd', alpha=0.5, workers=2)
  >>> check_algorithm(config, make_algorithm(config, steps=100), np.zeros(1, np.float32))
  >>> config.workers = 8
  >>> try:
  ...   check_algorithm(config, make_algorithm(config, steps=100), np.zeros(1, np.float32))
  ... except UserError as error:
  ...   print(error)
  alpha=0.5 with 8 workers gives N·alpha = 4 > 1, which is unstable: alpha must be at most 1/N = 0.125
  """
  name = f'algorithm={config.algorithm!r}'
  if not isinstance(algorithm, Algorithm):
    raise UserError(f'{name} is a {type(algorithm).__name__}, must be a vrl_jax.Algorithm')

  def period(params):
    begin = algorithm.transform.init(params)
    _, stepped = algorithm.transform.update(params, begin, params)
    model, end = algorithm.communicate(params, stepped)
    algorithm.correction(end)
    return begin, stepped, end, [params, model, algorithm.consensus(model, end)]

  over_workers = jax.vmap(jax.vmap(period, axis_name=AXES[1]), axis_name=AXES[0])
  shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, config.workers, *x.shape), x.dtype), params)
  axes = [(AXES[0], 1), (AXES[1], config.workers)]
  try:
    with user_code(name, pass_on=ValueError) if given else _user_code(config):
      begin, stepped, end, models = jax.eval_shape(over_workers, shapes)
      names = axes_of_collectives(jax.make_jaxpr(period, axis_env=axes)(params).jaxpr)
  except ValueError as error:
    raise UserError(str(error)) from error
  pairs = {
    'transform.update returns another state than it takes': (begin, stepped),
    'communicate returns another state than it takes': (stepped, end),
    'communicate returns other parameters than it takes': models[:2],
    'consensus returns other parameters than it takes': models[1:],
  }
  for problem, (before, after) in pairs.items():
    if difference := _difference(before, after):
      raise UserError(f'{name}: {problem}, {difference}')
  if any(axis == AXES[1] and not isinstance(axis, OnDevice) for axis in names):
    raise UserError(
      f'{name}: a collective over the axis {str(AXES[1])!r} reaches the workers of one device only; '
      'make the algorithm with axis_name=vrl_jax.AXES'
    )


def axes_of_collectives(jaxpr: Any) -> list[str]:
  """The names of the mapped axes in a jaxpr, as they were given.

  >>> axes_of_collectives(jax.make_jaxpr(lambda x: jax.lax.pmean(x, 'w'), axis_env=[('w', 2)])(1.0).jaxpr)
  ['w']
  """
  found: list[str] = []
  for equation in jaxpr.eqns:
    axes = equation.params.get('axes', equation.params.get('axis_name'))
    found += [axis for axis in (axes if isinstance(axes, tuple) else (axes,)) if isinstance(axis, str)]
    for sub in jaxprs_in(equation):
      found += axes_of_collectives(sub)
  return found


def _task_fields(config):
  return task_fields(config.task) if config.task in task_names() or is_dotted(config.task) else ()


def _user_code(config):
  """Reports in one line what the user's own algorithm raises; an error in a registered one keeps its type."""
  return user_code(f'algorithm={config.algorithm!r}') if is_dotted(config.algorithm) else contextlib.nullcontext()


def _difference(before, after):
  """The first leaf in which two trees of a worker's arrays differ; '' if none does."""
  kinds = [
    {jax.tree_util.keystr(path) or 'the value': f'{x.dtype}{list(x.shape[2:])}' for path, x in leaves}
    for leaves in map(jax.tree_util.tree_leaves_with_path, (before, after))
  ]
  for name in dict.fromkeys([*kinds[1], *kinds[0]]):
    there, here = (kind.get(name, 'nothing') for kind in kinds)
    if there != here:
      return f'{name}: {here} and not {there}'
  structures = [str(jax.tree.structure(tree)) for tree in (before, after)]
  return '' if structures[0] == structures[1] else f'{structures[1]:.200} and not {structures[0]:.200}'
