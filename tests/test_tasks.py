"""The tasks on embedded and on real data."""

import importlib
import operator
import os
import pathlib

import jax
import numpy as np
import optax
import pytest

from vrl_jax import initial, rounds
from vrl_jax.algorithms import vrl_sgd
from vrl_jax.arrangement import arrange
from vrl_jax.data.feed import Feed
from vrl_jax.data.partition import by_class, identical
from vrl_jax.data.stream import index_stream
from vrl_jax.errors import UserError
from vrl_jax.initial import initial_model
from vrl_jax.tasks.base import make_task, task_names
from vrl_jax.tasks.lenet_mnist import prepare_images
from vrl_jax.train import train_and_evaluate

DATA = os.environ.get('VRL_JAX_DATA')
real_data = pytest.mark.skipif(not DATA, reason='VRL_JAX_DATA is not set')


def config_of(name, **fields):
  config = importlib.import_module(f'configs.{name}').get_config()
  config.update(fields)
  return config


def small_lenet(**fields):
  return config_of('lenet_mnist', dataset='mnist_5k', devices=2, epochs=0.5, init_epochs=0.1, period=7, **fields)


def test_every_task_has_a_config_of_its_name():
  configs = {path.stem for path in pathlib.Path('configs').glob('*.py')}
  assert set(task_names()) <= configs


def test_images_are_resized_as_jax_does_and_normalised():
  images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8)
  expected = jax.image.resize(images.astype(np.float32) / 255, (3, 32, 32), 'bilinear')
  np.testing.assert_allclose(prepare_images(images), (np.asarray(expected) - 0.1307) / 0.3081, atol=1e-5)


def test_lenet_learns_the_embedded_digits(tmp_path):
  summary = train_and_evaluate(
    config_of('lenet_mnist', dataset='mnist_5k', devices=2, epochs=2.0, init_epochs=1.0, learning_rate=0.02), tmp_path
  )
  assert summary['status'] == 'finished' and summary['steps_per_epoch'] == 15
  assert summary['test_accuracy'] > 0.5
  assert {'train_loss', 'train_accuracy', 'test_loss', 'test_accuracy', 'examples_per_second'} <= summary.keys()


@pytest.mark.parametrize('partition', ['identical', 'dirichlet'])
def test_other_partitions_and_feeds_train_alike(tmp_path, partition):
  runs = [
    train_and_evaluate(small_lenet(partition=partition, feed=feed), tmp_path / feed) for feed in ('device', 'host')
  ]
  assert runs[0]['train_loss'] == pytest.approx(runs[1]['train_loss'], rel=1e-5)


def test_the_common_start_is_computed_once_and_depends_on_what_it_should(tmp_path):
  config = small_lenet()
  task = make_task(config)
  first = initial_model(config, task, tmp_path)
  (stored,) = tmp_path.glob('initial_*.msgpack')
  written = stored.stat().st_mtime_ns
  for other in (small_lenet(algorithm='local_sgd', workers=4), small_lenet(partition='identical')):
    jax.tree.map(np.testing.assert_array_equal, initial_model(other, task, tmp_path), first)
  assert stored.stat().st_mtime_ns == written
  initial_model(small_lenet(learning_rate=0.1), task, tmp_path)
  assert len(list(tmp_path.glob('initial_*.msgpack'))) == 2


def test_a_damaged_start_is_computed_again(tmp_path):
  config = small_lenet()
  task = make_task(config)
  first = initial_model(config, task, tmp_path)
  (stored,) = tmp_path.glob('initial_*.msgpack')
  stored.write_bytes(stored.read_bytes()[:1000])
  jax.tree.map(np.testing.assert_array_equal, initial_model(config, task, tmp_path), first)


