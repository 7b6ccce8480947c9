"""What the figures of the paper's three tasks have in common: every algorithm from the same start."""

ALGORITHMS = (
  ('S-SGD', {'algorithm': 's_sgd'}),
  ('Local SGD', {'algorithm': 'local_sgd'}),
  ('EASGD', {'algorithm': 'easgd'}),
  ('VRL-SGD', {'algorithm': 'vrl_sgd'}),
  ('VRL-SGD-W', {'algorithm': 'vrl_sgd', 'first_period': 1}),
)

VARIANTS = {
  'non_identical': lambda config: config,
  'identical': lambda config: config.update(partition='identical'),
  'half': lambda config: config.update(period=config.period // 2),
  'double': lambda config: config.update(period=config.period * 2),
}


def compare(config, variant='', only=None, also=()):
  """Turns a task's config into the sweep of one figure.

  Args:
    config: the task's config.
    variant: one of VARIANTS: classes divided among the workers (the default), all data for every worker, or divided
      classes with half or double the period.
    only: the names of the algorithms; None for all.
    also: other variants of the config, which a mistaken name is told of.
  """
  variant = variant or 'non_identical'
  if variant not in VARIANTS:
    raise ValueError(f'unknown variant {variant!r}: there are {", ".join([*VARIANTS, *also])}')
  VARIANTS[variant](config)
  config.title = f'{config.task}, {variant.replace("_", "-")}, k = {config.period}'
  config.sweep = tuple({'name': name, **fields} for name, fields in ALGORITHMS if only is None or name in only)
  figures = (('loss', 'train_loss', True), ('accuracy', 'test_accuracy', False))
  config.figure = tuple(
    {'name': name, 'y': y, 'x': ('epoch', 'communications'), 'log_y': log} for name, y, log in figures
  )
  return config
