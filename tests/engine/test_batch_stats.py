"""Batch normalisation: the statistics of each policy against NumPy, its traffic, and that there is no default."""

import functools
import importlib

import flax
import jax
import numpy as np
import optax
import pytest
from support import quadratics
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at
from support.launches import checkpoint_steps, leaves, lines
from support.tasks.normed import CLASSES, FEATURES, Normed

from vrl_jax.algorithms import s_sgd, vrl_sgd
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.config.fields import default_config
from vrl_jax.engine.batch_stats import POLICIES
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.feed import Supply
from vrl_jax.engine.placement import first_copy, place_workers
from vrl_jax.errors import Interrupted, UserError
from vrl_jax.tasks.task import make_task
from vrl_jax.tools import checkpoint, communication
from vrl_jax.training.loop import train_and_evaluate

WORKERS, BATCH, PERIOD, ROUNDS = 4, 5, 2, 3
STEPS = PERIOD * ROUNDS
KEEP = 0.9
STATS_BYTES = 4 * 2 * FEATURES  # of one layer
PARAMS_BYTES = 4 * (2 * 2 * FEATURES + FEATURES**2 + FEATURES + FEATURES * CLASSES + CLASSES)


def _batches(workers=WORKERS, batch=BATCH):
  """Inputs [N, T, B, F] whose mean and scale differ between the workers, and labels."""
  rng = np.random.default_rng(1)
  x = rng.normal(size=(WORKERS, STEPS, BATCH, FEATURES)) * np.arange(1, 5)[:, None, None, None]
  x += np.array([-6.0, 0.0, 1.0, 9.0])[:, None, None, None]
  label = rng.integers(0, CLASSES, (WORKERS, STEPS, BATCH))
  merge = lambda a: np.moveaxis(a, 0, 1).reshape(STEPS, workers, batch, *a.shape[3:]).swapaxes(0, 1)
  return merge(x), merge(label)


def _engine(policy, algorithm, devices=2, workers=WORKERS, batch=BATCH):
  model = Normed(stats_axis=AXES if policy == 'sync' else None)
  x, label = _batches(workers, batch)
  placement = place_workers(workers, devices)

  def loss(params, frozen, step, rng):
    del rng
    logits, changed = model.apply({'params': params, **frozen}, step['x'], train=True, mutable=['batch_stats'])
    return optax.softmax_cross_entropy_with_integer_labels(logits, step['label']).mean(), changed['batch_stats']

  supply = Supply(
    data=placement.split({'x': x, 'label': label}),
    fetch=lambda data, item: jax.tree.map(lambda a: a[item['place'], item['step']], data),
    frozen={},
  )
  engine = Engine(algorithm, loss, placement, supply, batch_stats=policy)
  variables = jax.tree.map(
    lambda a: np.asarray(a, np.float64), model.init(jax.random.key(0), x[0, 0].astype(np.float32))
  )
  steps = np.broadcast_to(np.arange(STEPS, dtype=np.int32).reshape(ROUNDS, PERIOD), (workers, ROUNDS, PERIOD))
  items = {'step': steps, 'place': quadratics.places(placement, ROUNDS, PERIOD)}
  state, _ = engine.run(engine.init(variables['params'], variables['batch_stats']), placement.split(items), ROUNDS)
  return engine, state


def _rate():
  return optax.sgd(0.1, momentum=0.5)


@functools.cache
def _run(policy, algorithm=vrl_sgd, **options):
  with jax.enable_x64(True), jax.numpy_dtype_promotion('standard'):  # flax's BatchNorm needs the latter for float64
    engine, state = _engine(policy, algorithm(_rate(), axis_name=AXES), **options)
    model = first_copy(engine.consensus(state))
    state = jax.tree.map(lambda a: np.asarray(a).reshape(-1, *a.shape[2:]), state)
  return state.params, state.batch_stats['BatchNorm_0'], model.params, model.batch_stats['BatchNorm_0']


def _expected(policy):
  """The running mean and variance [N, F] in NumPy."""
  x, _ = _batches()
  mean, var = np.zeros((WORKERS, FEATURES)), np.ones((WORKERS, FEATURES))
  for t in range(STEPS):
    batch = x[:, t]
    if policy == 'sync':
      batch = np.broadcast_to(batch.reshape(1, -1, FEATURES), (WORKERS, WORKERS * BATCH, FEATURES))
    mean = KEEP * mean + (1 - KEEP) * batch.mean(axis=1)
    var = KEEP * var + (1 - KEEP) * batch.var(axis=1)
    if policy == 'average' and (t + 1) % PERIOD == 0:
      mean, var = (np.broadcast_to(a.mean(axis=0), a.shape) for a in (mean, var))
  return mean, var


@pytest.mark.parametrize('devices', [1, 2, 4])
@pytest.mark.parametrize('policy', POLICIES)
def test_statistics_against_numpy(policy, devices):
  mean, var = _expected(policy)
  _, of_workers, _, of_consensus = _run(policy, devices=devices)
  np.testing.assert_allclose(of_workers['mean'], mean, rtol=1e-12)
  np.testing.assert_allclose(of_workers['var'], var, rtol=1e-10)
  between = mean.var(axis=0) if policy == 'local' else 0.0  # with the others all workers have the same statistics
  np.testing.assert_allclose(of_consensus['mean'], mean.mean(axis=0), rtol=1e-12)
  np.testing.assert_allclose(of_consensus['var'], var.mean(axis=0) + between, rtol=1e-10)
  assert policy != 'local' or between.min() > 1