def test_a_start_at_a_given_loss_is_the_first_step_that_has_it(tmp_path, monkeypatch):
  """Against plain optax, step by step, with the whole loss after each."""
  monkeypatch.setattr(initial, '_ROUND', 5)
  config = small_lenet(learning_rate=0.02, init_loss=2.25)
  config.init_epochs = 2.0
  task = make_task(config)
  params = task.init(jax.random.key(config.seed))
  tx = optax.chain(optax.add_decayed_weights(config.weight_decay), optax.sgd(config.learning_rate))
  stream = index_stream(identical(task.labels, 1, seed=config.seed), config.batch_size, config.seed)

  @jax.jit
  def step(params, state, batch):
    grads = jax.grad(task.loss)(params, task.frozen, batch, jax.random.key(0))
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state

  loss = jax.jit(lambda params: task.metrics(params, task.frozen, task.train)['loss'].mean())
  state, steps = tx.init(params), 0
  while loss(params) > config.init_loss:
    indices = stream.indices(steps, 1)[0, 0]
    params, state = step(params, state, jax.tree.map(operator.itemgetter(indices), task.train))
    steps += 1
  assert steps > 5 and steps % 5  # not in the first round, and within one
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5),
    initial_model(config, task, tmp_path).params,
    params,
  )


def test_a_loss_that_is_not_reached_is_told(tmp_path):
  config = small_lenet(init_loss=0.001)
  with pytest.raises(UserError, match='init_loss=0.001: the train loss is still 2.* after init_epochs=0.1'):
    initial_model(config, make_task(config), tmp_path)


@pytest.mark.parametrize(('form', 'by_xla'), [('xla', True), ('patches', False)])
def test_the_config_overrides_the_form_of_the_convolution(form, by_xla):
  task = make_task(small_lenet(conv_form=form))
  batch = jax.tree.map(lambda x: x[:4], task.train)
  program = jax.make_jaxpr(task.loss)(task.init(jax.random.key(0)), task.frozen, batch, jax.random.key(0))
  assert ('conv_general_dilated' in str(program)) == by_xla


def test_the_round_does_not_copy_the_data():
  """Images with a channel axis of one would be copied whole in every round."""
  config = small_lenet()
  task, arrangement = make_task(config), arrange(8, 2)
  feed = Feed(task.train, index_stream(by_class(task.labels, 8), 32), arrangement, frozen=task.frozen)
  algorithm = vrl_sgd(optax.sgd(0.1), axis_name=rounds.AXES)
  engine = rounds.Engine(algorithm, task.loss, arrangement, feed.supply)
  state = engine.init(jax.tree.map(np.asarray, task.init(jax.random.key(0))))
  lowered = engine.lower('run', state, feed.items(0, 5, 1), arrangement.replicate(np.int32(1)))
  on_one_device = sum(x.nbytes for x in jax.tree.leaves(feed.supply.data)) / 2
  assert lowered.compile().memory_analysis().temp_size_in_bytes < on_one_device + 5e6


@real_data
@pytest.mark.parametrize('name, steps', [('textcnn_dbpedia', 3), ('mlp_tiny_imagenet', 3)])
def test_real_data_trains(tmp_path, name, steps):
  config = config_of(name, data_dir=DATA, devices=2, init_epochs=0.0, period=3)
  config.epochs = None
  config.steps = steps
  summary = train_and_evaluate(config, tmp_path)
  assert summary['step'] == steps and np.isfinite(summary['train_loss'])


@real_data
@pytest.mark.slow
def test_lenet_on_mnist_vrl_sgd_tracks_s_sgd_and_local_sgd_lags(tmp_path):
  def final(algorithm):
    config = config_of('lenet_mnist', data_dir=DATA, algorithm=algorithm, eval_every=10.0)
    return train_and_evaluate(config, tmp_path / algorithm)['train_loss']

  (tmp_path / 'sweep.json').write_text('{}')  # so that the three share their start
  s_sgd, local_sgd, vrl_sgd_loss = final('s_sgd'), final('local_sgd'), final('vrl_sgd')
  assert vrl_sgd_loss <= 1.1 * s_sgd
  assert local_sgd >= 1.2 * vrl_sgd_loss
