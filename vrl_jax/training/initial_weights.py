"""The common initial weights of a run: after a few epochs of plain SGD by one worker on all data, or at a given loss."""

import json
import pathlib
import sys

import flax.serialization
import jax
import ml_collections
import numpy as np
import optax

from vrl_jax.algorithms import local_sgd
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.cluster import processes
from vrl_jax.config.fields import initial_weights_fields
from vrl_jax.data.partition import identical
from vrl_jax.data.stream import index_stream
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.evaluation import make_evaluator
from vrl_jax.engine.feed import Feed
from vrl_jax.engine.placement import Placement, first_copy
from vrl_jax.engine.state import Model
from vrl_jax.errors import UserError
from vrl_jax.system.signals import StopRequest
from vrl_jax.system.storage import atomic_path, sha256
from vrl_jax.tasks.task import Task
from vrl_jax.training.orbax_errors import cause
from vrl_jax.training.progress import show_progress
from vrl_jax.training.restore import describe_leaves

_ROUND = 50
_EVAL_CHUNK = 500


def initial_model(
  config: ml_collections.ConfigDict,
  task: Task,
  directory: pathlib.Path,
  data: dict[str, str],
  stop: StopRequest | None = None,
  placement: Placement | None = None,
) -> Model:
  """The task's initial model, trained for `config.init_epochs` epochs by one worker with plain SGD.

  With `config.init_loss` the SGD stops at the first step whose loss over all training data is at most that. The
  weights are stored in `directory`, so that all runs of a sweep start from the same. A damaged file is computed again,
  with a line on stderr. Only process 0 computes or reads them; `Placement.from_main` sends them to the other processes.

  Args:
    config: a complete config; its batch size, learning rate, weight decay and seed are used.
    task: the config's task.
    directory: where the weights are stored.
    data: the task's `vrl_jax.training.fingerprint.data_fields`; weights of other data are not used.
    stop: asked between rounds.
    placement: of the run. If it divides models over islands, the model is drawn and trained on this process's part of
      an island; else, and without a placement, on one device.

  Returns:
    NumPy parameters and batch statistics.

  Raises:
    UserError: the loss does not fall to `config.init_loss` within `config.init_epochs`.
    Interrupted: a signal was received.

  >>> import tempfile
  >>> from vrl_jax.config.files import load_config
  >>> from vrl_jax.tasks.task import make_task
  >>> from vrl_jax.training.fingerprint import data_fields
  >>> config = load_config('quadratic')
  >>> task = make_task(config)
  >>> data = data_fields(task)
  >>> initial_model(config, task, pathlib.Path('.'), data).params  # init_epochs=0: not trained
  array([1.], dtype=float32)
  >>> config.init_epochs = 30.0
  >>> with tempfile.TemporaryDirectory() as directory:
  ...   x = initial_model(config, task, pathlib.Path(directory), data).params
  ...   again = initial_model(config, task, pathlib.Path(directory), data).params  # from the file
  >>> bool(abs(x[0]) < 1), bool(x == again)
  (True, True)
  """
  one_worker = _one_worker(placement)
  model = Model(_draw(task, config.seed, one_worker), task.batch_stats)
  if not config.init_epochs or not processes.is_main():
    return model
  path = directory / f'initial_{_key(config, data)}.msgpack'
  stored = _read(path, model)
  if stored is None:
    stored = _plain_sgd(config, task, model, stop or StopRequest(), one_worker)
    _write(path, stored)
  return stored


def _one_worker(placement):
  """A worker on one device, or on an island if only that can hold the model."""
  if placement is None or placement.island == 'replicated':
    return Placement((jax.local_devices()[0],), 1)
  devices = placement.local_devices[: placement.devices_per_island]
  return Placement(devices, 1, len(devices), placement.island)


