"""`vrl_jax.fit`: the same loop as `train_and_evaluate`, for scripts and notebooks."""

import json
import pathlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.inprocess import signal_at
from support.launches import lines

import vrl_jax
from vrl_jax.errors import Diverged, Interrupted, UserError
from vrl_jax.report import read_any
from vrl_jax.tasks import classification_task
from vrl_jax.training.consensus import consensus_model
from vrl_jax.training.fit_name import name_of

Y = np.repeat(np.arange(4), 16)
X = (np.eye(4)[Y] + 0.3 * np.random.default_rng(0).normal(size=(64, 4))).astype(np.float32)
MODEL = nn.Dense(4)
LINEAR = (lambda rng: jnp.zeros((4, 4)), lambda w, x: x @ w)
SMALL = {'workers': 4, 'period': 4, 'batch_size': 4, 'epochs': 4, 'quiet': True}


def vrl(rate=0.2, **options):
  return vrl_jax.vrl_sgd(optax.sgd(rate, momentum=0.5), **options)


def same(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


def quiet_config(task='mine', **fields):
  config = vrl_jax.default_config()
  config.update(task=task, workers=4, period=4, batch_size=4, epochs=4.0, **fields)
  return config


@pytest.fixture(scope='module')
def result(tmp_path_factory):
  folder = tmp_path_factory.mktemp('fit') / 'run'
  return vrl_jax.fit(MODEL, (X, Y), algorithm=vrl(), test=(X[::2], Y[::2]), workdir=folder, **SMALL)


@pytest.mark.parametrize('devices', [1, 2, 4])
def test_it_is_the_run_of_a_config(devices, result, tmp_path):
  """Also on several devices, although the algorithm was made without an axis name."""
  task = classification_task(
    MODEL, {'input': X, 'label': Y}, {'input': X[::2], 'label': Y[::2]}, class_names=['0', '1', '2', '3']
  )
  config = quiet_config(learning_rate=0.2, momentum=0.5, devices=devices)
  vrl_jax.train_and_evaluate(config, tmp_path / 'config', task=task)
  found = vrl_jax.fit(
    MODEL, (X, Y), algorithm=vrl(), test=(X[::2], Y[::2]), workdir=tmp_path / 'fit', devices=devices, **SMALL
  )
  assert found.summary['devices_used'] == devices
  assert lines(tmp_path / 'fit') == lines(tmp_path / 'config')
  same(found.params, consensus_model(tmp_path / 'config').params)
  assert found.summary['train_loss'] == pytest.approx(result.summary['train_loss'], rel=1e-5)


def test_history_is_a_table_without_gaps(result):
  history = result.history
  assert history['step'] == [0, 4, 8, 12, 16] and history['epoch'][-1] == 4.0
  assert {len(column) for column in history.values()} == {5}
  assert np.isnan(history['step_loss'][0]) and history['test_accuracy'][-1] > history['test_accuracy'][0]
  assert history['train_loss'][-1] == result.summary['train_loss']


def test_plot_report_and_export(result, tmp_path):
  figure = result.plot('test_accuracy', x='step')
  (axes,) = figure.axes
  assert axes.get_ylabel() == 'test accuracy (%)'
  np.testing.assert_allclose(axes.lines[0].get_ydata()[-1], 100 * result.history['test_accuracy'][-1])
  page = result.report()
  assert page == result.workdir / 'report.html' and 'VRL-SGD' in page.read_text()
  result.export(tmp_path / 'model.npz')
  with np.load(tmp_path / 'model.npz') as file:
    np.testing.assert_array_equal(file['kernel'], result.params['kernel'])
  with pytest.raises(UserError, match='already exists; use --force'):
    result.export(tmp_path / 'model.npz')


def test_the_stored_config_says_nothing_that_the_algorithm_does_not_do(result):
  stored = json.loads((result.workdir / 'config.json').read_text())
  assert stored['algorithm'] == 'vrl_sgd' and stored['period'] == 4
  assert not {'learning_rate', 'momentum', 'optimizer', 'schedule', 'alpha', 'buffers'} & stored.keys()


def test_resumes_with_the_same_algorithm_only(tmp_path, monkeypatch, result):
  again = lambda rate=0.2, **more: vrl_jax.fit(
    MODEL,
    (X, Y),
    algorithm=vrl(rate),
    test=(X[::2], Y[::2]),
    workdir=tmp_path / 'run',
    checkpoint_every=1,
    **SMALL | more,
  )
  with signal_at(monkeypatch, 8), pytest.raises(Interrupted):
    again()
  with pytest.raises(UserError, match=r'holds a run of another algorithm \(.*\); choose another --workdir'):
    again(rate=0.1)
  assert again().summary['resumed_from_step'] == 8
  assert lines(tmp_path / 'run') == lines(result.workdir)
  with pytest.raises(UserError, match='holds a run of another algorithm'):
    again(rate=0.1)  # it is finished
  config = quiet_config(task='Dense', learning_rate=0.2, momentum=0.5, checkpoint_every=1)
  with pytest.raises(UserError, match='holds a run with another config'):
    vrl_jax.train_and_evaluate(config, tmp_path / 'run', task=result._task)
  assert again(epochs=6).summary['step'] == 24  # an algorithm that is given can be extended


def test_the_default_directory_is_new(result):
  runs = [vrl_jax.fit(LINEAR, (X, Y), algorithm=vrl(), **SMALL | {'epochs': 1}) for _ in range(2)]
  assert runs[0].workdir != runs[1].workdir and runs[0].workdir.is_dir()
  same(runs[0].params, runs[1].params)


def test_a_comparison(tmp_path, capsys):
  algorithms = {'S-SGD': vrl_jax.s_sgd(optax.sgd(0.1)), 'rate 0.1': vrl(0.1), 'rate 0.2': vrl(0.2)}
  found = vrl_jax.fit(
    LINEAR, (X, Y), algorithm=algorithms, seeds=range(2), workdir=tmp_path, **SMALL | {'quiet': False}
  )
  assert capsys.readouterr().out.count('worker  all') == 1
  assert list(found) == [f'{name}, seed={seed}' for name in algorithms for seed in (0, 1)] and found.diverged == []
  alone = vrl_jax.fit(LINEAR, (X, Y), algorithm=vrl(0.2), seed=1, **SMALL)
  same(found['rate 0.2, seed=1'].params, alone.params)
  history = found.history
  assert history['run'].count('rate 0.1, seed=0') == 5 and len(history['train_loss']) == 30
  (axes, _) = found.plot().axes
  legend = [text.get_text() for text in axes.figure.legends[0].get_texts()]
  assert legend == ['S-SGD', 'rate 0.1', 'rate 0.2']
  page = found.report().read_text()
  assert 'rate 0.1' in page and found.report() == tmp_path / 'report.html'
  assert [run.algorithm for run in read_any(tmp_path).runs][0] == 's_sgd'  # the baseline of the report
  assert found['S-SGD, seed=0'].summary['communications'] == 16
  with pytest.raises(KeyError):
    found['S-SGD']


def test_seeds_of_one_algorithm():
  found = vrl_jax.fit(LINEAR, (X, Y), algorithm=vrl(), seeds=[3], **SMALL)
  assert list(found) == ['VRL-SGD, seed=3']


def test_a_comparison_goes_on_when_a_run_diverges():
  steep = vrl_jax.local_sgd(optax.sgd(1e4))
  loss = lambda w, batch: jnp.sum((batch - w[None]) ** 2, axis=-1)
  start = np.zeros(4, np.float32)
  found = vrl_jax.fit(loss, X, params=start, algorithm={'steep': steep, 'VRL-SGD': vrl(0.01)}, **SMALL | {'epochs': 20})
  assert found.diverged == ['steep'] and found['steep'].summary['status'] == 'diverged'
  assert found['VRL-SGD'].summary['status'] == 'finished'
  with pytest.raises(Diverged, match=r'local_sgd diverged by step \d+ \(period=4; '):
    vrl_jax.fit(loss, X, params=start, algorithm=steep, **SMALL | {'epochs': 20})


FORMS = {
  'module': (MODEL, (X, Y), {}, 'train_accuracy'),
  'module and dict': (MODEL, {'input': X, 'label': Y}, {'test': {'input': X, 'label': Y}}, 'test_accuracy'),
  'functions': (LINEAR, (X, Y), {}, 'train_accuracy'),
  'lists': (LINEAR, [X.tolist(), Y.tolist()], {}, 'train_accuracy'),
  'bools': (nn.Dense(2), (X, Y > 1), {}, 'train_accuracy'),
  'jax arrays': (MODEL, (jnp.asarray(X), jnp.asarray(Y)), {}, 'train_accuracy'),
  'regression': (nn.Dense(1), (X, X[:, 0]), {'labels': Y}, 'train_absolute_error'),
  'regression test': (nn.Dense(1), (X, X[:, 0]), {'test': (X, X[:, 0])}, 'test_absolute_error'),
  'integers to regress': (nn.Dense(1), {'input': X, 'target': Y.astype(np.float32)}, {}, 'train_absolute_error'),
  'loss': (
    lambda p, b: (b['x'] @ p['w'] - b['y']) ** 2,
    {'x': X, 'y': X[:, 0]},
    {'params': {'w': np.zeros(4)}},
    'train_loss',
  ),
  'parameters in a list': (lambda p, b: (b @ p[0] + p[1]) ** 2, X, {'params': [np.ones(4), np.ones(())]}, 'train_loss'),
  'start': (MODEL, (X, Y), {'params': {'kernel': np.ones((4, 4)), 'bias': np.zeros(4)}}, 'train_loss'),
  'other labels': (MODEL, (X, Y), {'labels': np.arange(64) % 2}, 'train_loss'),
  'dirichlet': (MODEL, (X, Y), {'partition': 'dirichlet', 'dirichlet_alpha': np.float64(0.1)}, 'train_loss'),
  'steps': (MODEL, (X, Y), {'steps': np.int64(3)}, 'train_loss'),
  'x64': (MODEL, (X, Y), {'x64': True}, 'train_loss'),
}


@pytest.mark.parametrize('form', FORMS)
def test_models_and_data(form):
  model, data, more, metric = FORMS[form]
  found = vrl_jax.fit(model, data, algorithm=vrl(0.01), **SMALL | {'epochs': 2} | more)
  assert found.summary['status'] == 'finished'
  assert found.history[metric][-1] < found.history[metric][0] or 'accuracy' in metric
  if form == 'parameters in a list':
    assert isinstance(found.params, list)


def half_average(inner, *, axis_name=vrl_jax.AXIS):
  local = vrl_jax.local_sgd(inner, axis_name=axis_name)

  def communicate(params, state):
    return jax.tree.map(lambda x: (x + jax.lax.pmean(x, axis_name)) / 2, params), state

  return local._replace(communicate=communicate)


def test_an_algorithm_of_the_user_with_a_collective():
  made = half_average(optax.sgd(0.1), axis_name=vrl_jax.AXES)
  found = vrl_jax.fit(LINEAR, (X, Y), algorithm=made, devices=2, **SMALL)
  assert found.name == 'Half-Average'
  by_default = half_average(optax.sgd(0.1))  # its own pmean is over the workers of one device
  with pytest.raises(UserError, match="'half_average': a collective over the axis 'workers' reaches .*=vrl_jax.AXES$"):
    vrl_jax.fit(LINEAR, (X, Y), algorithm=by_default, devices=2, **SMALL)


@pytest.mark.parametrize('name', vrl_jax.ALGORITHMS)
def test_the_name_of_a_given_algorithm(name):
  expected = {'diloco': 'with_outer_optimizer'}.get(name, name)
  assert name_of(vrl_jax.ALGORITHMS[name](optax.sgd(0.1))) == expected


MISTAKES = {
  'no algorithm': (
    {'algorithm': optax.sgd(0.1)},
    'must be a vrl_jax.Algorithm such as vrl_jax.vrl_sgd(optax.sgd(0.1))',
  ),
  'a factory': ({'algorithm': vrl_jax.vrl_sgd}, 'must be a vrl_jax.Algorithm such as'),
  'no algorithms': ({'algorithm': {}}, 'algorithm={}, must be a vrl_jax.Algorithm such as'),
  'a factory of several': ({'algorithm': {'a': vrl_jax.vrl_sgd}}, "algorithm: 'a' is a function, must be a "),
  'a refused optimizer': ({'algorithm': vrl_jax.vrl_sgd(optax.lion(0.1))}, 'vrl_adaptive'),
  'another axis': ({'algorithm': vrl(axis_name='w')}, "algorithm='vrl_sgd' raises NameError: "),
  'no model': (
    {'model': 'MLP'},
    "model='MLP', must be a flax.linen module, a pair of functions (init, apply), a loss or",
  ),
  'a loss without parameters': ({'model': lambda p, b: 0.0}, 'params=None: a loss needs the initial parameters'),
  'no data': ({'data': None}, 'data=None, must be the training data'),
  'three arrays': ({'data': (X, Y, Y)}, "data is 3 items, must be a pair (x, y), or a dict with 'input' and"),
  'an array': ({'data': X}, 'data is a ndarray, must be a pair (x, y), or a dict with '),
  'no label': ({'data': {'input': X}}, "data has no 'label' and no 'target', only 'input'"),
  'unequal data': ({'data': (X, Y[1:])}, 'train: its arrays have 63 and 64 examples, must have equally many'),
  'an array of objects': ({'data': (np.array([None] * 64), Y)}, 'data: x is object [64], must be numbers'),
  'ragged rows': ({'data': ([[1, 2], [3]], Y)}, 'data: x is object [2], must be numbers'),
  'objects in a dict': (
    {'data': {'input': X, 'target': Y.astype(object)}},
    "train['target'] is object [64], must be numbers",
  ),
  'no classes': ({'data': (X, Y * 10**12)}, 'has the label 3000000000000, must be less than 2^20'),
  'text labels': ({'data': (X, Y.astype(str))}, 'data: y is <U21 [64], must be numbers'),
  'too few outputs': ({'model': nn.Dense(3)}, 'the model has 3 outputs for 4 classes'),
  'labels': ({'labels': Y[1:]}, 'task: labels are int64 [63], must be integers [64]'),
  'a misspelt option': ({'eval_evry': 1}, "fit has no option 'eval_evry'; did you mean 'eval_every'?"),
  'the rate': ({'learning_rate': 0.1}, 'learning_rate=0.1 belongs to the algorithm: set it there'),
  'its option': ({'alpha': 0.1}, 'alpha=0.1 belongs to the algorithm'),
  'its fragments': ({'fragments': 2}, 'fragments=2 belongs to the algorithm'),
  'a sweep': ({'sweep': ()}, "fit has no option 'sweep'"),
  'a wrong type': ({'workers': 'many'}, "workers='many': "),
  'no workers': ({'workers': 0}, 'workers=0, must be an integer of at least 1'),
  'a wrong partition': ({'partition': 'by_clas'}, "partition='by_clas', must be one of identical, "),
  'a wrong name': ({'algorithm': {'a/b': vrl()}}, "name='a/b', every entry needs a name that can be a directory"),
  'seeds': ({'seeds': 3}, 'seeds=3, must be a sequence of integers'),
  'large batches': ({'batch_size': 17}, 'batch_size=17, must be at most 16, the number of examples per worker'),
}


@pytest.mark.parametrize('case', MISTAKES)
def test_mistakes_are_one_line_and_leave_nothing(case, tmp_path):
  wrong, message = MISTAKES[case]
  arguments = {'model': MODEL, 'data': (X, Y), 'algorithm': vrl(), 'workdir': tmp_path / 'run'} | SMALL | wrong
  with pytest.raises(UserError) as error:
    vrl_jax.fit(arguments.pop('model'), arguments.pop('data'), **arguments)
  assert message in str(error.value) and '\n' not in str(error.value)
  assert list(tmp_path.rglob('config.json')) == []


def test_a_task(result):
  task = result._task
  same(vrl_jax.fit(task, algorithm=vrl(), **SMALL).params, result.params)
  with pytest.raises(UserError, match='has its data and test data: leave out the arguments'):
    vrl_jax.fit(task, (X, Y), algorithm=vrl(), **SMALL)


def test_quiet_prints_nothing_and_otherwise_it_does(capsys):
  vrl_jax.fit(LINEAR, (X, Y), algorithm=vrl(), **SMALL | {'epochs': 1})
  assert capsys.readouterr() == ('', '')
  vrl_jax.fit(LINEAR, (X, Y), algorithm=vrl(), **SMALL | {'epochs': 1, 'quiet': False})
  assert capsys.readouterr().out.startswith('vrl_sgd on model: 4 workers')


def test_an_algorithm_of_a_config_can_be_replaced(tmp_path):
  config = vrl_jax.load_config('quadratic')
  config.update(steps=40, log_every_step=False)
  vrl_jax.train_and_evaluate(config, tmp_path / 'config')
  inner = optax.sgd(config.learning_rate)
  vrl_jax.train_and_evaluate(config, tmp_path / 'given', algorithm=vrl_jax.vrl_sgd(inner))
  assert lines(tmp_path / 'given') == lines(tmp_path / 'config')
  assert not pathlib.Path(tmp_path / 'given' / 'given.json').read_text() == '{}'
  with pytest.raises(UserError, match="algorithm='vrl_sgd' is a dict, must be a vrl_jax.Algorithm"):
    vrl_jax.train_and_evaluate(config, tmp_path / 'dict', algorithm={})
