"""TensorBoard and Weights & Biases get the same metrics as metrics.jsonl."""

import json
import struct
import sys
import types

import pytest
from support.inprocess import shared_compilation_cache as shared_compilation_cache

from vrl_jax.config.files import load_config
from vrl_jax.errors import UserError
from vrl_jax.training import writers
from vrl_jax.training.loop import train_and_evaluate


def _config(**fields):
  config = load_config('quadratic')
  config.update(steps=20, period=5, log_every_step=False, eval_every=5.0, **fields)
  return config


def _lines(workdir):
  return [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]


def _events(path):
  """The events of a TensorBoard file: records of length, checksum, content, checksum."""
  event_pb2 = pytest.importorskip('tensorboardX.proto.event_pb2')
  content = path.read_bytes()
  while content:
    (size,) = struct.unpack('<Q', content[:8])
    yield event_pb2.Event.FromString(content[12 : 12 + size])
    content = content[size + 16 :]


def _scalars(workdir):
  """(tag, step) -> value as TensorBoard shows it: a session that starts at a step deletes what is there from it on."""
  shown = {}
  for path in sorted((workdir / 'tensorboard').iterdir(), key=lambda path: path.stat().st_mtime_ns):
    for event in _events(path):
      if event.HasField('session_log'):
        shown = {key: value for key, value in shown.items() if key[1] < event.step}
      for value in event.summary.value:
        assert (value.tag, event.step) not in shown
        shown[value.tag, event.step] = value.simple_value
  return shown


def _expected(lines):
  numbers = {(tag, line['step']): value for line in lines for tag, value in line.items() if tag != 'step'}
  return {key: value for key, value in numbers.items() if value is not None}


def test_off_by_default(tmp_path):
  train_and_evaluate(_config(), tmp_path)
  assert not (tmp_path / 'tensorboard').exists()
  assert not (tmp_path / 'wandb').exists()


def test_tensorboard_shows_the_metrics(tmp_path):
  pytest.importorskip('tensorboardX')
  train_and_evaluate(_config(tensorboard=True), tmp_path)
  lines = _lines(tmp_path)
  assert [line['step'] for line in lines] == [0, 5, 10, 15, 20]
  shown = _scalars(tmp_path)
  expected = _expected(lines)
  assert shown.keys() == expected.keys()
  assert shown == pytest.approx(expected, rel=1e-6)


def test_tensorboard_after_a_resume_shows_every_point_once(tmp_path):
  pytest.importorskip('tensorboardX')
  config = _config(tensorboard=True)
  lines = [{'step': step, 'train_loss': float(step)} for step in (0, 5, 10, 15)]
  with writers.open_writers(config, tmp_path, []) as write:
    for line in lines:  # killed after this; the checkpoint is of step 10
      write(line)
  with writers.open_writers(config, tmp_path, lines[:3]) as write:
    write({'step': 15, 'train_loss': 99.0})
  assert _scalars(tmp_path) == {('train_loss', s): v for s, v in ((0, 0.0), (5, 5.0), (10, 10.0), (15, 99.0))}


def test_tensorboard_can_be_switched_on_for_an_existing_run(tmp_path):
  pytest.importorskip('tensorboardX')
  train_and_evaluate(_config(), tmp_path)
  train_and_evaluate(_config(tensorboard=True), tmp_path)  # finished: neither refused nor run again


class _FakeWandb(types.ModuleType):
  """Records the logged metrics, like the service."""

  def __init__(self):
    super().__init__('wandb')
    self.__spec__ = types.SimpleNamespace()
    self.runs = {}
    self.inits = []

  def init(self, **arguments):
    self.inits.append(arguments)
    logged = self.runs.setdefault(arguments['id'], {})

    class Run:
      step = max(logged, default=-1) + 1
      log = staticmethod(lambda numbers, step: logged.__setitem__(step, numbers))
      __enter__ = lambda self: self
      __exit__ = lambda self, *_: None

    return Run()


def test_wandb_gets_the_metrics_also_of_a_resumed_run(tmp_path, monkeypatch):
  fake = _FakeWandb()
  monkeypatch.setitem(sys.modules, 'wandb', fake)
  monkeypatch.setenv('WANDB_PROJECT', 'mine')
  config = _config(wandb=True)
  (tmp_path / 'wandb_id').touch()  # as a kill, or a power failure, leaves it
  train_and_evaluate(config, tmp_path)
  (logged,) = fake.runs.values()
  assert {(tag, step): v for step, numbers in logged.items() for tag, v in numbers.items()} == _expected(
    _lines(tmp_path)
  )
  (arguments,) = fake.inits
  assert arguments['project'] == 'mine' and arguments['id'] and arguments['config']['period'] == 5

  with writers.open_writers(config, tmp_path, _lines(tmp_path)) as write:
    write({'step': 25, 'train_loss': 1.0})
  assert len(fake.runs) == 1
  assert list(logged) == [0, 5, 10, 15, 20, 25]


@pytest.mark.parametrize('field, package', [('tensorboard', 'tensorboardX'), ('wandb', 'wandb')])
def test_a_missing_package_is_reported_before_anything_is_written(field, package, tmp_path, monkeypatch):
  monkeypatch.setattr(writers.importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(UserError, match=f'{field}=True needs the package {package}: pip install {package}'):
    train_and_evaluate(_config(**{field: True}), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
