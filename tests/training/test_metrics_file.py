"""The log lines up to a checkpoint are kept; what comes after them is dropped, however damaged it is."""

import json
import random
import tracemalloc

import pytest

from vrl_jax.engine.periods import make_periods
from vrl_jax.errors import DataError
from vrl_jax.training.log_points import LogSteps
from vrl_jax.training.metrics_file import keep_lines_until, read_lines

STEPS = (0, 10, 20, 30, 40)
LINES = [json.dumps({'step': step, 'epoch': step / 7, 'train_loss': 1 / (1 + step)}).encode() + b'\n' for step in STEPS]
KEPT, DROPPED = b''.join(LINES[:3]), b''.join(LINES[3:])  # a checkpoint of step 25


def log_steps():
  return LogSteps(make_periods(40, 5), interval=10)


@pytest.fixture
def path(tmp_path):
  return tmp_path / 'metrics.jsonl'


def keep(path, content, step=25):
  path.write_bytes(content)
  return keep_lines_until(path, step, log_steps())


AFTER = {
  'nothing': b'',
  'intact lines': DROPPED,
  'half a line': LINES[3][:17],
  'bytes that are not UTF-8': b'\xff\xfe\x00',
  'a line that is not UTF-8': b'{"step": 30, "train_loss": "\xc3"}\n' + LINES[4],
  'zeros': bytes(5000),
  'no JSON': b'step 30\n' + LINES[4],
  'no object': b'[30]\n40\nnull\n',
  'deep JSON': b'[' * 100_000 + b'\n',
  'a huge integer': b'{"step": ' + b'9' * 5000 + b'}\n',
  'an earlier step': LINES[1] + LINES[3],
  'the last line again': LINES[2] + LINES[3],
  'another step': b'{"step": 22}\n' + LINES[3],
  'a step that is no integer': b'{"step": "30"}\n',
  'empty lines': b'\n\n\n',
  'carriage returns': LINES[3][:-1] + b'\r\n',
}


@pytest.mark.parametrize('after', AFTER)
def test_whatever_comes_after_the_checkpoint_is_dropped(after, path):
  assert keep(path, KEPT + AFTER[after])['step'] == 20
  assert path.read_bytes() == KEPT


def test_flipped_bits_after_the_checkpoint(path):
  rng = random.Random(0)
  for _ in range(300):
    content = bytearray(DROPPED)
    for _ in range(rng.randint(1, 4)):
      content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    assert keep(path, KEPT + content)['step'] == 20
    assert path.read_bytes() == KEPT


@pytest.mark.parametrize(
  'content, message',
  [
    (LINES[0] + b'\xff\xfe\n' + LINES[2], r"line 2 is damaged: '\\xff\\xfe'; repair it to resume"),
    (LINES[0] + LINES[1][:9] + b'\n' + LINES[2], r"line 2 is damaged: '\{\"step\": '"),
    (LINES[0] + LINES[1] + LINES[2][:-3], 'line 3 is damaged'),
    (LINES[0] + b'[' * 100_000 + b'\n', 'line 2 is damaged'),
    (LINES[0] + b'{"step": 10, "train_loss": "low"}\n' + LINES[2], 'line 2 is damaged'),
    (LINES[0] + b'{"step": true}\n', 'line 2 is damaged'),
    (LINES[0] + LINES[2], r'lines up to step 25 do not match the run \(see step 10\); restore the file to resume'),
    (LINES[0] + LINES[0] + LINES[1], r'do not match the run \(see step 0\)'),
    (LINES[0] + LINES[1], r'do not match the run \(see step 20\)'),
    (b'', r'do not match the run \(see step 0\)'),
  ],
)
def test_damage_before_the_checkpoint_is_one_line_and_changes_nothing(content, message, path):
  with pytest.raises(DataError, match=rf'^{path}: .*{message}') as caught:
    keep(path, content)
  assert '\n' not in str(caught.value) and len(str(caught.value)) < 300
  assert path.read_bytes() == content


def test_flipped_bits_before_the_checkpoint(path):
  """A digit can become another one; everything else is noticed."""
  rng = random.Random(0)
  for _ in range(300):
    content = bytearray(KEPT)
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    damaged = bytes(content) + DROPPED
    try:
      assert keep(path, damaged)['step'] == 20
    except DataError:
      assert path.read_bytes() == damaged
    else:
      assert [row['step'] for row in read_lines(path)] == [0, 10, 20]


def test_a_line_feed_that_an_editor_has_removed_is_added(path):
  assert keep(path, KEPT[:-1])['step'] == 20
  assert path.read_bytes() == KEPT


def test_without_a_checkpoint_no_line_is_kept(path):
  assert keep_lines_until(path, -1, log_steps()) is None
  assert keep(path, b'\xff' + KEPT, step=-1) is None
  assert path.read_bytes() == b''


def test_the_lines_are_not_kept_in_memory(path):
  """The memory for 20,000 lines is that of a few."""
  steps = 20_000
  path.write_text(''.join(f'{{"step": {step}, "train_loss": 0.5, "x": "{"y" * 300}"}}\n' for step in range(steps + 1)))
  tracemalloc.start()
  try:
    assert keep_lines_until(path, steps, LogSteps(make_periods(steps, 1), interval=1))['step'] == steps
    assert sum(1 for _ in read_lines(path)) == steps + 1
    _, peak = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert peak < 300_000 < path.stat().st_size / 20
