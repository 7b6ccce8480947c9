"""Exported models: every format is read without vrl_jax, and predicts the same."""

import json
import struct
import subprocess
import sys
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.mounts import mounted as mounted

import vrl_jax
from vrl_jax.errors import UserError
from vrl_jax.tools import checkpoint
from vrl_jax.training import export

Y = np.repeat(np.arange(3), 8)
X = np.random.default_rng(0).normal(size=(24, 5)).astype(np.float32)
MODEL = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(3)])
SMALL = {'workers': 2, 'period': 2, 'batch_size': 4, 'epochs': 1, 'quiet': True}
LOAD = """
import pathlib, sys
import flax
import flax.linen as nn
import flax.serialization
import numpy as np
import orbax.checkpoint

x = np.load('x.npy')
model = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(3)])
trees = {
  'npz': flax.traverse_util.unflatten_dict(dict(np.load('model.npz')), sep='/'),
  'msgpack': flax.serialization.msgpack_restore(open('model.msgpack', 'rb').read()),
  'orbax': orbax.checkpoint.StandardCheckpointer().restore(pathlib.Path('model.orbax').absolute()),
}
for name, params in trees.items():
  np.save(f'{name}.npy', model.apply({'params': params}, x))
assert 'vrl_jax' not in sys.modules
"""


def read_safetensors(path):
  """The arrays of a file, as its specification says."""
  content = path.read_bytes()
  (length,) = struct.unpack('<Q', content[:8])
  header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
  assert length % 8 == 0 and max(entry['data_offsets'][1] for entry in header.values()) == len(data)
  dtypes = {'F32': '<f4', 'F64': '<f8', 'I32': '<i4', 'BF16': jnp.bfloat16}
  array = lambda dtype, shape, ends: np.frombuffer(data[slice(*ends)], dtypes[dtype]).reshape(shape)
  return {name: array(*(entry[key] for key in ('dtype', 'shape', 'data_offsets'))) for name, entry in header.items()}


@pytest.fixture(scope='module')
def result():
  return vrl_jax.fit(MODEL, (X, Y), algorithm=vrl_jax.vrl_sgd(optax.sgd(0.1)), **SMALL)


