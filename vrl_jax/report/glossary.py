"""One sentence about each metric, axis and column of a table, for the page's tooltips and its list of terms."""

from vrl_jax.report import names

METRICS = {
  'train_loss': 'Loss over the training data of all workers, of the averaged model (EASGD: of the centre).',
  'distance_to_optimum': 'Distance from the averaged model to the minimum of the mean loss, ‖x̂ − x*‖.',
  'squared_gradient': 'Squared norm of the gradient of the mean loss at the averaged model.',
  'test_loss': 'Loss over the test data, of the averaged model.',
  'train_accuracy': 'Accuracy over the training data of all workers, of the averaged model.',
  'test_accuracy': 'Accuracy over the test data, of the averaged model.',
  'consensus_distance': 'How far the workers have drifted apart: (1/N) Σ ‖xᵢ − x̂‖², before they average.',
  'variance_among_workers': 'How much the workers’ update directions gᵢ − Δᵢ differ: (1/N) Σ ‖vᵢ − v̄‖².',
  'correction_norm': 'Root mean square over the workers of ‖Δᵢ‖, the correction that is subtracted from the gradient.',
  'step_loss': 'Loss over the mini-batches since the last log point, of the workers’ own models.',
  'examples_per_second': 'Training examples of all workers per second, without compilation.',
}

AXES = {
  'epoch': 'Passes over the training data.',
  'step': 'Steps of every worker.',
  'communications': 'How often the workers have averaged.',
  'bytes_communicated': 'Counted from the compiled program, as each worker sends them in a ring all-reduce.',
  'seconds': 'Time since the start of the run, compilation and evaluation included.',
}

COLUMNS = {
  'k': 'The period: the steps between two communications.',
  'γ': 'The learning rate.',
  'N': 'The number of workers.',
  'run': 'The name in the sweep, or the algorithm with the settings in which runs of it differ.',
  'train loss': METRICS['train_loss'],
  'test acc. %': METRICS['test_accuracy'],
  'distance': METRICS['distance_to_optimum'],
  '× S-SGD': 'Final train loss divided by that of S-SGD with the same settings: 1.00 is as good as averaging the '
  'gradients at every step.',
  'comm.': AXES['communications'],
  'sent': f'Bytes that a worker sent. {AXES["bytes_communicated"]}',
  'seconds': AXES['seconds'],
  'status': 'diverged: the loss is no longer finite. unfinished: the run has not ended yet.',
}


def about(key: str) -> str | None:
  """The explanation of a metric or an axis; None if it is user-defined.

  >>> about('communications'), about('my_metric')
  ('How often the workers have averaged.', None)
  """
  return METRICS.get(key) or AXES.get(key)


def terms(metrics: list[str]) -> list[tuple[str, str]]:
  """The display names of the metrics with what they mean, and `× S-SGD`.

  >>> [name for name, _ in terms(['train_loss', 'my_metric'])]
  ['train loss', '× S-SGD']
  """
  known = [(names.quantity(key), METRICS[key]) for key in metrics if key in METRICS]
  return [*known, ('× S-SGD', COLUMNS['× S-SGD'])]
