"""Runs that send in fragments, with a delay and with few bits: their peak traffic, and their time over a slow link."""

import dataclasses
import json
import statistics
from typing import Any

from benchmarks import measure
from benchmarks.network import less_to_send
from benchmarks.network.report import link, training
from results.builder.summaries import Summary
from vrl_jax.accounting.peak import peak_bytes
from vrl_jax.errors import UserError
from vrl_jax.report import names, series
from vrl_jax.report.records import Run, Sweep
from vrl_jax.report.specs import Figure

HOSTS, BANDWIDTH = 2, 1e7
SECONDS = f'seconds on {HOSTS} hosts at {link(BANDWIDTH)}'
"""The metric that `over_slow_link` adds: what the local steps so far take between hosts with such links."""
FIGURE = 'loss_seconds'


def way(run: Run) -> less_to_send.Way:
  """How a run sends its models."""
  return less_to_send.Way(*(run.config[field] for field in less_to_send.Way._fields))


def step_seconds(run: Run) -> float:
  """The measured time of a local step of LeNet that is sent in the same way over slow links."""
  found = [point for point in _points() if point['algorithm'] == way(run).flags(run.algorithm)]
  if not found:
    raise UserError(f'{run.name}: {less_to_send.STORED.name} has no such point at {link(BANDWIDTH)}; measure it')
  return training(found[0]).seconds


def _points() -> list[dict[str, Any]]:
  stored = json.loads(less_to_send.STORED.read_text())['points']
  return [p for p in stored if (p['task'], p['hosts'], p['bandwidth']) == ('lenet', HOSTS, BANDWIDTH)]


def over_slow_link(summary: Summary) -> Sweep:
  """The sweep with the metric `SECONDS`."""
  timed = [
    dataclasses.replace(
      run, metrics=tuple(dict(line) | {SECONDS: line['step'] * step_seconds(run)} for line in run.metrics)
    )
    for run in summary.sweep.runs
  ]
  return dataclasses.replace(summary.sweep, runs=tuple(timed))


def seconds_figure() -> Figure:
  """The train loss against the seconds over slow links."""
  return Figure(FIGURE, 'train_loss', (SECONDS,))


def sending_table(summary: Summary) -> str:
  """What each run sends: bytes of a round, and in the busiest tenth of a period; its time over slow links."""
  period = summary.sweep.runs[0].config['period']
  window = max(1, period // 10)
  titles = ['run', 'sent per round', f'mean of {window} steps', f'peak of {window} steps', 'peak : mean']
  rows = [[*titles, 'train loss', 'sent', f'ms per step, {HOSTS} hosts, {link(BANDWIDTH)}']]
  for line in series.make_lines(summary.sweep.runs, series.facets(summary.sweep.runs)):
    run = line.runs[0]
    sent = run.final('bytes_communicated') / run.final('communications')
    how, mean = way(run), sent * window / period
    peak = peak_bytes(sent, period, window, fragments=how.fragments, delay=how.delay)
    loss = statistics.fmean(one.final('train_loss') for one in line.runs)
    cells = [line.name, *map(names.format_bytes, (sent, mean, peak)), f'{peak / mean:.1f}', names.format_number(loss)]
    rows.append([*cells, names.format_bytes(run.final('bytes_communicated')), f'{1e3 * step_seconds(run):.1f}'])
  return measure.table(rows)


def slow_hosts(summary: Summary) -> str:
  """The number of hosts of the slow network."""
  del summary
  return str(HOSTS)


def slow_link(summary: Summary) -> str:
  """The bandwidth of the links of the slow network."""
  del summary
  return link(BANDWIDTH)


def bytes_ratio(summary: Summary, run: str, other: str) -> str:
  """The bytes that another run has sent divided by those of a run."""
  return f'{_final(summary, other) / _final(summary, run):.2f}'


def _final(summary, name):
  lines = series.make_lines(summary.sweep.runs, series.facets(summary.sweep.runs))
  found = [line for line in lines if line.name == name]
  if not found:
    raise UserError(f'{summary.name}: unknown run {name!r}, must be one of {", ".join(line.name for line in lines)}')
  return statistics.fmean(run.final('bytes_communicated') for run in found[0].runs)
