"""Runs that send in fragments, with a delay and with few bits: their peak traffic, and their modelled time over slow links."""

import dataclasses
import json
import statistics

from benchmarks import measure
from benchmarks.network import RESULTS, less_to_send
from benchmarks.network.report import link
from results.builder.summaries import Summary
from vrl_jax.accounting.peak import peak_bytes
from vrl_jax.errors import UserError
from vrl_jax.report import names, series
from vrl_jax.report.records import Run, Sweep
from vrl_jax.report.specs import Figure

HOSTS, BANDWIDTH = 2, 1e7
SECONDS = 'seconds'
"""The metric that `over_slow_link` replaces: the time of the local steps so far on such hosts, by the cost model."""
FIGURE = 'loss_seconds'
_WITH_THESE_STEPS = {'vrl_sgd': 'vrl_sgd', 'diloco': 'local_sgd'}


def way(run: Run) -> less_to_send.Way:
  """How a run sends its models."""
  return less_to_send.Way(*(run.config[field] for field in less_to_send.Way._fields))


def step_seconds(run: Run) -> float:
  """The time of a local step of LeNet by the cost model, from the time measured over unlimited links."""
  timed = _WITH_THESE_STEPS[run.algorithm]
  (unlimited,) = [
    point
    for point in json.loads(RESULTS.read_text())['points']
    if (point['task'], point['algorithm'], point['hosts'], point['bandwidth']) == ('lenet', timed, HOSTS, None)
    and 'loss' in point
  ]
  sent = unlimited | {'algorithm': way(run).flags(timed), 'bandwidth': BANDWIDTH, 'period': run.config['period']}
  return less_to_send.predicted(sent, unlimited)


def over_slow_link(summary: Summary) -> Sweep:
  """The sweep with the modelled metric `SECONDS`."""
  timed = [
    dataclasses.replace(
      run, metrics=tuple(dict(line) | {SECONDS: line['step'] * step_seconds(run)} for line in run.metrics)
    )
    for run in summary.sweep.runs
  ]
  return dataclasses.replace(summary.sweep, runs=tuple(timed))


def seconds_figure() -> Figure:
  """The train loss against the modelled seconds over slow links."""
  return Figure(FIGURE, 'train_loss', (SECONDS,), title=f'Seconds by the cost model, {HOSTS} hosts, {link(BANDWIDTH)}')


def sending_table(summary: Summary) -> str:
  """What each run sends: bytes of a round, and in the busiest tenth of a period; its time over slow links."""
  period = summary.sweep.runs[0].config['period']
  window = max(1, period // 10)
  titles = ['run', 'sent per round', f'mean of {window} steps', f'peak of {window} steps', 'peak : mean']
  rows = [[*titles, 'train loss', 'sent', f'ms per step by the model, {HOSTS} hosts, {link(BANDWIDTH)}']]
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
