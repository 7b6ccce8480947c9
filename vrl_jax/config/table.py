"""The table of config fields: one row per option of a run.

Defaults, validation, `--help`, the fingerprint of the initial weights, the check on resuming, the agreement of processes and
the grouping of runs in the report are all derived from it. It imports nothing that computes, so that the report can
read it; choices and checks that belong to another room are named as `module:attribute` and looked up when they are used.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vrl_jax.config.checks import OneOf, checked_by, integer, number, one_of, one_of_numbers, step_range
from vrl_jax.config.factories import mapping
from vrl_jax.errors import UserError


class Role(enum.Enum):
  """The role of a field: what depends on its value.

  >>> Role.BOOKKEEPING.value
  'Files, checkpoints and logging'
  """

  PROBLEM = 'Problem and initial weights'
  METHOD = 'Training'
  LOGGING = 'Evaluation'
  EXECUTION = 'Devices and dispatch'
  BOOKKEEPING = 'Files, checkpoints and logging'
  SWEEP = 'Sweeps'


RESULT_ROLES = (Role.PROBLEM, Role.METHOD, Role.LOGGING)
"""Fields that decide what a run computes and logs: they must not change when it is resumed."""


class Field(NamedTuple):
  """One row of the table.

  Attributes:
    name: the field's name in the config, and on the command line behind `--config.`.
    default: its value if the config sets none; None for a field that is chosen or left out.
    kind: the type of its values; `object` if there are several.
    role: see `Role`.
    help: one line for `--help`.
    check: `(name, value) -> None`, raises UserError; not called for None where that is the default.
    ignored_by: the algorithms whose runs do not depend on it.
    of_algorithm: whether it describes the algorithm or its optimizer, so that a run whose algorithm is given as an
      object does not have it.

  >>> Field('workers', 8, int, Role.METHOD, 'N, the number of workers', integer(1, bits=12)).require(0)
  Traceback (most recent call last):
    ...
  vrl_jax.errors.UserError: workers=0, must be an integer of at least 1
  """

  name: str
  default: Any
  kind: type
  role: Role
  help: str
  check: Callable[[str, Any], None] | None = None
  ignored_by: tuple[str, ...] = ()
  of_algorithm: bool = False

  def require(self, value: Any) -> None:
    """Raises UserError unless the field can have this value."""
    if value is None and self.default is None:
      return
    accepted = {float: (float, int), tuple: (tuple, list)}.get(self.kind, self.kind)
    if not isinstance(value, accepted) or (isinstance(value, bool) and self.kind not in (bool, object)):
      raise UserError(f'{self.name}={value!r}, must be {_KINDS[self.kind]}')
    if self.check:
      self.check(self.name, value)

  @property
  def choices(self) -> list[str] | None:
    """The names that a value must be one of, if the field has choices."""
    return self.check.choices if isinstance(self.check, OneOf) else None


_KINDS = {bool: 'True or False', str: 'a string', int: 'an integer', float: 'a number', tuple: 'a tuple'}


def _rows(role, *rows, **columns):
  return tuple(Field(name, default, kind, role, *more, **columns) for name, default, kind, *more in rows)


FIELDS = (
  *_rows(
    Role.PROBLEM,
    ('task', 'quadratic', str, 'the task: a module of vrl_jax.tasks, or my_module:make_task'),
    ('batch_size', 32, int, 'examples in a mini-batch of one worker', integer(1)),
    ('learning_rate', 0.01, float, 'γ, or its peak if it follows a schedule', number(positive=True)),
    ('weight_decay', 0.0, float, 'factor of the parameters that is added to the gradient', number()),
    ('seed', 0, int, 'seed of the initial weights, the partition and the mini-batches', integer(0, bits=32)),
    ('init_epochs', 0.0, float, 'epochs of plain SGD by one worker before the run', number(most=1e6)),
    ('init_loss', None, float, 'stops the initial SGD at this training loss', number(positive=True)),
    ('x64', False, bool, 'compute in float64'),
  ),
  *_rows(
    Role.METHOD,
    (
      'algorithm',
      'vrl_sgd',
      str,
      'the distributed algorithm',
      one_of('vrl_jax.algorithms:ALGORITHMS', dotted='my_module:half_average'),
    ),
    ('workers', 8, int, 'N, the number of workers', integer(1, bits=12)),
    ('epochs', None, float, 'length of the run in epochs; or give steps', number(positive=True, most=1e9)),
    ('steps', None, int, 'length of the run in local steps; or give epochs', integer(1, bits=31)),
  ),
  *_rows(
    Role.METHOD,
    ('period', None, object, 'k, local steps per communication; "auto" follows theory', integer(1, otherwise='auto')),
    ('first_period', None, int, 'length of the first period; 1 makes VRL-SGD into VRL-SGD-W', integer(1)),
    (
      'period_stages',
      (),
      tuple,
      '(step, period) pairs: a new period from a step on',
      checked_by('vrl_jax.engine.periods:check_stages'),
    ),
    ('max_period', None, int, 'maximum of a period that doubles as the loss falls', integer(1)),
    ignored_by=('s_sgd',),
  ),
  *_rows(
    Role.METHOD,
    ('fragments', 1, int, 'number of parts in which the model is sent, spread over the period', integer(1, bits=16)),
    ('delay', 0, int, 'number of local steps that overlap with a transfer', integer(0, bits=16)),
    (
      'bits',
      32,
      int,
      'bits per parameter that is sent: 16 for bfloat16, 8 or 4 for integers; 32 sends the floats themselves',
      one_of_numbers(4, 8, 16, 32),
    ),
    ignored_by=('s_sgd',),
    of_algorithm=True,
  ),
  *_rows(
    Role.METHOD,
    (
      'optimizer',
      'sgd',
      str,
      'the inner optimizer',
      one_of('vrl_jax.config.optimizers:OPTIMIZERS', dotted='optax.lion or my_module:make_optimizer'),
    ),
    ('optimizer_kwargs', None, object, 'keyword arguments of an optimizer with a dotted path, a dict', mapping),
    (
      'schedule',
      'constant',
      str,
      'schedule of the learning rate',
      one_of('vrl_jax.config.optimizers:SCHEDULES', dotted='optax.exponential_decay or my_module:make_schedule'),
    ),
    ('schedule_kwargs', None, object, 'likewise of a schedule; "learning_rate", "steps": those of the run', mapping),
    ('warmup_steps', 0, int, 'steps in which the learning rate rises linearly from 0', integer(0, bits=31)),
    ('momentum', 0.0, float, 'momentum of SGD', number(below=1)),
    ('nesterov', False, bool, "Nesterov's form of momentum"),
    ('clip_norm', None, float, "clips each worker's gradient to this norm", number(positive=True)),
    of_algorithm=True,
  ),
  *_rows(
    Role.METHOD,
    (
      'compute_dtype',
      None,
      str,
      'dtype of the loss and its gradient; parameters, Δ and optimizer state keep theirs',
      one_of(('bfloat16', 'float32')),
    ),
    (
      'matmul_precision',
      None,
      str,
      "precision of matrix products and convolutions, as JAX's default_matmul_precision",
      one_of(('default', 'high', 'highest')),
    ),
    ('batch_stats', None, str, 'batch-norm statistics', one_of('vrl_jax.engine.batch_stats:POLICIES')),
    ('partition', 'by_class', str, 'how the examples are divided', one_of('vrl_jax.data.partition:PARTITIONS')),
    ('dirichlet_alpha', 0.5, float, 'concentration of partition=dirichlet, dirichlet_unequal', number(positive=True)),
    ('similarity_percent', 10.0, float, 'identically distributed share in partition=similarity', number(most=100)),
  ),
  *_rows(
    Role.LOGGING,
    ('eval_every', 1.0, float, 'epochs between log lines', number(positive=True, least=1e-6)),
    ('log_every_step', False, bool, 'measures every local step, which communicates; for small models'),
  ),
  *_rows(
    Role.EXECUTION,
    ('devices', None, int, 'devices to use; default: as many as divide the workers', integer(1)),
    (
      'devices_per_worker',
      None,
      int,
      'devices of a worker, which divide its mini-batch; default: as many as there are, 1 on CPU',
      integer(1, bits=16),
    ),
    (
      'island',
      'replicated',
      str,
      "parameters, Δ and optimizer state on a worker's devices: a copy on each, or sharded (FSDP)",
      one_of('vrl_jax.engine.island:MODES'),
    ),
    ('feed', 'auto', str, 'where the training data live', one_of('vrl_jax.engine.feed:FEEDS')),
    ('conv_form', 'auto', str, 'form of the convolutions', one_of('vrl_jax.cpu.conv_form:FORMS')),
    ('workers_at_once', None, int, 'workers of a CPU device whose gradients are computed together', integer(1)),
    ('tile_bytes', None, int, 'tile of large matrices in a step on CPU; 0: no tiles', integer(0)),
    ('steps_per_dispatch', None, int, 'maximum number of steps per dispatch', integer(1, bits=20)),
  ),
  *_rows(
    Role.BOOKKEEPING,
    ('data_dir', None, str, "directory of the data set; default: TFDS' data directory"),
    ('checkpoint_every', 0, int, 'rounds between checkpoints; 0: by time alone', integer(0, bits=31)),
    ('checkpoint_minutes', 5.0, float, 'minutes between checkpoints; 0: by rounds alone', number()),
    (
      'profile_steps',
      (),
      tuple,
      "(first, last): write a trace of these steps by JAX's profiler to WORKDIR/profile",
      step_range,
    ),
    ('compilation_cache', True, bool, 'keep compiled programs for the next run'),
    ('tensorboard', False, bool, 'write the metrics to WORKDIR/tensorboard too'),
    ('wandb', False, bool, 'send the metrics to Weights & Biases too'),
  ),
  *_rows(
    Role.SWEEP,
    ('seeds', (), tuple, 'seeds; the config is run once with each'),
    ('sweep', (), tuple, 'one run per dict: its name, and the fields in which it differs'),
    ('title', '', str, 'title of the report'),
    ('figure', (), tuple, 'figures of the report; see vrl_jax.report.comparison_figure'),
    ('may_diverge', False, bool, 'do not fail if a run diverges'),
  ),
)

_REMOVED = {'unroll': Role.EXECUTION}  # fields of earlier versions, which stored configs still have
_ROLES = {field.name: field.role for field in FIELDS} | _REMOVED
_DEFAULTS = {field.name: list(field.default) if field.kind is tuple else field.default for field in FIELDS}


def role_of(name: str) -> Role:
  """The role of a field; fields that a task adds belong to the problem.

  >>> role_of('period').name, role_of('dataset').name
  ('METHOD', 'PROBLEM')
  """
  return _ROLES.get(name, Role.PROBLEM)


def stored_value(stored: Mapping[str, Any], name: str) -> Any:
  """The value of a field in a config.json; its default if the field was added to the table later.

  >>> stored_value({'period': 5}, 'period'), stored_value({'period': 5}, 'bits')
  (5, 32)
  """
  return stored.get(name, _DEFAULTS.get(name))


def is_compared(name: str) -> bool:
  """Whether a field distinguishes experiments; fields about logging, execution or files do not.

  >>> is_compared('period'), is_compared('devices')
  (True, False)
  """
  return role_of(name) in (Role.PROBLEM, Role.METHOD)


def ignored_fields(algorithm: str) -> frozenset[str]:
  """The fields that runs of an algorithm do not depend on.

  >>> 'period' in ignored_fields('s_sgd'), 'period' in ignored_fields('vrl_sgd')
  (True, False)
  """
  return frozenset(field.name for field in FIELDS if algorithm in field.ignored_by)


def with_roles(fields: dict[str, Any], *roles: Role) -> dict[str, Any]:
  """The fields that have one of these roles.

  >>> with_roles({'seed': 0, 'period': 5, 'devices': 2}, Role.PROBLEM, Role.METHOD)
  {'seed': 0, 'period': 5}
  """
  return {name: value for name, value in fields.items() if role_of(name) in roles}
