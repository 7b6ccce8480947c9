"""The common start: the weights after a few epochs of plain single-stream SGD on all data."""

import hashlib
import json
import os
import pathlib
import sys
from typing import Any

import flax.serialization
import jax
import ml_collections
import numpy as np
import optax
from tqdm import tqdm

from vrl_jax import rounds
from vrl_jax.algorithms import local_sgd
from vrl_jax.arrangement import Arrangement, first_copy
from vrl_jax.config import algorithm_options
from vrl_jax.data.feed import Feed
from vrl_jax.data.partition import identical
from vrl_jax.data.stream import index_stream
from vrl_jax.tasks.base import Task

_ROUND = 50
# The start depends on every field but these and the algorithms' options.
_OF_THE_RUN = (
  'algorithm optimizer period first_period period_stages workers devices epochs steps schedule warmup_steps momentum '
  'nesterov clip_norm eval_every log_every_step partition dirichlet_alpha similarity_percent feed checkpoint_every '
  'checkpoint_minutes data_dir compilation_cache'
).split()


def initial_params(config: ml_collections.ConfigDict, task: Task, folder: pathlib.Path) -> Any:
  """The task's initial parameters, trained for `config.init_epochs` epochs by one worker with plain SGD.

  Computed once and stored in `folder`, so that the runs of a sweep start from the same weights.

  Args:
    config: a whole config; batch size, learning rate, weight decay and seed are the run's.
    task: the config's task.
    folder: where to look for the weights, and to store them.

  Returns:
    NumPy parameters.
  """
  params = jax.tree.map(np.asarray, task.init(jax.random.key(config.seed)))
  if not config.init_epochs:
    return params
  path = folder / f'initial_{_fingerprint(config)}.msgpack'
  stored = _read(path, params)
  if stored is not None:
    return stored
  params = _plain_sgd(config, task, params)
  temporary = path.with_suffix(f'.{os.getpid()}.tmp')
  temporary.write_bytes(flax.serialization.to_bytes(params))
  temporary.replace(path)
  return params


def _plain_sgd(config, task, params):
  arrangement = Arrangement((jax.local_devices()[0],), 1)
  stream = index_stream(identical(task.labels, 1, seed=config.seed), config.batch_size, config.seed)
  feed = Feed(task.train, stream, arrangement, frozen=task.frozen, where=config.feed)
  inner = optax.chain(optax.add_decayed_weights(config.weight_decay), optax.sgd(config.learning_rate))
  engine = rounds.Engine(local_sgd(inner, axis_name=rounds.AXES), task.loss, arrangement, feed.supply, seed=config.seed)
  state = engine.init(params)
  steps = round(config.init_epochs * stream.steps_per_epoch)
  with tqdm(total=steps, desc='initial weights', unit='step', leave=False, disable=not sys.stdout.isatty()) as bar:
    for step in range(0, steps, _ROUND):
      length = min(_ROUND, steps - step)
      state, token = engine.run(state, feed.items(step, length, 1), 1)
      token.block_until_ready()
      bar.update(length)
  return first_copy(engine.consensus(state))


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
