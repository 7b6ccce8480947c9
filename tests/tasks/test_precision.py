"""compute_dtype and matmul_precision: of the loss alone, with float32 parameters, corrections and optimizer state."""

import functools
import pathlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vrl_jax
from vrl_jax.jaxprs import jaxprs_in
from vrl_jax.models.lenet import LeNet
from vrl_jax.models.mlp import MLP
from vrl_jax.models.textcnn import TextCNN
from vrl_jax.tasks import classification_task, loss_task, regression_task
from vrl_jax.tasks.precision import with_precision
from vrl_jax.tasks.quadratic import make_task as make_quadratic
from vrl_jax.training.experiment import make_experiment

LABELS = np.arange(4)


@functools.cache
def make(name):
  random = np.random.default_rng(0)
  features = random.normal(size=(4, 8)).astype(np.float32)
  if name.startswith('lenet'):
    images = {'input': random.normal(size=(4, 32, 32)).astype(np.float32), 'label': LABELS}
    return classification_task(LeNet(10, batch_norm='batch norm' in name), images)
  if name == 'textcnn':
    texts = {'input': random.integers(0, 9, (4, 50), np.int32), 'label': LABELS}
    embedding = {'embedding': random.normal(size=(9, 50)).astype(np.float32)}
    return classification_task(TextCNN(), texts, constants=embedding, dropout=True)
  if name == 'mlp':
    return classification_task(MLP(4, (16,)), {'input': features, 'label': LABELS})
  if name == 'regression':
    linear = (lambda rng: jax.random.normal(rng, (8, 2)), lambda w, x: x @ w)
    return regression_task(linear, {'input': features, 'target': features[:, :2]})
  return make_quadratic(vrl_jax.load_config('quadratic'))


PRODUCTS = ['lenet', 'lenet with batch norm', 'textcnn', 'mlp', 'regression']


def arguments(task):
  frozen = {**task.frozen, 'batch_stats': task.batch_stats} if task.batch_stats else task.frozen
  random = np.random.default_rng(1)
  draw = lambda x: jnp.asarray(0.2 * random.normal(size=x.shape), x.dtype)  # faster than compiling `init`
  params = jax.tree.map(draw, jax.eval_shape(task.init, jax.random.key(0)))
  return params, frozen, task.train, jax.random.key(1)


def gradient(task):
  return jax.value_and_grad(task.loss, has_aux=bool(task.batch_stats))


def products(task, fun=None):
  """The dtype and the precision of every product and convolution of the gradient, or of another function."""
  found = []

  def visit(jaxpr):
    for equation in jaxpr.eqns:
      if equation.primitive.name in ('dot_general', 'conv_general_dilated'):
        found.append((equation.outvars[0].aval.dtype.name, equation.params['precision']))
      for inner in jaxprs_in(equation):
        visit(inner)

  args = arguments(task)
  visit(jax.make_jaxpr(fun)(*args[:3]).jaxpr if fun else jax.make_jaxpr(gradient(task))(*args).jaxpr)
  return found


@pytest.fixture(autouse=True)
def standard_promotion():
  with jax.numpy_dtype_promotion('standard'):
    yield


SLOW = ('lenet with batch norm', 'textcnn')


@pytest.mark.parametrize(
  'name', [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in (*PRODUCTS, 'quadratic')]
)
def test_the_gradient_of_a_narrow_loss(name):
  task, narrow = make(name), with_precision(make(name), 'bfloat16')
  expected, computed = (jax.jit(gradient(one))(*arguments(one)) for one in (task, narrow))
  jax.tree.map(lambda a, b: np.testing.assert_equal((a.shape, a.dtype), (b.shape, b.dtype)), expected, computed)
  grads, narrow_grads = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(of[1])]) for of in (expected, computed))
  error = np.linalg.norm(narrow_grads - grads) / np.linalg.norm(grads)
  assert 0 < error < 0.2  # a max-pool may choose another pixel


@pytest.mark.parametrize('name', PRODUCTS)
def test_every_product_is_narrow(name):
  assert {dtype for dtype, _ in products(make(name))} == {'float32'}
  assert {dtype for dtype, _ in products(with_precision(make(name), 'bfloat16'))} == {'bfloat16'}


@pytest.mark.parametrize('name', ['lenet', 'textcnn', 'mlp'])
def test_the_precision_of_products(name):
  precise = with_precision(make(name), matmul_precision='highest')
  assert {p for _, p in products(precise)} == {(jax.lax.Precision.HIGHEST,) * 2}
  assert {p for _, p in products(precise, precise.metrics)} == {(jax.lax.Precision.HIGHEST,) * 2}


def test_metrics_are_not_narrow():
  task = with_precision(make('mlp'), 'bfloat16')
  assert 'bf16' not in str(jax.make_jaxpr(task.metrics)(*arguments(task)[:3]))


def test_a_loss_of_ones_own_gets_narrow_parameters():
  seen = []

  def loss(params, batch):
    seen.append((params.dtype.name, batch.dtype.name))
    return jnp.mean((params - batch.astype(params.dtype)) ** 2)

  task = with_precision(loss_task(loss, jnp.zeros(()), np.ones(4, np.float32)), 'bfloat16')
  assert jax.grad(task.loss)(*arguments(task)).dtype == jnp.float32
  assert seen[-1] == ('bfloat16', 'float32')


def test_without_a_choice_the_task_is_itself():
  assert with_precision(make('mlp')) is make('mlp')


def config(**fields):
  config = vrl_jax.default_config()
  config.update(workers=4, devices=2, batch_size=4, period=4, steps=80, learning_rate=0.1, eval_every=1e9)
  config.update(fields)
  return config


def clusters():
  """Two noisy classes that a linear model separates."""
  random = np.random.default_rng(0)
  labels = np.repeat([0, 1], 32)
  return classification_task(
    nn.Dense(2), {'input': random.normal(size=(64, 5)).astype(np.float32) + labels[:, None], 'label': labels}
  )


def test_a_run_computes_in_the_configs_precision(tmp_path):
  runs = [
    vrl_jax.train_and_evaluate(config(compute_dtype=dtype), tmp_path / str(dtype), task=clusters())
    for dtype in (None, 'bfloat16')
  ]
  assert runs[0]['train_loss'] != runs[1]['train_loss'] == pytest.approx(runs[0]['train_loss'], rel=0.03)


def test_the_state_of_a_run_is_float32_and_the_deltas_sum_to_zero():
  experiment = make_experiment(config(compute_dtype='bfloat16'), pathlib.Path('.'), task=clusters())
  state = experiment.engine.init(*experiment.model)
  for start in range(0, 16, 4):
    state, _ = experiment.engine.run(state, experiment.feed.items(start, 4, 1), 1)
  assert {x.dtype.name for x in jax.tree.leaves((state.params, state.opt_state))} == {'float32'}
  for delta in jax.tree.leaves(state.opt_state.delta):
    assert np.abs(delta).max() > 1e-2
    np.testing.assert_allclose(np.asarray(delta).sum(axis=(0, 1)), 0, atol=1e-6)


def test_initial_weights_do_not_depend_on_the_precision(tmp_path):
  fields = {'init_epochs': 1.0}
  models = [
    make_experiment(config(compute_dtype=dtype, **fields), tmp_path / str(dtype), task=clusters()).model
    for dtype in (None, 'bfloat16')
    if (tmp_path / str(dtype)).mkdir() is None
  ]
  jax.tree.map(np.testing.assert_array_equal, *models)
