"""classification_task, regression_task and loss_task."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vrl_jax.errors import UserError
from vrl_jax.tasks import classification_task, loss_task, regression_task
from vrl_jax.tasks.check import check_task

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)).astype(np.float32)
LABEL = np.arange(12) % 4
KEY = jax.random.key(0)


def values(task, data):
  params = task.init(KEY)
  return float(task.loss(params, task.frozen, data, KEY)), task.metrics(params, task.frozen, data)


def plain(outputs):
  return (lambda rng: jax.random.normal(rng, (3, outputs))), (lambda w, x: x @ w)


@pytest.mark.parametrize('model', [nn.Dense(4), plain(4)], ids=['flax', 'functions'])
def test_classification_with_modules_and_functions(model):
  data = {'input': X, 'label': LABEL}
  task = check_task(classification_task(model, data), batch_size=3, name='task')
  loss, metrics = values(task, data)
  apply = model[1] if isinstance(model, tuple) else lambda params, x: model.apply({'params': params}, x)
  logits = np.asarray(apply(task.init(KEY), X), float)
  expected = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(12), LABEL]
  np.testing.assert_allclose(metrics['loss'], expected, rtol=1e-5)
  assert loss == pytest.approx(expected.mean(), rel=1e-5)
  assert metrics['accuracy'].tolist() == (logits.argmax(axis=1) == LABEL).tolist()
  assert task.test is None and list(task.class_names) == ['0', '1', '2', '3']


@pytest.mark.parametrize('shape', [(), (1,), (2,)])
def test_regression_against_numpy(shape):
  target = RNG.normal(size=(12, *shape)).astype(np.float32)
  model = plain(2 if shape == (2,) else 1)
  data = {'input': X, 'target': target}
  task = check_task(regression_task(model, data, test=data), batch_size=3, name='task')
  loss, metrics = values(task, data)
  error = (X @ np.asarray(task.init(KEY))).reshape(target.shape) - target  # (12, 1) against (12,) does not broadcast
  np.testing.assert_allclose(metrics['loss'], (error**2).reshape(12, -1).mean(axis=1), rtol=1e-5)
  np.testing.assert_allclose(metrics['absolute_error'], np.abs(error).reshape(12, -1).mean(axis=1), rtol=1e-5)
  assert loss == pytest.approx((error**2).mean(), rel=1e-5) and task.labels.tolist() == [0] * 12


def test_a_mean_and_the_loss_of_each_example_are_the_same_task():
  data = {'a': X, 'b': (LABEL.astype(np.float32),)}
  each = lambda w, batch: (batch['a'] @ w - batch['b'][0]) ** 2
  tasks = [loss_task(loss, np.ones(3, np.float32), data) for loss in (each, lambda w, batch: each(w, batch).mean())]
  (loss, metrics), (loss_of_mean, metrics_of_mean) = (values(task, data) for task in tasks)
  assert loss == pytest.approx(loss_of_mean, rel=1e-6)
  np.testing.assert_allclose(metrics['loss'], metrics_of_mean['loss'], rtol=1e-6)


def test_a_loss_gets_a_key_in_training_only():
  seen = []
  loss = lambda x, batch, rng: seen.append(rng) or (x - batch) ** 2
  task = loss_task(loss, jnp.float32(0), X[:, 0], metrics=lambda x, batch: {'distance': jnp.abs(x - batch)})
  _, metrics = values(task, X[:, 0])
  assert seen[0] is KEY and set(seen[1:]) == {None} and set(metrics) == {'loss', 'distance'}


def test_initial_parameters_may_depend_on_the_key():
  task = loss_task(lambda x, batch: (x - batch) ** 2, lambda rng: jax.random.normal(rng), X[:, 0])
  assert float(task.init(jax.random.key(1))) != float(task.init(jax.random.key(2)))


DATA = {'input': X, 'label': LABEL}
REFUSED = {
  'a model that is none': (lambda: classification_task(print, DATA), 'must be a flax.linen module or a pair'),
  'no label': (lambda: classification_task(plain(4), {'input': X}), "^train has no 'label', only 'input'$"),
  'no dict': (lambda: classification_task(plain(4), (X, LABEL)), "^train is a tuple, must be a dict of arrays 'input'"),
  'test without input': (lambda: classification_task(plain(4), DATA, {'label': LABEL}), "^test has no 'input'"),
  'float labels': (
    lambda: classification_task(plain(4), DATA | {'label': LABEL / 1}),
    r"^train\['label'\] is float64 \[12\], must be integers \[n\]$",
  ),
  'one-hot labels': (lambda: classification_task(plain(4), DATA | {'label': np.eye(4, dtype=int)}), r'int64 \[4, 4\]'),
  'a negative label': (lambda: classification_task(plain(4), DATA | {'label': LABEL - 1}), 'the negative label -1'),
  'too few names': (lambda: classification_task(plain(4), DATA, class_names='ab'), 'label 3, but class_names has 2'),
  'too few outputs': (lambda: values(classification_task(plain(3), DATA), DATA), 'model has 3 outputs for 4 classes'),
  'constants of a function': (lambda: classification_task(plain(4), DATA, constants={'x': X}), 'are for flax modules'),
  'targets of another shape': (
    lambda: values(regression_task(plain(2), data := {'input': X, 'target': X}), data),
    r'^the model predicts \[2\] per example, but a target is \[3\]$',
  ),
}


@pytest.mark.parametrize('case', REFUSED)
def test_refused(case):
  make, message = REFUSED[case]
  with pytest.raises(UserError, match=message):
    make()
