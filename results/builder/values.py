"""The functions of the template, which calls them between double braces: `{{loss lenet_mnist VRL-SGD}}`.

The first word is one of `FUNCTIONS`, the second is the name of a summary, and the others are further arguments (in
quotes if they contain spaces). A run is named as in the tables, without its seed: values are means over the seeds.
"""

import inspect
import statistics
from collections.abc import Callable

import numpy as np

from results.builder import figures, published, published_values, sending
from results.builder.summaries import Summary
from vrl_jax import report
from vrl_jax.errors import UserError
from vrl_jax.report import names, series, specs
from vrl_jax.report.tables import loss_ratio

_DATA = {
  'mnist': 'all of MNIST',
  'mnist_5k': 'the embedded 4,000 digits of MNIST',
  'textcnn_dbpedia': 'a class-balanced part of DBPedia-14, which has 560,000 training rows, with GloVe vectors of 50 '
  'dimensions',
  'mlp_tiny_imagenet': 'Inception V3 features of a part of Tiny ImageNet, which has 100,000 training images',
  'quadratic': 'none: two quadratics in float64',
}


def run_info(summary: Summary) -> str:
  """The command of a sweep, its data, length, seeds and wall-clock time."""
  run = summary.sweep.runs[0]
  data = ['--config.data_dir=DATA'] if run.config['task'] != 'quadratic' and _dataset(run) != 'mnist_5k' else []
  arguments = [f"'{word}'" if '(' in word else word for word in summary.arguments]
  command = ' '.join(['python launch.py', *arguments, *data, f'--workdir=runs/{summary.name}'])
  length = f'{run.config["epochs"]:g} epochs' if run.config['epochs'] else f'{run.config["steps"]:,} steps'
  examples = f' ({summary.examples:,} training examples)' if _dataset(run) not in ('mnist_5k', 'quadratic') else ''
  seeds = sorted({run.config['seed'] for run in summary.sweep.runs})
  facts = [
    f'Data: {_DATA[_dataset(run)]}{examples}.',
    f'{len(summary.sweep.runs)} runs of {length}, seed{"s" * (len(seeds) > 1)} {" and ".join(map(str, seeds))}.',
    f'Wall-clock: {_minutes(summary)}.',
    f'Stored in `results/data/summaries/{summary.name}.jsonl`.',
  ]
  return f'```sh\n{command}\n```\n\n{" ".join(facts)}'


def table(summary: Summary) -> str:
  """The comparison table, without the seconds of each run, which depend on other work on the machine."""
  return report.comparison_table(summary.sweep, 'markdown', without=('seconds', 'status'))


def figure(summary: Summary, name: str) -> str:
  """A Markdown image of a figure, which `make results` draws."""
  specs_found = [*specs.figures(summary.sweep, None), sending.seconds_figure()]
  found = [one for one in specs_found if one.name == name]
  words = specs.describe(found[0]) if found else name
  return f'![{summary.sweep.title}: {words}](results/figures/{figures.file_name(summary, name)})'


def final(summary: Summary, run: str, metric: str) -> str:
  """The final value of a metric."""
  value = _mean(summary, run, metric)
  if metric == 'bytes_communicated':
    return names.format_bytes(value)
  if metric == 'communications':
    return f'{value:,.0f}'
  return f'{value:.2f} %' if metric.endswith('accuracy') else names.format_number(value, 3)


def loss(summary: Summary, run: str) -> str:
  """The final train loss."""
  return names.format_number(_mean(summary, run, 'train_loss'))


def initial_loss(summary: Summary) -> str:
  """The train loss before the first step, which is the same for all algorithms; one value per seed."""
  values = {run.column('train_loss')[0] for run in summary.sweep.runs}
  return ' and '.join(names.format_number(value) for value in sorted(values))


def ratio(summary: Summary, run: str, other: str | None = None) -> str:
  """The final train loss divided by S-SGD's (the mean of the ratios over the seeds) or by another run's."""
  if other is not None:
    return f'{_mean(summary, run, "train_loss") / _mean(summary, other, "train_loss"):.2f}'
  return f'{statistics.fmean(_ratios(summary, run)):.2f}'


def largest_ratio(summary: Summary, run: str) -> str:
  """The largest `ratio` over the seeds."""
  return f'{max(_ratios(summary, run)):.3f}'


def communication_ratio(summary: Summary, run: str, other: str) -> str:
  """The communications of another run divided by those of a run."""
  return f'{_mean(summary, other, "communications") / _mean(summary, run, "communications"):.1f}'


def epoch_reaching(summary: Summary, run: str, other: str) -> str:
  """The first epoch at which the mean train loss of a run is at most the final one of another."""
  curve = series.curve(_line(summary, run).runs, 'epoch', 'train_loss')
  reached = np.flatnonzero(curve.mean <= _mean(summary, other, 'train_loss'))
  return f'{curve.x[reached[0]]:.0f}' if len(reached) else 'never'


def loss_at(summary: Summary, run: str, epoch: str) -> str:
  """The train loss after an epoch."""
  return names.format_number(published.loss_at(_line(summary, run).runs, float(epoch)), 3)


def setting(summary: Summary, field: str) -> str:
  """The value of a config field that all runs share."""
  values = {names.format_value(run.config[field]) for run in summary.sweep.runs}
  if len(values) > 1:
    raise UserError(f'{summary.name}: the runs differ in {field}: {", ".join(sorted(values))}')
  return values.pop()


FUNCTIONS: dict[str, Callable[..., str]] = {
  function.__name__: function
  for function in (
    *(run_info, table, figure, final, loss, initial_loss, loss_at, ratio, largest_ratio, setting),
    *(communication_ratio, epoch_reaching, published_values.published_loss, published_values.published_ratio),
    *(published_values.published_table, published_values.rising_epochs, sending.sending_table, sending.bytes_ratio),
    *(sending.slow_hosts, sending.slow_link),
  )
}


def call(summary: Summary, function: str, arguments: list[str]) -> str:
  """Calls a function by its name; raises UserError if there is no such function or the arguments do not fit."""
  if function not in FUNCTIONS:
    raise UserError(f'unknown function {function!r}, must be one of {", ".join(FUNCTIONS)}')
  try:
    inspect.signature(FUNCTIONS[function]).bind(summary, *arguments)
  except TypeError as error:
    raise UserError(f'{function}: {error}') from None
  return FUNCTIONS[function](summary, *arguments)


def _line(summary, run):
  lines = series.make_lines(summary.sweep.runs, series.facets(summary.sweep.runs))
  found = [line for line in lines if line.name == run]
  if not found:
    raise UserError(f'{summary.name}: unknown run {run!r}, must be one of {", ".join(line.name for line in lines)}')
  return found[0]


def _mean(summary, run, metric):
  values = [one.final(metric) for one in _line(summary, run).runs]
  if None in values:
    raise UserError(f'{summary.name}: {run} has no metric {metric!r}')
  return statistics.fmean(values)


def _ratios(summary, run):
  return [loss_ratio(one, summary.sweep.runs) for one in _line(summary, run).runs]


def _dataset(run):
  return run.config.get('dataset') or run.config['task']


def _minutes(summary):
  minutes = sum(run.final('seconds') for run in summary.sweep.runs) / 60
  return (
    f'{minutes:.0f} minutes' if minutes >= 1.5 else 'a minute' if minutes >= 0.75 else f'{60 * minutes:.0f} seconds'
  )
