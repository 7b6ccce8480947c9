"""The network benchmark: hosts in network namespaces, counted bytes, clean-up, and the stored results."""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from support.launches import TIMEOUT

from benchmarks.network import RESULTS, ROOT, figure, islands, namespaces, points, report, runs
from vrl_jax.accounting.cost_model import TCP_OVERHEAD

_REASON = namespaces.why_unavailable()
needs_namespaces = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))

_SEND = 'import socket, sys; s = socket.create_connection((sys.argv[1], 9000)); s.sendall(bytes(1_000_000)); s.close()'
_RECEIVE = """
import socket, time
server = socket.create_server(("", 9000))
print("ready", flush=True)
connection, _ = server.accept()
start, received = time.perf_counter(), 0
while part := connection.recv(65536):
  received += len(part)
print(received, time.perf_counter() - start)
"""


def _leftovers(pid=None):
  """The namespaces and files in /etc/netns of a process, by default of this one."""
  pid = pid or os.getpid()
  return namespaces.names(pid), sorted(pathlib.Path('/etc/netns').glob(f'vrl{pid}-*'))


def _transfer(sender, receiver):
  """Sends 1,000,000 bytes from one host to the other: (received bytes, seconds)."""
  listening = subprocess.Popen(
    receiver.command([sys.executable, '-c', _RECEIVE]), stdout=subprocess.PIPE, text=True, start_new_session=True
  )
  with listening:
    assert listening.stdout.readline() == 'ready\n'
    subprocess.run(sender.command([sys.executable, '-c', _SEND, receiver.address]), check=True, timeout=TIMEOUT)
    received, seconds = listening.communicate(timeout=TIMEOUT)[0].split()
  return int(received), float(seconds)


@needs_namespaces
def test_hosts_reach_each_other_and_their_bytes_are_counted():
  with namespaces.network(3) as hosts:
    hosts[2].limit(2e7)
    assert [host.sent() for host in hosts][2] < 1000
    received, seconds = _transfer(hosts[2], hosts[0])
    assert received == 1_000_000
    assert seconds > 0.9 * 0.4  # 8 Mbit at 20 Mbit/s: it cannot be faster than the link
    assert 1_000_000 * TCP_OVERHEAD * 0.99 < hosts[2].sent() < 1_000_000 * TCP_OVERHEAD * 1.1
    assert hosts[1].sent() < 10_000 and hosts[0].sent() < 200_000  # acknowledgements
    assert [host.dropped() for host in hosts] == [0, 0, 0]
  assert _leftovers() == ([], [])


@needs_namespaces
def test_an_exception_removes_the_hosts_and_kills_their_processes():
  with pytest.raises(ZeroDivisionError), namespaces.network(2) as hosts:
    running = subprocess.Popen(hosts[0].command(['sleep', '1000']), start_new_session=True)
    while not subprocess.run(['ip', 'netns', 'pids', hosts[0].name], capture_output=True).stdout:
      time.sleep(0.01)
    raise ZeroDivisionError
  assert running.wait(timeout=TIMEOUT) == -signal.SIGKILL
  assert _leftovers() == ([], [])


_HOLD = """
import time
from benchmarks.network import namespaces
with namespaces.network(2):
  print("created", flush=True)
  time.sleep(1000)
"""


@needs_namespaces
@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_removes_the_hosts(signum):
  environment = os.environ | {'PYTHONPATH': str(ROOT)}
  pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.DEVNULL, 'text': True, 'env': environment}
  with subprocess.Popen([sys.executable, '-c', _HOLD], start_new_session=True, **pipes) as process:
    assert process.stdout.readline() == 'created\n'
    assert len(namespaces.names(process.pid)) == 3
    try:
      process.send_signal(signum)
      process.wait(timeout=TIMEOUT)
    finally:
      process.kill()
  if signum == signal.SIGKILL:  # the next `network` does it
    assert len(namespaces.names(process.pid)) == 3
    namespaces.remove_leftovers()
  assert _leftovers(process.pid) == ([], [])


def test_without_iproute2_it_is_skipped_with_a_message(monkeypatch):
  monkeypatch.setenv('PATH', '/nonexistent')
  assert namespaces.why_unavailable() == 'no program ip and tc: install iproute2'
  assert points.run(quick=True) == 'skipped: no program ip and tc: install iproute2'


@pytest.mark.slow
@needs_namespaces
def test_bytes_of_training_on_two_hosts(tmp_path):
  flags = ['--config=configs/lenet_mnist.py', '--config.dataset=mnist_5k', '--config.init_epochs=0.0']
  flags += ['--config.algorithm=vrl_sgd', '--config.period=5', '--config.workers=2', '--config.devices=2']
  steps_per_epoch = 4000 // 2 // 32
  with namespaces.network(2) as hosts:
    run = lambda steps: runs.launch(
      hosts, flags, epochs=steps / steps_per_epoch, bandwidth=1e8, start=tmp_path, timeout=180
    )
    short, long = run(20), run(60)
  assert (short.steps, short.timed_steps, long.steps, long.timed_steps) == (20, 10, 60, 30)
  assert long.dropped == 0
  # rounds of LeNet's 61,706 parameters; 2(D−1)/D = 1
  step = runs.training(short, long)
  assert step.bytes_communicated * 5 == 61_706 * 4
  assert step.sent / 2 == pytest.approx(step.bytes_communicated * TCP_OVERHEAD, rel=0.15)
  assert long.seconds > short.seconds
  assert long.seconds > 6 * 61_706 * 4 * 8 / 1e8
  assert _leftovers() == ([], [])


