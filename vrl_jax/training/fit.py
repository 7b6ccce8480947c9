"""`fit`: a model or a loss, data and an algorithm, trained with one call."""

import contextlib
import difflib
import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from vrl_jax.algorithms import Algorithm
from vrl_jax.cluster import processes
from vrl_jax.config.fields import algorithm_fields, default_config
from vrl_jax.errors import UserError
from vrl_jax.report import names
from vrl_jax.system.storage import expand_home
from vrl_jax.tasks.from_data import task_from_data
from vrl_jax.training.comparison import Comparison, compare
from vrl_jax.training.fit_name import name_of
from vrl_jax.training.loop import train_and_evaluate
from vrl_jax.training.run_result import RunResult


@overload
def fit(model: Any, data: Any = None, *, algorithm: Algorithm, seeds: None = None, **options: Any) -> RunResult: ...


@overload
def fit(model: Any, data: Any = None, *, algorithm: Algorithm, seeds: Sequence[int], **options: Any) -> Comparison: ...


@overload
def fit(
  model: Any,
  data: Any = None,
  *,
  algorithm: Mapping[str, Algorithm],
  seeds: Sequence[int] | None = None,
  **options: Any,
) -> Comparison: ...


def fit(
  model: Any,
  data: Any = None,
  *,
  algorithm: Algorithm | Mapping[str, Algorithm],
  period: int = 20,
  workers: int = 8,
  partition: str = 'by_class',
  epochs: float = 10.0,
  batch_size: int = 32,
  test: Any = None,
  params: Any = None,
  labels: np.ndarray | None = None,
  seed: int = 0,
  seeds: Sequence[int] | None = None,
  workdir: str | os.PathLike | None = None,
  quiet: bool = False,
  **options: Any,
) -> RunResult | Comparison:
  """Trains a model with an algorithm, or with several to compare them.

  A shorthand for :func:`vrl_jax.train_and_evaluate` and :func:`vrl_jax.run_sweep`, with the same results.

  Args:
    model: a flax module, a pair of functions `init(rng) -> params` and `apply(params, inputs) -> outputs`, or a loss
      `(params, batch) -> scalar or [n]` as in :func:`vrl_jax.tasks.loss_task`, which needs `params`; or a
      :class:`vrl_jax.Task`, which has the data.
    data: the training data. For a model a pair `(x, y)` or a dict: `{'input': x, 'label': y}` is classification, with
      integers y [n], and `{'input': x, 'target': y}` regression; a pair is classification if y has one dimension and
      integers, else regression. For a loss any tree of arrays [n, ...].
    algorithm: an algorithm with its inner optimizer, such as `vrl_jax.vrl_sgd(optax.sgd(0.1))`, or a dict of several.
    period: k, the number of local steps between two communications.
    workers: N. Workers share devices, so there can be more of them than devices.
    partition: how the examples are divided among the workers: 'by_class', 'identical', 'dirichlet' or 'similarity'; or in
      shards of unequal size, 'by_label' or 'dirichlet_unequal'.
    epochs: the length of the run, unless `steps` is given.
    batch_size: the examples in a mini-batch of one worker.
    test: test data, in the form of `data`.
    params: the initial parameters, or a function `(rng) -> params`; a loss needs them.
    labels: int [n], by which the examples are divided among the workers; by default the classes.
    seed: the seed of the initial weights, the partition and the mini-batches.
    seeds: several seeds; everything is run with each.
    workdir: the run directory; the same call with the same directory resumes. By default a new temporary directory.
    quiet: prints nothing.
    options: further fields of the config, such as `steps`, `first_period`, `dirichlet_alpha`, `eval_every` or
      `devices`; `vrl-jax --help` explains them.

  Returns:
    The result of the run, or a :class:`vrl_jax.Comparison` if there are several algorithms or `seeds`.

  Raises:
    UserError: bad input. Its sub-class Diverged: a loss that is not finite (a comparison has it in `diverged`).
    Interrupted: SIGTERM or SIGINT was received; the same call with the same `workdir` resumes.

  >>> import flax.linen as nn, jax, numpy as np, optax, vrl_jax
  >>> y = np.repeat(np.arange(4), 32)
  >>> x = np.eye(4)[y] + 0.1 * np.random.default_rng(0).normal(size=(128, 4))
  >>> result = vrl_jax.fit(
  ...   nn.Dense(4), (x, y), algorithm=vrl_jax.vrl_sgd(optax.sgd(0.5)), period=4, workers=4, batch_size=8, quiet=True
  ... )
  >>> result.history['train_accuracy'][-1], jax.tree.map(np.shape, result.params)
  (1.0, {'bias': (4,), 'kernel': (4, 4)})
  """
  _check_algorithm(algorithm)
  task = task_from_data(model, data, test, params, labels)
  fields = {'period': period, 'workers': workers, 'partition': partition, 'batch_size': batch_size, 'seed': seed}
  length = {} if 'steps' in options else {'epochs': epochs}
  config = _config({'task': _task_name(model), **length, **fields}, options)
  folder = expand_home(workdir or processes.from_main(lambda: tempfile.mkdtemp(prefix='vrl-jax-')), 'workdir')
  with contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext():
    if isinstance(algorithm, Mapping):
      return compare(config, folder, task, algorithm, seeds)
    config.algorithm = name_of(algorithm)
    name = names.algorithm(config.algorithm)
    if seeds is not None:
      return compare(config, folder, task, {name: algorithm}, seeds)
    train_and_evaluate(config, folder, task=task, algorithm=algorithm)
  return RunResult(name, folder, algorithm=algorithm, task=task)


def _check_algorithm(algorithm):
  hint = 'must be a vrl_jax.Algorithm such as vrl_jax.vrl_sgd(optax.sgd(0.1)), or a dict of them by name'
  if isinstance(algorithm, Algorithm):
    return
  if not isinstance(algorithm, Mapping) or not algorithm:
    raise UserError(f'algorithm={algorithm!r:.80}, {hint}')
  for name, one in algorithm.items():
    if not isinstance(name, str) or not isinstance(one, Algorithm):
      raise UserError(f'algorithm: {name!r} is a {type(one).__name__}, {hint}')


def _config(fields, options):
  config = default_config()
  of_algorithm = {'algorithm', *algorithm_fields({**config, **options})}
  for name, value in {**fields, **options}.items():
    if name in of_algorithm:
      raise UserError(
        f'{name}={value!r:.80} belongs to the algorithm: set it there, as in algorithm=vrl_jax.vrl_sgd(optax.sgd(0.1))'
      )
    if name not in config or name == 'sweep':
      close = difflib.get_close_matches(name, list(config), n=1)
      raise UserError(f'fit has no option {name!r}' + (f'; did you mean {close[0]!r}?' if close else ''))
    try:
      config[name] = value.item() if isinstance(value, np.generic) else value
    except (TypeError, ValueError) as error:
      raise UserError(f'{name}={value!r:.80}: {error}') from error
  return config


def _task_name(model):
  if isinstance(model, tuple | list):
    return 'model'
  name = getattr(model, '__name__', type(model).__name__)
  return name if name.isidentifier() else 'loss'
