"""The network benchmark of fragments, delays and few bits: its formulas, its table, and the stored points."""

import json

import pytest

from benchmarks.network import ROOT, less_to_send, report
from benchmarks.network.less_to_send import WAYS, Way
from vrl_jax.accounting.cost_model import TCP_OVERHEAD


def _point(way, bandwidth, seconds, hosts=2, workers=8):
  run = lambda steps: {
    'steps': steps,
    'timed_steps': steps // 2,
    'seconds': 3.0 + seconds * (steps // 2),
    'sent': 700 + hosts * 1000 * steps,
    'inside': 0,
    'bytes_communicated': 10 * steps,
    'dropped': 0,
    'train_loss': 1.0,
  }
  about = {'task': 'mlp', 'algorithm': way.flags('vrl_sgd'), 'bandwidth': bandwidth, 'hosts': hosts, 'devices': hosts}
  fixed = {'workers': workers, 'payload': 1_000_000, 'steps_per_epoch': 15, 'period': 20, 'loss': 0.5}
  return about | fixed | {'steps_to_loss': 100, 'others': 0.02, 'short': run(40), 'long': run(100)}


def test_a_point_tells_how_it_was_sent():
  for way in WAYS.values():
    assert less_to_send.way_of(_point(way, None, 0.1)) == way
  assert Way(4, 5, 4).flags('diloco') == 'diloco fragments=4 delay=5 bits=4'


def test_bytes_of_a_round_by_the_formula():
  sent = lambda way, **kwargs: less_to_send.sent_by_formula(_point(way, 1e8, 0.1, **kwargs))
  assert sent(Way(fragments=4, delay=5)) == 1_000_000
  assert sent(Way(bits=8), workers=2) == 1_000_000 * (8 + 32 / 256) / 32
  assert sent(Way(bits=4), hosts=4, workers=8) == 2 * 3 / 4 * 1.5 * 1_000_000 * (4 + 32 / 256) / 32


def test_the_cost_model_hides_transfers_behind_local_steps():
  # A quarter of 1 MB takes 0.25 s · 1.0456 at 8 Mbit/s, and five steps 0.2 s.
  way, ring = Way(fragments=4, delay=5), TCP_OVERHEAD
  unlimited = _point(way, None, 0.04)
  assert less_to_send.predicted(_point(way, 8e6, 1.0), unlimited) == pytest.approx(0.04 + 4 * (ring / 4 - 0.2) / 20)
  at_once = Way(fragments=4)
  unlimited = _point(at_once, None, 0.04)
  assert less_to_send.predicted(_point(at_once, 8e6, 1.0), unlimited) == pytest.approx(0.04 + ring / 20)


def test_the_table_has_the_hidden_time_and_the_gain():
  found = [
    _point(way, bandwidth, seconds)
    for way, bandwidth, seconds in (
      (Way(), 8e6, 0.10),
      (Way(fragments=4), 8e6, 0.09),
      (Way(fragments=4, delay=5), 8e6, 0.05),
      (Way(fragments=4, delay=5), None, 0.04),
    )
  ]
  rows = [[cell.strip() for cell in line.split('|')[1:-1]] for line in less_to_send.table(found).splitlines()]
  titles, delayed = rows[0], rows[4]
  assert delayed[titles.index('hidden')] == '80%'  # 0.05 s of communication, of which 0.01 s are waited for
  assert delayed[titles.index('times sooner')] == '2.00'
  assert rows[2][titles.index('times sooner')] == '1.00'
  assert rows[5][titles.index('hidden')] == '–'


def _stored():
  return json.loads(less_to_send.STORED.read_text())


def test_the_readme_has_the_stored_points():
  assert less_to_send.tables(_stored()) in (ROOT / 'benchmarks' / 'README.md').read_text()


def test_bytes_at_the_interfaces_are_those_of_the_formula():
  found = _stored()['points']
  assert {less_to_send.way_of(point) for point in found} >= {Way(), Way(bits=4)}
  for point in found:
    sent = report.training(point).sent * point['period'] / point['hosts']
    assert sent == pytest.approx(TCP_OVERHEAD * less_to_send.sent_by_formula(point), rel=0.1)
    assert point['short']['dropped'] == point['long']['dropped'] == 0
