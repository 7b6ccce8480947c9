"""Values of the text that compare a sweep with the published curves; see `values.py`."""

import numpy as np

from results import published
from results.summaries import Summary
from vrl_jax.report import names


def theirs(summary: Summary, algorithm: str, epoch: str, case: str | None = None) -> str:
  """The published train loss after an epoch, in the sweep's case or `identical` data's."""
  curves = published.of(summary.sweep) if case is None else published.references(case == 'identical')
  return names.number(curves[algorithm].columns['train_loss'][int(epoch)], 4)


def closeness(summary: Summary) -> str:
  """A table: our train loss and the published one, and how far apart they are over all epochs."""
  last = max(int(run.column('epoch')[-1]) for run in summary.sweep.runs)
  epochs = [epoch for epoch in (1, 5, 10, 20, 30, 60, 98) if epoch <= last]
  head = ['', *(f'epoch {epoch}' for epoch in epochs), f'mean of 1–{last}', 'largest']
  rows = [head, ['---', *['---:'] * (len(head) - 1)]]
  for algorithm, reference in published.of(summary.sweep).items():
    far = published.distances(summary.sweep, algorithm)
    ours = [run for run in summary.sweep.runs if run.algorithm == algorithm]
    pairs = ((published.loss_after(ours, e), reference.columns['train_loss'][e]) for e in epochs)
    cells = [f'{here:.4f} / {there:.4f}' for here, there in pairs]
    rows.append([names.algorithm(algorithm), *cells, _percent(far.mean()), _percent(far.max())])
  return '\n'.join('| ' + ' | '.join(row) + ' |' for row in rows)


def rises(summary: Summary, algorithm: str, whose: str) -> str:
  """The epochs of the sweep after which `our` or `their` train loss is higher than after the epoch before."""
  runs = [run for run in summary.sweep.runs if run.algorithm == algorithm]
  last = int(min(run.column('epoch')[-1] for run in runs) + 1e-6)
  theirs = published.of(summary.sweep)[algorithm].columns['train_loss'][: last + 1]
  losses = theirs if whose == 'their' else [published.loss_after(runs, epoch) for epoch in range(last + 1)]
  epochs = [str(epoch) for epoch in 1 + np.flatnonzero(np.diff(losses) > 0)]
  return ' and '.join([', '.join(epochs[:-1]), epochs[-1]] if len(epochs) > 1 else epochs) or 'none'


def their_ratio(summary: Summary, algorithm: str, epoch: str) -> str:
  """The published train loss by that of S-SGD after the same epoch."""
  losses = {key: one.columns['train_loss'][int(epoch)] for key, one in published.of(summary.sweep).items()}
  return f'{losses[algorithm] / losses["s_sgd"]:.2f}'


def _percent(logarithm):
  return f'{100 * np.expm1(logarithm):.1f} %'
