"""Template functions that compare a sweep with the published curves; see `values.py`."""

import numpy as np

from results.builder import published
from results.builder.summaries import Summary
from vrl_jax.report import names


def published_loss(summary: Summary, algorithm: str, epoch: str, partition: str | None = None) -> str:
  """The published train loss after an epoch, with the partition of the sweep or the given one (`identical`)."""
  curves = published.matching(summary.sweep) if partition is None else published.references(partition == 'identical')
  return names.format_number(curves[algorithm].columns['train_loss'][int(epoch)], 4)


def published_ratio(summary: Summary, algorithm: str, epoch: str) -> str:
  """The published train loss after an epoch divided by that of S-SGD."""
  losses = {key: one.columns['train_loss'][int(epoch)] for key, one in published.matching(summary.sweep).items()}
  return f'{losses[algorithm] / losses["s_sgd"]:.2f}'


def published_table(summary: Summary) -> str:
  """A table of our and the published train losses, with their mean and largest relative difference over all epochs."""
  last = max(int(run.column('epoch')[-1]) for run in summary.sweep.runs)
  epochs = [epoch for epoch in (1, 5, 10, 20, 30, 60, 98) if epoch <= last]
  head = ['', *(f'epoch {epoch}' for epoch in epochs), f'mean of 1–{last}', 'largest']
  rows = [head, ['---', *['---:'] * (len(head) - 1)]]
  for algorithm, reference in published.matching(summary.sweep).items():
    distances = published.distances(summary.sweep, algorithm)
    ours = [run for run in summary.sweep.runs if run.algorithm == algorithm]
    pairs = ((published.loss_at(ours, e), reference.columns['train_loss'][e]) for e in epochs)
    cells = [f'{our_loss:.4f} / {their_loss:.4f}' for our_loss, their_loss in pairs]
    rows.append([names.algorithm(algorithm), *cells, _percent(distances.mean()), _percent(distances.max())])
  return '\n'.join('| ' + ' | '.join(row) + ' |' for row in rows)


def rising_epochs(summary: Summary, algorithm: str, source: str) -> str:
  """The epochs after which the train loss, of source `ours` or `published`, is higher than after the epoch before."""
  runs = [run for run in summary.sweep.runs if run.algorithm == algorithm]
  last = int(min(run.column('epoch')[-1] for run in runs) + 1e-6)
  if source == 'published':
    losses = published.matching(summary.sweep)[algorithm].columns['train_loss'][: last + 1]
  else:
    losses = np.array([published.loss_at(runs, epoch) for epoch in range(last + 1)])
  epochs = [str(epoch) for epoch in 1 + np.flatnonzero(np.diff(losses) > 0)]
  return ' and '.join([', '.join(epochs[:-1]), epochs[-1]] if len(epochs) > 1 else epochs) or 'none'


def _percent(log_ratio):
  return f'{100 * np.expm1(log_ratio):.1f} %'