def test_average_and_local_have_the_same_params_and_the_same_mean_statistics():
  average, local = _run('average', devices=2), _run('local', devices=2)
  jax.tree.map(np.testing.assert_array_equal, average[0], local[0])
  for name in ('mean', 'var'):
    np.testing.assert_allclose(average[1][name][0], local[1][name].mean(axis=0), rtol=1e-12)


def test_sync_with_s_sgd_is_one_worker_with_large_batches():
  """Also the backward pass: the gradient flows through the statistics of the other workers."""
  single = _run('local', s_sgd, devices=1, workers=1, batch=WORKERS * BATCH)
  for devices in (1, 2, 4):
    together = _run('sync', s_sgd, devices=devices)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), together[2:], single[2:])
  separate = _run('average', s_sgd)
  assert np.abs(separate[2]['Dense_1']['kernel'] - single[2]['Dense_1']['kernel']).max() > 1e-3


@pytest.fixture
def normed():
  """The config of the task `normed`, from outside the package."""

  def config(policy, **fields):
    config = default_config()
    config.task, config.batch_stats = 'support.tasks.normed:make_task', policy
    config.update(workers=4, devices=2, batch_size=4, period=4, steps=30, learning_rate=0.1, eval_every=1.0)
    config.update(checkpoint_every=1, **fields)
    return config

  return config


@pytest.mark.parametrize(
  ('policy', 'log_every_step'),
  [
    pytest.param('average', False, marks=pytest.mark.slow),
    pytest.param('local', False, marks=pytest.mark.slow),
    ('sync', False),
    ('local', True),
  ],
)
def test_an_interrupted_run_resumes_bit_for_bit(policy, log_every_step, normed, tmp_path, monkeypatch):
  config = normed(policy, init_epochs=1.0, log_every_step=log_every_step)
  train_and_evaluate(config, tmp_path / 'uninterrupted')
  with signal_at(monkeypatch, 12), pytest.raises(Interrupted):
    train_and_evaluate(config, tmp_path / 'stopped')
  assert train_and_evaluate(config, tmp_path / 'stopped')['resumed_from_step'] == 12
  assert lines(tmp_path / 'stopped') == lines(tmp_path / 'uninterrupted')
  last = checkpoint_steps(tmp_path / 'uninterrupted')[-1]
  assert leaves(tmp_path / 'stopped', last) == leaves(tmp_path / 'uninterrupted', last)
  assert any(leaf[0] == 'batch_stats/BatchNorm_0/var' for leaf in leaves(tmp_path / 'uninterrupted', last))


def test_an_exported_model_has_its_statistics(normed, tmp_path):
  summary = train_and_evaluate(normed('local'), tmp_path / 'run')
  path = tmp_path / 'model.msgpack'
  assert checkpoint.main([str(tmp_path / 'run'), '--export', str(path)]) == 0
  variables = flax.serialization.msgpack_restore(path.read_bytes())
  task = make_task(normed('local'))
  stats = {'batch_stats': variables['batch_stats']}
  metrics = task.metrics(variables['params'], stats, jax.tree.map(jax.numpy.asarray, task.test))
  assert float(metrics['loss'].mean()) == pytest.approx(summary['test_loss'], rel=1e-5)


@pytest.mark.parametrize('algorithm', ['vrl_sgd', 's_sgd'])
@pytest.mark.parametrize('policy', POLICIES)
def test_traffic_of_the_statistics(policy, algorithm, normed):
  one = communication.count_communication(normed(policy, algorithm=algorithm))
  model = {'vrl_sgd': (0, PARAMS_BYTES), 's_sgd': (PARAMS_BYTES, 0)}[algorithm]
  # 'sync': the moments of both layers in the forward pass, those of the second in the backward pass, because the
  # gradient of the data is not needed.
  extra = {'average': (0, 2 * STATS_BYTES), 'local': (0, 0), 'sync': (3 * STATS_BYTES, 0)}[policy]
  in_step, in_round = (a + b for a, b in zip(model, extra))
  assert sum(c.bytes for c in one.in_steps) == in_step
  assert sum(c.bytes for c in one.overlapping + one.after_steps) == in_round
  assert one.compiled == one.formula == 4 * in_step + in_round


def test_all_policies_have_the_same_initial_weights(normed, tmp_path):
  (tmp_path / 'sweep.json').write_text('{}')  # so that the runs share their initial weights
  for policy in POLICIES:
    train_and_evaluate(normed(policy, init_epochs=1.0), tmp_path / policy)
  assert len(list(tmp_path.glob('initial_*.msgpack'))) == 1
  first = [lines(tmp_path / policy)[0] for policy in POLICIES]
  assert first[0]['train_loss'] == first[1]['train_loss'] == first[2]['train_loss']


def test_a_missing_unknown_or_superfluous_policy_is_refused(normed, tmp_path):
  with pytest.raises(
    UserError, match="task='support.tasks.normed:make_task' has batch statistics.*batch_stats=average or local or sync"
  ):
    train_and_evaluate(normed(None), tmp_path / 'a')
  with pytest.raises(UserError, match="batch_stats='mean', must be one of average, local, sync"):
    train_and_evaluate(normed('mean'), tmp_path / 'b')
  quadratics = importlib.import_module('support.eight_quadratics').get_config()
  quadratics.batch_stats = 'sync'
  with pytest.raises(UserError, match="batch_stats='sync': the model of task='quadratic' has no batch statistics"):
    train_and_evaluate(quadratics, tmp_path / 'c')
