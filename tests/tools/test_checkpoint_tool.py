"""The checkpoint tool: listing checkpoints and exporting the consensus model."""

import json
import os
import subprocess
import sys

import flax.linen as nn
import flax.serialization
import jax
import numpy as np
import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import small_config
from support.launches import checkpoint_steps, contents

from vrl_jax.engine.state import WorkerState
from vrl_jax.tools import checkpoint
from vrl_jax.training import consensus, export
from vrl_jax.training.algorithm import make_algorithm
from vrl_jax.training.loop import train_and_evaluate
from vrl_jax.training.restore import read_metadata, read_state

LOAD_NPZ = 'import sys, numpy; print(numpy.load(sys.argv[1])["params"].tolist())'
LOAD_MSGPACK = """
import sys, flax.serialization
print(flax.serialization.msgpack_restore(open(sys.argv[1], 'rb').read()).tolist())
assert not any(name.split('.')[0] == 'vrl_jax' for name in sys.modules)
"""


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """An EASGD run, whose consensus model is the centre and not the mean over the workers."""
  folder = tmp_path_factory.mktemp('tool') / 'run'
  summary = train_and_evaluate(small_config(algorithm='easgd', momentum=0.0, weight_decay=0.0), folder)
  return folder, summary


def run_tool(*args):
  return checkpoint.main([str(arg) for arg in args])


def workers_and_centre(folder, step):
  metadata = read_metadata(folder, step)
  shapes = {name: jax.ShapeDtypeStruct(tuple(shape), dtype) for name, dtype, shape, _ in metadata['leaves']}
  algorithm = make_algorithm(small_config(algorithm='easgd', momentum=0.0, weight_decay=0.0), 40)
  opt_state = jax.eval_shape(jax.vmap(algorithm.transform.init), shapes['params'])
  template = WorkerState(shapes['params'], opt_state, shapes['step'], shapes['loss_sum'])
  state = read_state(folder, step, template, metadata)
  return state.params, state.opt_state.centre[0]


def test_listing(run, capsys):
  folder, summary = run
  before = contents(folder)
  assert run_tool(folder) == 0
  head, *rows = capsys.readouterr().out.splitlines()
  assert head.split() == ['step', 'time', 'size', 'train', 'loss']
  assert [int(row.split()[0]) for row in rows] == checkpoint_steps(folder) == [33, 37, 40]
  assert f'{summary["train_loss"]:.6g}' in rows[-1]
  assert sum('best' in row for row in rows) == 1
  assert contents(folder) == before


@pytest.mark.parametrize('suffix, code', [('.npz', LOAD_NPZ), ('.msgpack', LOAD_MSGPACK)], ids=['npz', 'msgpack'])
def test_an_exported_model_loads_without_vrl_jax(suffix, code, run, tmp_path, capsys):
  folder, summary = run
  path = tmp_path / f'model{suffix}'
  assert run_tool(folder, '--export', path) == 0
  assert 'the consensus model of step 40, 5 parameters' in capsys.readouterr().out
  printed = subprocess.run([sys.executable, '-c', code, path], capture_output=True, text=True, check=True, cwd=tmp_path)
  loaded = np.array(json.loads(printed.stdout), np.float32)
  workers, centre = workers_and_centre(folder, 40)
  np.testing.assert_array_equal(loaded, centre)
  assert np.abs(workers.mean(axis=0) - centre).max() > 1e-5
  assert list(tmp_path.iterdir()) == [path]


def test_a_platform_and_a_home_directory_in_the_environment(run, tmp_path):
  """An export needs no GPU, and shells do not expand `--export=~/model.npz`."""
  environment = os.environ | {'JAX_PLATFORMS': 'gpu', 'HOME': str(tmp_path)}
  argv = [sys.executable, '-m', 'vrl_jax.tools.checkpoint', str(run[0]), '--export=~/model.npz']
  done = subprocess.run(argv, env=environment, capture_output=True, text=True)
  assert (done.returncode, done.stderr) == (0, '')
  assert (tmp_path / 'model.npz').exists()


def test_export_of_an_earlier_step(run, tmp_path):
  folder, _ = run
  assert run_tool(folder, '--export', tmp_path / 'model.npz', '--step', 33) == 0
  with np.load(tmp_path / 'model.npz') as file:
    np.testing.assert_array_equal(file['params'], workers_and_centre(folder, 33)[1])


def test_parameter_names_of_a_flax_model(tmp_path):
  """They are nested in msgpack and joined with slashes in npz."""
  params = nn.Dense(2).init(jax.random.key(0), np.zeros((1, 3), np.float32))['params']
  params = {'Dense_0': jax.tree.map(np.asarray, params)}
  leaves = [[f'params/Dense_0/{name}', 'float32', [8, *x.shape], 0] for name, x in params['Dense_0'].items()]
  leaves += [['step', 'int32', [8], 0], ['loss_sum', 'float32', [8], 0]]
  template = consensus._template(make_algorithm(small_config(), 40), leaves, params=None)
  assert template.params['Dense_0']['kernel'].shape == (8, 3, 2)
  for suffix in ('.npz', '.msgpack'):
    export._WRITERS[suffix](params, tmp_path / f'm{suffix}')
  with np.load(tmp_path / 'm.npz') as file:
    np.testing.assert_array_equal(file['Dense_0/kernel'], params['Dense_0']['kernel'])
  loaded = flax.serialization.msgpack_restore((tmp_path / 'm.msgpack').read_bytes())
  np.testing.assert_array_equal(loaded['Dense_0']['bias'], params['Dense_0']['bias'])


@pytest.mark.parametrize(
  'args, message',
  [
    (['--export', 'model.txt'], 'the suffix must be one of .npz, .msgpack, .safetensors, .orbax'),
    (['--export', 'model.npz', '--step', '34'], 'step=34, must be one of 33, 37, 40'),
    (['--export', 'existing.npz'], 'already exists; use --force'),
    (['--export', 'nowhere/model.npz'], 'cannot write the file (No such file or directory)'),
  ],
)
def test_user_errors(args, message, run, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'existing.npz').write_text('mine')
  assert run_tool(run[0], *args) == 2
  err = capsys.readouterr().err
  assert message in err
  assert err.count('\n') == 1
  assert [path.read_text() for path in tmp_path.iterdir()] == ['mine']
  if 'existing.npz' in args:
    assert run_tool(run[0], *args, '--force') == 0
    assert (tmp_path / 'existing.npz').read_bytes() != b'mine'


def test_a_directory_without_checkpoints(tmp_path, capsys):
  assert run_tool(tmp_path) == 3
  assert f'{tmp_path}/checkpoints: no checkpoints' in capsys.readouterr().err


def test_a_damaged_checkpoint(tmp_path, capsys):
  train_and_evaluate(small_config(), tmp_path)
  (tmp_path / 'checkpoints' / '40' / 'about' / 'metadata').write_text('{')
  assert run_tool(tmp_path) == 0
  assert 'unreadable' in capsys.readouterr().out.splitlines()[-1]
  assert run_tool(tmp_path, '--export', tmp_path / 'model.npz') == 3
  err = capsys.readouterr().err
  assert 'step 40 cannot be read' in err
  assert err.count('\n') == 1
