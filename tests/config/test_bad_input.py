"""Tables of bad fields, flags and config files through the real command line: one line that names the offender, and nothing changed."""

import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache
from support.launches import CONFIG, contents, launch, one_line
from support.refusals import refused

from vrl_jax.config import table

# ml_collections loads config files with importlib's old loader.
BASE = 'from tests.support.eight_quadratics import get_config as base\ndef get_config():\n  config = base()\n'


FIELDS = [
  ('period=0', 'period=0, must be an integer of at least 1 or "auto"'),
  ('period=-3', 'period=-3'),
  ('period=2.5', 'period=2.5'),
  ('period=often', "period='often'"),
  ('period=True', 'period=True'),
  ('period_stages=((3,0),)', 'period_stages'),
  ('first_period=0', 'first_period=0'),
  ('fragments=0', 'fragments=0, must be an integer of at least 1'),
  ('fragments=6', 'fragments=6, must be at most the number of parameters, 5'),
  ('delay=-1', 'delay=-1, must be an integer of at least 0'),
  ('delay=1000', 'must be at most'),
  ('bits=12', 'bits=12, must be one of 4, 8, 16, 32'),
  ('compute_dtype=int8', "compute_dtype='int8', must be one of bfloat16, float32"),
  ('matmul_precision=low', "matmul_precision='low', must be one of"),
  ('profile_steps=(5,2)', 'profile_steps=(5, 2), must be (first, last)'),
  ('first_period=one', 'first_period'),
  ('max_period=0', 'max_period=0, must be an integer of at least 1'),
  ('workers=0', 'workers=0'),
  ('workers=-8', 'workers=-8'),
  ('workers=many', 'workers'),
  ('workers=7.5', 'workers'),
  ('workers=6', 'workers=6 cannot be divided over devices=4'),
  ('devices=0', 'devices=0'),
  ('devices=3', 'workers=8 cannot be divided over devices=3'),
  ('devices=16', 'workers=8 cannot be divided over devices=16'),
  ('devices_per_worker=0', 'devices_per_worker=0, must be an integer of at least 1'),
  ('devices_per_worker=3', 'workers=8 cannot be divided over devices=4 in islands of devices_per_worker=3'),
  ('devices_per_worker=2', 'batch_size=1 cannot be divided over devices_per_worker=2'),
  ('island=half', "island='half', must be one of replicated, sharded"),
  ('steps=0', 'steps=0'),
  ('steps=-5', 'steps=-5'),
  ('steps=3000000000', 'steps=3000000000, must be less than 2^31'),
  ('steps=soon', 'steps'),
  ('epochs=0', 'epochs=0.0, must be a number greater than 0'),
  ('epochs=2', 'epochs=2.0, steps=150: give one of the two'),
  ('batch_size=0', 'batch_size=0'),
  ('batch_size=2', 'batch_size=2'),
  ('learning_rate=0', 'learning_rate=0.0, must be a number greater than 0'),
  ('learning_rate=-0.1', 'learning_rate=-0.1'),
  ('learning_rate=nan', 'learning_rate=nan'),
  ('learning_rate=inf', 'learning_rate=inf'),
  ('learning_rate=fast', 'learning_rate'),
  ('momentum=1', 'momentum=1.0'),
  ('momentum=-0.9', 'momentum=-0.9'),
  ('weight_decay=-1e-4', 'weight_decay=-0.0001'),
  ('clip_norm=0', 'clip_norm=0.0'),
  ('clip_norm=-1', 'clip_norm=-1.0'),
  ('warmup_steps=-1', 'warmup_steps=-1'),
  ('seed=-1', 'seed=-1'),
  ('seed=4294967296', 'seed=4294967296, must be less than 2^32'),
  ('seeds=(1,1)', 'seed=1'),
  ('eval_every=0', 'eval_every=0.0'),
  ('eval_every=-1', 'eval_every=-1.0'),
  ('init_epochs=-1', 'init_epochs=-1.0'),
  ('init_loss=0', 'init_loss=0.0, must be a number greater than 0'),
  ('init_loss=0.4', 'init_loss=0.4 needs init_epochs > 0'),
  ('checkpoint_every=-1', 'checkpoint_every=-1'),
  ('conv_form=fast', "conv_form='fast', must be one of auto, xla, patches"),
  ('unroll=0', "no field 'unroll'"),
  ('workers_at_once=0', 'workers_at_once=0'),
  ('tile_bytes=-1', 'tile_bytes=-1, must be an integer of at least 0'),
  ('steps_per_dispatch=0', 'steps_per_dispatch=0'),
  ('checkpoint_minutes=-1', 'checkpoint_minutes=-1.0'),
  ('dirichlet_alpha=0', 'dirichlet_alpha=0.0'),
  ('similarity_percent=101', 'similarity_percent=101.0'),
  ('nesterov=maybe', 'nesterov'),
  ('log_every_step=7', 'log_every_step'),
  ('algorithm=vrl', "algorithm='vrl', must be one of s_sgd, local_sgd"),
  ('task=cubic', "task='cubic', must be one of"),
  ('task=lenet_mnist', "no field 'dataset': build it on vrl_jax.task_config('lenet_mnist')"),
  ('optimizer=adagrad', "optimizer='adagrad', must be one of sgd"),
  ('optimizer_kwargs=0.9', 'optimizer_kwargs=0.9, must be a dict of keyword arguments'),
  ('schedule_kwargs=[1]', 'schedule_kwargs=[1], must be a dict of keyword arguments'),
  ('batch_stats=mean', "batch_stats='mean', must be one of average, local, sync"),
  ('schedule=sometimes', "schedule='sometimes', must be one of constant"),
  ('partition=fair', "partition='fair', must be one of"),
  ('feed=manual', "feed='manual', must be one of auto, device, host"),
  ('dimension=0', 'dimension=0'),
  ('noise=loud', 'noise'),
  ('a=(1.0,2.0)', 'a has 2 numbers for workers=8'),
  ('a=(1.0,1.0,1.0,1.0,1.0,1.0,1.0,-1.0)', 'every curvature must be positive'),
  ('init_epochs=1e308', 'init_epochs=1e+308, must be at most 1e+06'),
  ('eval_every=1e-307', 'eval_every=1e-307, must be at least 1e-06'),
  ('warmup_steps=1000000000000000000000', 'must be less than 2^31'),
  ('steps_per_dispatch=1000000000', 'steps_per_dispatch=1000000000, must be less than 2^20'),
  ('checkpoint_every=1000000000000', 'must be less than 2^31'),
  ('dimension=1000000000000', 'must be less than 2^24'),
  ('workers=65536', 'workers=65536, must be less than 2^12'),
  ('period_stages=(5,6)', 'period_stages=((5,), (6,)), must be (step, period) pairs'),
  ('c=((1.0,),(2.0,3.0))', 'c=((1.0,), (2.0, 3.0)), must be numbers, or tuples of dimension=5 numbers'),
  ('c=(1.0,nan,1.0,1.0,1.0,1.0,1.0,1.0)', 'must be numbers'),
  ('a=((1.0,2.0),)', 'a=((1.0, 2.0),), must be a tuple of numbers'),
  ('a=("x",)', "a=('x',), must be a tuple of numbers"),
  ('b=nan', 'b=nan, must be finite'),
  ('x0=inf', 'x0=inf, must be finite'),
  ('lerning_rate=0.1', "no field 'lerning_rate'; did you mean 'learning_rate'?"),
  ('a.b=1', "no field 'a.b'"),
]
COMBINATIONS = [
  (('nesterov=True', 'momentum=0'), 'nesterov=True needs momentum > 0'),
  (('algorithm=easgd', 'alpha=0.5'), 'N·alpha = 4 > 1'),
  (('algorithm=easgd', 'alpha=-1'), 'alpha=-1.0'),
  (('algorithm=easgd', 'bits=8'), "bits=8 with algorithm='easgd': quantised is not possible for this algorithm"),
  (('fragments=2', 'delay=1000'), 'when the next transfer starts'),
  (('algorithm=local_sgd', 'alpha=0.1'), "alpha=0.1 is not an option of algorithm='local_sgd' (only of easgd)"),
  (('algorithm=local_sgd', 'buffers=burn'), 'burn'),
  (('algorithm=easgd', 'period=auto'), 'period="auto" is not available for'),
  (('algorithm=diloco', 'outer_momentum=1.5'), 'outer_momentum=1.5'),
  (('algorithm=diloco', 'outer_momentum=-1'), 'outer_momentum=-1.0'),
  (('algorithm=diloco', 'outer_learning_rate=0'), 'outer_learning_rate=0.0'),
  (('algorithm=diloco', 'outer_learning_rate=nan'), 'outer_learning_rate=nan, must be finite'),
  (('learning_rate=1.5', 'learning_rate=x'), 'learning_rate'),
  (
    ('optimizer=optax.sgd', 'optimizer_kwargs={"momentum":1e999}'),
    "optimizer_kwargs={'momentum': inf}, must be finite",
  ),
  (('schedule_kwargs={"scales":[{"0":-1e999}]}',), 'must be finite'),
  (('seeds=(0,1)', 'figure=5'), 'figure: 5, must be a dict with fields of name, y'),
  (('seeds=(0,1)', 'figure=({"x": 5},)'), 'figure: x=5, must be a string or a list of strings'),
  (('seeds=(0,1)', 'figure=({"name": "../up"},)'), "figure: name='../up', must be a file name"),
]


