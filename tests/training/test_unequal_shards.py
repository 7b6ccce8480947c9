"""Runs on shards of unequal size minimise and report the mean over the workers."""

import json

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.launches import lines

import vrl_jax

WORKER = np.repeat(np.arange(4), [40, 8, 16, 24])
X = (WORKER**2 + 0.1 * np.random.default_rng(0).normal(size=88)).astype(np.float32)
MEANS = np.array([X[WORKER == i].mean() for i in range(4)])


def run(folder, algorithm, labels=WORKER, **options):
  loss = lambda x, batch: jnp.square(x - batch)
  defaults = {'workers': 4, 'period': 5, 'batch_size': 8, 'epochs': 100, 'eval_every': 50, 'partition': 'by_label'}
  return vrl_jax.fit(
    loss, X, params=np.float32(9), labels=labels, algorithm=algorithm, workdir=folder, quiet=True, **defaults | options
  )


@pytest.mark.parametrize('name', ['vrl_sgd', 's_sgd', 'scaffold'])
def test_every_worker_counts_the_same(name, tmp_path):
  result = run(tmp_path, vrl_jax.ALGORITHMS[name](optax.sgd(0.05)))
  assert abs(float(result.params) - MEANS.mean()) < 0.02 < 0.2 < abs(X.mean() - MEANS.mean())
  expected = np.mean([np.square(result.params - X[WORKER == i]).mean() for i in range(4)])
  assert result.summary['train_loss'] == pytest.approx(expected, rel=1e-5)
  assert result.summary['steps_per_epoch'] == 22 // 8
  partition = json.loads((tmp_path / 'partition.json').read_text())
  assert partition['dropped'] == 0 and partition['weights'] == pytest.approx((22 / np.array([40, 8, 16, 24])).tolist())


@pytest.mark.parametrize('feed', ['device', 'host'])
def test_it_does_not_depend_on_devices_and_feeds(feed, tmp_path):
  algorithm = vrl_jax.vrl_sgd(optax.sgd(0.05))
  histories = []
  for devices in (1, 2, 4):
    found = run(tmp_path / str(devices), algorithm, devices=devices, feed=feed, epochs=6, eval_every=2)
    assert found.summary['devices_used'] == devices
    histories.append(found.history['train_loss'])
  np.testing.assert_allclose(histories[1:], [histories[0]] * 2, rtol=1e-5)
  other = run(
    tmp_path / 'other', algorithm, devices=2, feed={'device': 'host', 'host': 'device'}[feed], epochs=6, eval_every=2
  )
  losses = lambda folder: [line['step_loss'] for line in lines(folder)]
  assert losses(tmp_path / 'other') == losses(tmp_path / '2')
  np.testing.assert_allclose(other.history['train_loss'], histories[1], rtol=1e-6)


def test_the_weights_are_said(tmp_path, capsys):
  loss = lambda x, batch: jnp.square(x - batch)
  vrl_jax.fit(
    loss, X, params=np.float32(9), labels=WORKER, algorithm=vrl_jax.vrl_sgd(optax.sgd(0.1)), workers=4, batch_size=8,
    epochs=1, partition='by_label', workdir=tmp_path,
  )  # fmt: skip
  said = 'shards of 8 to 40 examples: every worker counts the same, so that an example counts 0.55 to 2.75 times'
  assert said in capsys.readouterr().out


def test_labels_can_be_any_numbers(tmp_path):
  """Such as the identities of those from whom the examples are: nothing is as large as they are."""
  run(tmp_path, vrl_jax.vrl_sgd(optax.sgd(0.05)), labels=10**12 * WORKER, epochs=1)
  partition = json.loads((tmp_path / 'partition.json').read_text())
  assert partition['class_names'] == ['0', '1000000000000', '2000000000000', '3000000000000']
  assert partition['table'] == np.diag([40, 8, 16, 24]).tolist()
