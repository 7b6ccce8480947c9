"""The common start: the weights after a few epochs of plain single-stream SGD on all data, or at a given loss."""

import hashlib
import json
import os
import pathlib
import sys

import flax.serialization
import jax
import ml_collections
import numpy as np
import optax
from tqdm import tqdm

from vrl_jax import hosts, rounds
from vrl_jax.algorithms import local_sgd
from vrl_jax.arrangement import Arrangement, first_copy
from vrl_jax.config import algorithm_options
from vrl_jax.data.feed import Feed
from vrl_jax.data.partition import identical
from vrl_jax.data.stream import index_stream
from vrl_jax.errors import UserError
from vrl_jax.evaluation import make_evaluator
from vrl_jax.tasks.base import Task

_ROUND = 50
_EVAL_CHUNK = 500
# The start depends on every field but these and the algorithms' options.
_OF_THE_RUN = (
  'algorithm optimizer period first_period period_stages max_period workers devices epochs steps schedule warmup_steps '
  'momentum nesterov clip_norm batch_stats eval_every log_every_step partition dirichlet_alpha similarity_percent feed '
  'checkpoint_every checkpoint_minutes data_dir compilation_cache conv_form unroll '
  'workers_at_once tile_bytes steps_per_dispatch'
).split()


def initial_model(config: ml_collections.ConfigDict, task: Task, folder: pathlib.Path) -> rounds.Model:
  """The task's initial model, trained for `config.init_epochs` epochs by one worker with plain SGD.

  With `config.init_loss` the SGD stops earlier: at the first step whose loss over all training data is no higher.
  Computed once and stored in `folder`, so that the runs of a sweep start from the same weights. Of several processes
  only the first computes or reads them: `Arrangement.from_main` then gives them to the others.

  Args:
    config: a whole config; batch size, learning rate, weight decay and seed are the run's.
    task: the config's task.
    folder: where to look for the weights, and to store them.

  Returns:
    NumPy parameters and batch statistics.

  Raises:
    UserError: the loss does not fall to `config.init_loss` within `config.init_epochs`.

  >>> import tempfile
  >>> from vrl_jax.config_files import load_config
  >>> from vrl_jax.tasks.base import make_task
  >>> config = load_config('quadratic')
  >>> task = make_task(config)
  >>> initial_model(config, task, pathlib.Path('.')).params  # no epochs of training before the start
  array([1.], dtype=float32)
  >>> config.init_epochs = 30.0
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   x = initial_model(config, task, pathlib.Path(folder)).params
  ...   again = initial_model(config, task, pathlib.Path(folder)).params  # from the file
  >>> bool(abs(x[0]) < 1), bool(x == again)
  (True, True)
  """
  params = jax.tree.map(np.asarray, task.init(jax.random.key(config.seed)))
  model = rounds.Model(params, task.batch_stats)
  if not config.init_epochs or not hosts.is_main():
    return model
  path = folder / f'initial_{_fingerprint(config)}.msgpack'
  stored = _read(path, model)
  if stored is not None:
    return stored
  model = _plain_sgd(config, task, model)
  temporary = path.with_suffix(f'.{os.getpid()}.tmp')
  temporary.write_bytes(flax.serialization.to_bytes(model))
  temporary.replace(path)
  return model


def _plain_sgd(config, task, model):
  arrangement = Arrangement((jax.local_devices()[0],), 1)
  stream = index_stream(identical(task.labels, 1, seed=config.seed), config.batch_size, config.seed)
  feed = Feed(task.train, stream, arrangement, frozen=task.frozen, where=config.feed)
  inner = optax.chain(optax.add_decayed_weights(config.weight_decay), optax.sgd(config.learning_rate))
  algorithm = local_sgd(inner, axis_name=rounds.AXES)
  stats = {'batch_stats': config.batch_stats}  # to one worker all policies are the same
  engine = rounds.Engine(algorithm, task.loss, arrangement, feed.supply, seed=config.seed, **stats)

  def advance(state, step, length):
    state, token = engine.run(state, feed.items(step, length, 1), 1)
    token.block_until_ready()
    return state

  state = engine.init(*model)
  steps = round(config.init_epochs * stream.steps_per_epoch)
  with tqdm(total=steps, desc='initial weights', unit='step', leave=False, disable=not sys.stdout.isatty()) as bar:
    if config.init_loss is None:
      for step in range(0, steps, _ROUND):
        state = advance(state, step, min(_ROUND, steps - step))
        bar.update(min(_ROUND, steps - step))
    else:
      evaluate, parts = make_evaluator(task.metrics, arrangement), feed.training_parts(_EVAL_CHUNK)

      def loss(state):
        model = engine.consensus(state)
        return evaluate(model.params, model.others(feed.supply.frozen), parts)['loss']

      state = _until_loss(config, state, advance, loss, steps, bar)
  return first_copy(engine.consensus(state))


def _until_loss(config, state, advance, loss, steps, bar):
  """Goes in rounds to the first that ends at the wanted loss, and through that one step by step."""
  value = loss(state)
  for step in range(0, steps, _ROUND):
    length, before = min(_ROUND, steps - step), jax.tree.map(lambda x: x.copy(), state)  # the state is donated
    state = advance(state, step, length)
    value = loss(state)
    bar.update(length)
    if value <= config.init_loss:
      break
  else:
    raise UserError(
      f'init_loss={config.init_loss:g}: the train loss is still {value:.4g} after init_epochs={config.init_epochs:g}; '
      'give more of them or a higher loss'
    )
  state = before
  for one in range(step, step + length):
    state = advance(state, one, 1)
    if loss(state) <= config.init_loss:
      break
  return state


def _fingerprint(config):
  of_the_run = {*_OF_THE_RUN, *algorithm_options()}
  fields = {k: v for k, v in json.loads(config.to_json_best_effort()).items() if k not in of_the_run}
  return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]


def _read(path, template):
  """What is stored, if it is there and fits; a damaged file is computed anew."""
  try:
    stored = flax.serialization.from_bytes(template, path.read_bytes())
  except (OSError, ValueError, KeyError, TypeError):
    return None
  fits = jax.tree.map(lambda s, t: np.shape(s) == t.shape and np.asarray(s).dtype == t.dtype, stored, template)
  return jax.tree.map(np.asarray, stored) if all(jax.tree.leaves(fits)) else None