def test_every_format_predicts_the_same_in_a_process_without_vrl_jax(result, tmp_path):
  for suffix in export.FORMATS:
    line = result.export(tmp_path / f'model{suffix}')
    assert 'model of step 3, 39 parameters, ' in line
  np.save(tmp_path / 'x.npy', X)
  done = subprocess.run([sys.executable, '-W', 'error', '-c', LOAD], cwd=tmp_path, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  expected = np.asarray(MODEL.apply({'params': result.params}, X))
  for name in ('npz', 'msgpack', 'orbax'):
    np.testing.assert_allclose(np.load(tmp_path / f'{name}.npy'), expected, rtol=1e-5)
  arrays = read_safetensors(tmp_path / 'model.safetensors')
  assert sorted(arrays) == ['layers_0/bias', 'layers_0/kernel', 'layers_2/bias', 'layers_2/kernel']
  np.testing.assert_array_equal(arrays['layers_2/kernel'], result.params['layers_2']['kernel'])


def test_safetensors_own_reader_reads_the_same(result, tmp_path):
  reader = pytest.importorskip('safetensors.numpy', reason='the package safetensors is not installed')
  result.export(tmp_path / 'model.safetensors')
  found, expected = reader.load_file(tmp_path / 'model.safetensors'), read_safetensors(tmp_path / 'model.safetensors')
  assert found.keys() == expected.keys()
  assert all((found[name] == expected[name]).all() for name in expected)


class Pair(NamedTuple):
  w: object
  b: object


TREES = {
  'an array': (np.ones(5), {'params': (5,)}),
  'a tuple': ((np.ones(5), np.ones(())), {'0': (5,), '1': ()}),
  'a list of tuples': ([(np.ones(5), np.ones(()))], {'0/0': (5,), '0/1': ()}),
  'eleven leaves': ([np.ones(5)] + 10 * [np.ones(())], {'0': (5,), **{str(i): () for i in range(1, 11)}}),
}


def loss_of(tree):
  """A loss of parameters in any structure."""
  import jax

  def loss(params, batch):
    first, *rest = sorted(jax.tree.leaves(params), key=lambda x: -x.ndim)
    return (batch @ first + sum(rest, jnp.zeros(()))) ** 2

  return vrl_jax.tasks.loss_task(loss, jax.tree.map(np.float32, tree), train=X)


def config(**fields):
  config = vrl_jax.default_config()
  config.update(task='mine', learning_rate=0.01, workers=2, period=2, batch_size=4, epochs=1.0, **fields)
  return config


@pytest.mark.parametrize('name', TREES)
def test_parameters_in_other_structures(name, tmp_path):
  tree, shapes = TREES[name]
  task = loss_of(tree)
  vrl_jax.train_and_evaluate(config(), tmp_path / 'run', task=task)
  for suffix in export.FORMATS:
    assert checkpoint.main([str(tmp_path / 'run'), '--export', str(tmp_path / f'model{suffix}')]) == 0
  with np.load(tmp_path / 'model.npz') as file:
    assert {key: x.shape for key, x in file.items()} == shapes
  arrays = read_safetensors(tmp_path / 'model.safetensors')
  assert {key: x.shape for key, x in arrays.items()} == shapes


def test_a_structure_that_is_not_stored_is_given(tmp_path):
  tree = Pair(w=np.ones(5, np.float32), b=np.ones((), np.float32))
  vrl_jax.train_and_evaluate(config(), tmp_path / 'run', task=loss_of(tree))
  with pytest.raises(UserError, match='no tree of dicts and lists.; call vrl_jax.export_model with params='):
    vrl_jax.export_model(tmp_path / 'run', tmp_path / 'model.npz')
  vrl_jax.export_model(tmp_path / 'run', tmp_path / 'model.npz', params=tree)
  with np.load(tmp_path / 'model.npz') as file:
    assert sorted(file) == ['b', 'w']


def test_narrow_types(tmp_path):
  tree = {'w': jnp.array([1.5, 2.0], jnp.bfloat16)}
  export._write_npz(tree, tmp_path / 'm.npz')
  with np.load(tmp_path / 'm.npz') as file:
    assert file['w'].dtype == np.float32 and file['w'].tolist() == [1.5, 2.0]
  export._write_safetensors(tree, tmp_path / 'm.safetensors')
  assert read_safetensors(tmp_path / 'm.safetensors')['w'].tolist() == [1.5, 2.0]
  with pytest.raises(UserError, match='^w is complex64, which .safetensors cannot hold; export to .npz$'):
    export._write_safetensors({'w': np.ones(2, np.complex64)}, tmp_path / 'm.safetensors')


def test_the_algorithm_of_a_given_run_is_needed(result, tmp_path, capsys):
  assert checkpoint.main([str(result.workdir), '--export', str(tmp_path / 'model.npz')]) == 2
  error = capsys.readouterr().err
  assert (
    'the algorithm of the run was given as an object, which is not stored; call' in error and error.count('\n') == 1
  )
  algorithm = vrl_jax.vrl_sgd(optax.sgd(0.1))
  vrl_jax.export_model(result.workdir, tmp_path / 'model.npz', algorithm=algorithm)
  with np.load(tmp_path / 'model.npz') as file:
    np.testing.assert_array_equal(file['layers_0/kernel'], result.params['layers_0']['kernel'])


def test_orbax_is_replaced_only_if_asked(result, tmp_path):
  path = tmp_path / 'model.orbax'
  result.export(path)
  with pytest.raises(UserError, match='already exists; use --force .in Python overwrite=True. to overwrite it$'):
    result.export(path)
  result.export(path, overwrite=True)
  with pytest.raises(UserError, match='cannot write the file .No such file or directory.$'):
    result.export(tmp_path / 'nowhere' / 'model.orbax')
  assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize('suffix', export.FORMATS)
def test_a_full_disk_is_one_line_and_leaves_nothing(suffix, result, mounted):
  disk = mounted('nr_inodes=2')  # itself and one file
  if suffix != '.orbax':
    (disk / 'mine').touch()
  before = list(disk.iterdir())
  with pytest.raises(UserError, match=r'cannot write the file \(No space left on device\)$'):
    result.export(disk / f'model{suffix}')
  assert list(disk.iterdir()) == before