@pytest.mark.parametrize('field, message', FIELDS, ids=[field for field, _ in FIELDS])
def test_fields(field, message, tmp_path, capfd):
  refused([f'--config={CONFIG}', f'--workdir={tmp_path}/run', f'--config.{field}'], message, tmp_path, capfd)


@pytest.mark.parametrize('fields, message', COMBINATIONS, ids=[' '.join(fields) for fields, _ in COMBINATIONS])
def test_fields_that_contradict_each_other(fields, message, tmp_path, capfd):
  flags = [f'--config.{field}' for field in fields]
  refused([f'--config={CONFIG}', f'--workdir={tmp_path}/run', *flags], message, tmp_path, capfd)


FLAGS = {
  'no config': (['--workdir=run'], '--config is missing'),
  'no such config': (['--config=nowhere.py'], "config='nowhere.py': no such file"),
  'an empty config': (['--config='], "--config='', must be a file or a name"),
  'a folder': (['--config=folder'], "config='folder': no such file"),
  'an unknown flag': ([f'--config={CONFIG}', '--epochs=3'], 'epochs'),
  'a stray argument': ([f'--config={CONFIG}', 'fast'], "unexpected argument 'fast'"),
  'an empty workdir': ([f'--config={CONFIG}', '--workdir='], "--workdir=''"),
  'an argument for a config that takes none': ([f'--config={CONFIG}:big'], 'config'),
  'a workdir that is a file': ([f'--config={CONFIG}', '--workdir=file'], 'file: cannot be written (File exists)'),
  'a workdir below a file': ([f'--config={CONFIG}', '--workdir=file/run'], 'cannot be written (Not a directory)'),
  'a name too long': ([f'--config={CONFIG}', f'--workdir={"x" * 300}'], 'File name too long'),
}


