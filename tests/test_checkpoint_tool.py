"""Looking into a run's checkpoints, and taking the model out."""

import json
import subprocess
import sys

import flax.linen as nn
import flax.serialization
import jax
import numpy as np
import pytest
from inprocess import compiled_once as compiled_once
from inprocess import small_config
from launches import checkpoint_steps, contents

from vrl_jax.experiment import make_algorithm
from vrl_jax.restore import read_about, read_state
from vrl_jax.rounds import WorkerState
from vrl_jax.tools import checkpoint
from vrl_jax.train import train_and_evaluate

LOAD_NPZ = 'import sys, numpy; print(numpy.load(sys.argv[1])["params"].tolist())'
LOAD_MSGPACK = """
import sys, flax.serialization
print(flax.serialization.msgpack_restore(open(sys.argv[1], 'rb').read()).tolist())
assert not any(name.split('.')[0] == 'vrl_jax' for name in sys.modules)
"""


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """EASGD, whose model is not the mean of the workers' but the centre."""
  folder = tmp_path_factory.mktemp('tool') / 'run'
  summary = train_and_evaluate(small_config(algorithm='easgd', momentum=0.0, weight_decay=0.0), folder)
  return folder, summary


def tool(*args):
  return checkpoint.main([str(arg) for arg in args])


def workers_and_centre(folder, step):
  about = read_about(folder, step)
  shapes = {name: jax.ShapeDtypeStruct(tuple(shape), dtype) for name, dtype, shape, _ in about['leaves']}
  algorithm = make_algorithm(small_config(algorithm='easgd', momentum=0.0, weight_decay=0.0), 40)
  opt_state = jax.eval_shape(jax.vmap(algorithm.init), shapes['params'])
  template = WorkerState(shapes['params'], opt_state, shapes['step'], shapes['loss_sum'])
  state = read_state(folder, step, template, about)
  return state.params, state.opt_state.centre[0]


def test_listing(run, capsys):
  folder, summary = run
  before = contents(folder)
  assert tool(folder) == 0
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
  assert tool(folder, '--export', path) == 0
  assert 'the consensus model of step 40, 5 parameters' in capsys.readouterr().out
  printed = subprocess.run([sys.executable, '-c', code, path], capture_output=True, text=True, check=True, cwd=tmp_path)
  loaded = np.array(json.loads(printed.stdout), np.float32)
  workers, centre = workers_and_centre(folder, 40)
  np.testing.assert_array_equal(loaded, centre)
  assert np.abs(workers.mean(axis=0) - centre).max() > 1e-5
  assert list(tmp_path.iterdir()) == [path]


def test_an_earlier_step(run, tmp_path):
  folder, _ = run
  assert tool(folder, '--export', tmp_path / 'model.npz', '--step', 33) == 0
  with np.load(tmp_path / 'model.npz') as file:
    np.testing.assert_array_equal(file['params'], workers_and_centre(folder, 33)[1])


def test_a_tree_of_parameters_keeps_its_names(tmp_path):
  """A flax model's: nested in msgpack, joined with slashes in npz."""
  params = nn.Dense(2).init(jax.random.key(0), np.zeros((1, 3), np.float32))['params']
  params = {'Dense_0': jax.tree.map(np.asarray, params)}
  leaves = [[f'params/Dense_0/{name}', 'float32', [8, *x.shape], 0] for name, x in params['Dense_0'].items()]
  leaves += [['step', 'int32', [8], 0], ['loss_sum', 'float32', [8], 0]]
  template = checkpoint._template(make_algorithm(small_config(), 40), leaves)
  assert template.params['Dense_0']['kernel'].shape == (8, 3, 2)
  for suffix, write in checkpoint._WRITERS.items():
    (tmp_path / f'm{suffix}').write_bytes(write(params))
  with np.load(tmp_path / 'm.npz') as file:
    np.testing.assert_array_equal(file['Dense_0/kernel'], params['Dense_0']['kernel'])
  loaded = flax.serialization.msgpack_restore((tmp_path / 'm.msgpack').read_bytes())
  np.testing.assert_array_equal(loaded['Dense_0']['bias'], params['Dense_0']['bias'])


@pytest.mark.parametrize(
  'args, told',
  [
    (['--export', 'model.txt'], 'must end in one of .msgpack, .npz'),
    (['--export', 'model.npz', '--step', '34'], '--step=34: there are checkpoints of step 33, 37, 40'),
    (['--export', 'there.npz'], 'is there already; --force'),
    (['--export', 'nowhere/model.npz'], 'cannot be written (No such file or directory)'),
  ],
)
def test_mistakes(args, told, run, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'there.npz').write_text('mine')
  assert tool(run[0], *args) == 2
  err = capsys.readouterr().err
  assert told in err
  assert err.count('\n') == 1
  assert [path.read_text() for path in tmp_path.iterdir()] == ['mine']
  if 'there.npz' in args:
    assert tool(run[0], *args, '--force') == 0
    assert (tmp_path / 'there.npz').read_bytes() != b'mine'


def test_a_folder_without_checkpoints(tmp_path, capsys):
  assert tool(tmp_path) == 3
  assert f'{tmp_path}/checkpoints: there are no checkpoints' in capsys.readouterr().err


def test_a_damaged_checkpoint(tmp_path, capsys):
  train_and_evaluate(small_config(), tmp_path)
  (tmp_path / 'checkpoints' / '40' / 'about' / 'metadata').write_text('{')
  assert tool(tmp_path) == 0
  assert 'unreadable' in capsys.readouterr().out.splitlines()[-1]
  assert tool(tmp_path, '--export', tmp_path / 'model.npz') == 3
  err = capsys.readouterr().err
  assert 'step 40 cannot be read' in err
  assert err.count('\n') == 1