@pytest.mark.slow
@needs_namespaces
def test_a_failed_run_is_reported_with_its_output(tmp_path):
  flags = ['--config=configs/lenet_mnist.py', '--config.dataset=mnist_6k']
  with pytest.raises(subprocess.CalledProcessError) as failed, namespaces.network(2) as hosts:
    runs.launch(hosts, flags, epochs=1.0, bandwidth=None, start=tmp_path, timeout=TIMEOUT)
  assert 'mnist_6k' in failed.value.stderr
  assert _leftovers() == ([], [])


def _point(algorithm, bandwidth, seconds, sent, **more):
  """A point whose plain steps take `seconds` and send `sent` bytes per host."""
  run = lambda steps: {
    'steps': steps,
    'timed_steps': steps // 2,
    'seconds': 3.0 + seconds * (steps // 2),
    'sent': 700 + 2 * sent * steps,
    'inside': 0,
    'bytes_communicated': 10 * steps,
    'dropped': 0,
    'train_loss': 1.0,
  }
  about = {'task': 'lenet', 'algorithm': algorithm, 'bandwidth': bandwidth, 'hosts': 2, 'devices': 2, 'workers': 8}
  fixed = {'payload': 1_000_000, 'steps_per_epoch': 15, 'period': 20, 'loss': 0.5, 'steps_to_loss': 100, 'busy': False}
  return about | fixed | {'short': run(40), 'long': run(100)} | more


def test_costs_common_to_both_runs_cancel_out():
  point = _point('vrl_sgd', 1e7, 0.05, 500)
  step = report.training(point)
  assert (step.seconds, step.sent) == (pytest.approx(0.05), pytest.approx(1000))
  assert report.seconds_to_loss(point) == pytest.approx(5.0)
  assert report.is_complete(point)
  assert not report.is_complete(point | {'steps_to_loss': 101})


def test_cost_model_adds_the_ring_to_the_step_over_unlimited_links():
  # 1 MB at 8 Mbit/s with headers: 1.0456 s, in every step or once in 20
  unlimited = _point('s_sgd', None, 0.05, 0)
  assert report.predicted(_point('s_sgd', 8e6, 1.0, 0), unlimited) == pytest.approx(0.05 + TCP_OVERHEAD)
  assert report.predicted(_point('vrl_sgd', 8e6, 1.0, 0), unlimited) == pytest.approx(0.05 + TCP_OVERHEAD / 20)
  shown = report.model_table([unlimited, _point('s_sgd', 8e6, 2 * (0.05 + TCP_OVERHEAD), 0)])
  assert '| -50 % |' in shown


def test_long_runs_are_extrapolated_and_short_ones_extended():
  assert points.steps_to_run('s_sgd', 220, 9_200_000, 1e8) == 220
  assert points.steps_to_run('s_sgd', 220, 9_200_000, 1e7) == 24
  assert points.steps_to_run('vrl_sgd', 260, 9_200_000, 1e7) == 260
  assert points.steps_to_run('vrl_sgd', 260, 247_000, None) == 400


def _stored():
  return json.loads(RESULTS.read_text())


def test_the_page_has_the_stored_results():
  page = report.PAGE.read_text()
  assert report.with_parts(page, _stored()) == page
  assert figure.FIGURE.stat().st_size < 100_000


def test_every_setting_was_measured_and_none_lost_a_packet():
  timed = [point for point in _stored()['points'] if 'loss' in point]
  measured = {(point['task'], point['algorithm'], point['bandwidth']) for point in timed}
  assert measured == set(itertools.product(('lenet', 'mlp'), points.ALGORITHMS, points.BANDWIDTHS))
  for point in timed:
    assert point['short']['dropped'] == point['long']['dropped'] == 0
    if report.is_complete(point):  # the trajectory is that of one process
      assert point['long']['train_loss'] <= point['loss']


def test_bytes_on_the_wire_are_those_of_the_ring():
  layouts = [point for point in _stored()['points'] if 'loss' not in point]
  assert {(point['hosts'], point['devices'], point['workers']) for point in layouts} == set(points.LAYOUTS)
  for point in layouts:
    step = report.training(point)
    assert step.sent / point['hosts'] == pytest.approx(report.wire_bytes(point), rel=0.15)
    if point['devices'] == point['workers']:  # which bytes_communicated assumes
      assert step.bytes_communicated == pytest.approx(report.ring_bytes(point))


def test_only_the_models_cross_the_link_between_islands():
  of_setting = {
    tuple(point[name] for name in ('algorithm', 'devices_per_worker', 'island')): point
    for point in islands.stored()['points']
  }
  assert tuple(of_setting) == islands.SETTINGS
  for (_, size, _), point in of_setting.items():
    step = islands.per_step(point)
    assert step.sent / islands.HOSTS == pytest.approx(islands.wire(point), rel=0.15)
    if size > 1:  # gradients, or parts of the model, at every step
      assert step.inside / islands.HOSTS > 4 * islands.PARAMETERS
    else:
      assert step.inside < 1000
    assert point['short']['dropped'] == point['long']['dropped'] == 0


def test_on_a_slow_link_vrl_sgd_reaches_the_loss_long_before_s_sgd():
  seconds = {
    point['algorithm']: report.seconds_to_loss(point)
    for point in _stored()['points']
    if (point['task'], point['bandwidth']) == ('mlp', 1e8)
  }
  assert seconds['s_sgd'] > 3 * seconds['vrl_sgd']