@pytest.mark.parametrize('case', FLAGS)
def test_flags(case, tmp_path, monkeypatch, capfd):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'file').write_text('mine')
  (tmp_path / 'folder').mkdir()
  argv, message = FLAGS[case]
  refused(argv, message, tmp_path, capfd)


CONFIG_FILES = {
  'a syntax error': ('def get_config(:\n', 'cannot be loaded (SyntaxError: invalid syntax (bad.py, line 1))'),
  'an import that fails': ('import nothing_of_that_name\n', 'nothing_of_that_name'),
  'no get_config': ('x = 1\n', 'get_config'),
  'an exception': ('def get_config():\n  raise ZeroDivisionError("by zero")\n', 'by zero'),
  'None': ('def get_config():\n  return None\n', 'config'),
  'no ConfigDict': ('def get_config():\n  return 3\n', 'config'),
  'a dict': ('def get_config():\n  return {"task": "quadratic"}\n', 'config'),
  'not built on the defaults': (
    'import ml_collections\ndef get_config():\n  return ml_collections.ConfigDict({"task": "quadratic"})\n',
    "no field 'batch_size': build it on vrl_jax.task_config('quadratic')",
  ),
  'no task': (
    'import ml_collections\ndef get_config():\n  return ml_collections.ConfigDict()\n',
    "has no field 'task'",
  ),
  'a text for a number': (BASE + '  config.learning_rate = "fast"\n  return config\n', 'learning_rate'),
  'a text for a truth': (
    BASE + '  with config.ignore_type():\n    config.nesterov = "yes"\n  return config\n',
    "nesterov='yes', must be True or False",
  ),
  'a list for a name': (
    BASE + '  with config.ignore_type():\n    config.schedule = ["constant"]\n  return config\n',
    'schedule=',
  ),
  'None for a number': (
    BASE + '  with config.ignore_type():\n    config.workers = None\n  return config\n',
    'workers=None, must be an integer',
  ),
  'a sweep that is no tuple': (
    BASE + '  config.sweep = "all"\n  return config\n',
    "Could not override field 'sweep'",
  ),
  'a sweep of texts': (BASE + '  config.sweep = ("a", "b")\n  return config\n', 'must be a tuple of dicts'),
  'a sweep without names': (BASE + '  config.sweep = ({"period": 2},)\n  return config\n', 'name=None'),
  'a sweep with a path for a name': (BASE + '  config.sweep = ({"name": "../up"},)\n  return config\n', "name='../up'"),
  'a sweep into the folder above': (BASE + '  config.sweep = ({"name": ".."},)\n  return config\n', "name='..'"),
  'a sweep with one name twice': (
    BASE + '  config.sweep = ({"name": "a"}, {"name": "a", "period": 2})\n  return config\n',
    "['a'] occur more than once",
  ),
  'a sweep with an unknown field': (
    BASE + '  config.sweep = ({"name": "a", "perod": 2},)\n  return config\n',
    "sweep entry 'a': unknown field 'perod'",
  ),
  'a sweep with a wrong type': (
    BASE + '  config.sweep = ({"name": "a"}, {"name": "b", "workers": "x"})\n  return config\n',
    "sweep entry 'b'",
  ),
  'a sweep with a value out of range': (
    BASE + '  config.sweep = ({"name": "a"}, {"name": "b", "period": 0})\n  return config\n',
    "sweep entry 'b': period=0",
  ),
  'a sweep of sweeps': (BASE + '  config.sweep = ({"name": "a", "sweep": ()},)\n  return config\n', "'sweep'"),
}


@pytest.mark.parametrize('case', CONFIG_FILES)
def test_config_files(case, tmp_path, capfd):
  text, message = CONFIG_FILES[case]
  (tmp_path / 'bad.py').write_text(text)
  refused([f'--config={tmp_path}/bad.py', f'--workdir={tmp_path}/run'], message, tmp_path, capfd)


def test_epochs_of_too_many_steps(tmp_path, capfd):
  arguments = ['--config=lenet_mnist', '--config.dataset=mnist_5k', '--config.epochs=1e9', f'--workdir={tmp_path}/run']
  refused(arguments, 'epochs=1e+09 is 15000000000 steps, must be less than 2^31', tmp_path, capfd)


def test_a_bad_field_as_a_process(tmp_path):
  status, out, err = launch(tmp_path / 'run', '--config.period=0')
  assert (status, out) == (2, f'workdir: {tmp_path / "run"}\n')
  assert one_line(err) == 'error: period=0, must be an integer of at least 1 or "auto"'
  assert contents(tmp_path) == {}


def test_every_checked_field_has_a_bad_value():
  checked = {field.name for field in table.FIELDS if field.check or field.kind not in (str, tuple, bool)}
  assert checked <= {bad.split('=')[0] for bad, _ in FIELDS}