def _draw(task, seed, placement):
  """The initial parameters as NumPy arrays."""
  key = jax.random.key(seed)
  if placement.devices_per_island == 1:
    return jax.tree.map(np.asarray, task.init(key))
  one_copy = lambda key: jax.tree.map(lambda x: jax.numpy.asarray(x)[None], task.init(key))
  shardings = jax.tree.map(lambda x: placement.state_sharding(x.shape, lead=1), jax.eval_shape(one_copy, key))
  return first_copy(jax.jit(one_copy, out_shardings=shardings)(key))


def _plain_sgd(config, task, model, stop, placement):
  stream = index_stream(identical(task.labels, 1, seed=config.seed), config.batch_size, config.seed)
  feed = Feed(task.train, stream, placement, frozen=task.frozen, where=config.feed)
  inner = optax.chain(optax.add_decayed_weights(config.weight_decay), optax.sgd(config.learning_rate))
  algorithm = local_sgd(inner, axis_name=AXES)
  engine = Engine(
    algorithm,
    task.loss,
    placement,
    feed.supply,
    seed=config.seed,
    batch_stats=config.batch_stats,  # for one worker all policies are the same
  )

  def advance(state, step, length):
    stop.check()
    state, token = engine.run(state, feed.items(step, length, 1), 1)
    token.block_until_ready()
    return state

  state = engine.init(*model)
  steps = round(config.init_epochs * stream.steps_per_epoch)
  with show_progress(total=steps, label='initial weights') as progress:
    if config.init_loss is None:
      for step in range(0, steps, _ROUND):
        state = advance(state, step, min(_ROUND, steps - step))
        progress.update(min(_ROUND, steps - step))
    else:
      evaluate, parts = make_evaluator(task.metrics, placement), feed.training_parts(_EVAL_CHUNK)

      def loss(state):
        model = engine.consensus(state)
        return evaluate(model.params, model.constants(feed.supply.frozen), parts)['loss']

      state = _until_loss(config, state, advance=advance, loss=loss, steps=steps, progress=progress)
  return first_copy(engine.consensus(state))


def _until_loss(config, state, *, advance, loss, steps, progress):
  """Trains round by round until a round ends at `init_loss` or lower, then repeats that round step by step."""
  value = loss(state)
  for step in range(0, steps, _ROUND):
    length, before = min(_ROUND, steps - step), jax.tree.map(lambda x: x.copy(), state)  # the state is donated
    state = advance(state, step, length)
    value = loss(state)
    progress.update(length)
    if value <= config.init_loss:
      break
  else:
    raise UserError(
      f'init_loss={config.init_loss:g}: the train loss is still {value:.4g} after init_epochs={config.init_epochs:g}; '
      'increase init_epochs or init_loss'
    )
  state = before
  for single_step in range(step, step + length):
    state = advance(state, single_step, 1)
    if loss(state) <= config.init_loss:
      break
  return state


def _key(config, data):
  """What the weights depend on, as a part of a file name: other data give another file."""
  fields = initial_weights_fields(json.loads(config.to_json_best_effort()))
  return sha256(json.dumps(fields | data, sort_keys=True))[:12]


def _write(path, model):
  content = {'model': flax.serialization.to_state_dict(model), 'leaves': describe_leaves(model, checksums=True)}
  with atomic_path(path) as temporary:
    temporary.write_bytes(flax.serialization.msgpack_serialize(content))


def _read(path, template):
  """The stored model; None if there is none that is intact and fits, so that it is computed again."""
  try:
    stored = flax.serialization.msgpack_restore(path.read_bytes())
    model = flax.serialization.from_state_dict(template, stored['model'])
    if describe_leaves(model, checksums=True) != stored['leaves']:
      raise ValueError('checksums differ')
    if describe_leaves(model) != describe_leaves(template):
      raise ValueError('it is of another model')
    return jax.tree.map(np.asarray, model)
  except FileNotFoundError:
    return None
  except Exception as error:  # damaged files make msgpack and flax raise errors of many types
    print(f'{path}: cannot be used ({cause(error)}); computing the initial weights again', file=sys.stderr)
    return None
