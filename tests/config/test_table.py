"""Everything that depends on config fields is derived from the one table."""

import ml_collections
import pytest

from vrl_jax.config import fields
from vrl_jax.config.checks import integer, number, one_of
from vrl_jax.config.fields import default_config, initial_weights_fields, option_fields, validate
from vrl_jax.config.table import FIELDS, RESULT_ROLES, Field, Role, role_of
from vrl_jax.errors import UserError
from vrl_jax.report import series
from vrl_jax.report.records import Run
from vrl_jax.tasks.task import make_task, task_config
from vrl_jax.training import fingerprint
from vrl_jax.training.experiment import make_experiment
from vrl_jax.training.initial_weights import initial_model
from vrl_jax.training.run_directory import differences

ROWS = (*FIELDS, *option_fields())


def test_every_field_has_one_row():
  assert len({field.name for field in ROWS}) == len(ROWS)
  assert set(default_config()) == {field.name for field in ROWS}


@pytest.mark.parametrize('field', ROWS, ids=lambda field: field.name)
def test_a_row_is_complete(field):
  field.require(field.default) if field.name != 'period' else None
  assert field.help and '\n' not in field.help and not field.help.endswith('.')
  assert default_config().get_type(field.name) is field.kind


def _config(**changes):
  config = default_config()
  config.update(period=5, steps=20, **changes)
  return config


@pytest.mark.parametrize('field', ROWS, ids=lambda field: field.name)
def test_a_wrong_type_is_refused_by_name(field):
  config = _config()
  with config.ignore_type():
    config[field.name] = object() if field.kind is not object else 'often'
  with pytest.raises(UserError, match=f'^{field.name}='):
    validate(config)


def test_defaults_are_valid():
  validate(_config())


@pytest.mark.parametrize('epochs', [1e300, 1e9 + 1])
def test_epochs_have_a_limit(epochs):
  config = _config(epochs=epochs)
  config.steps = None
  with pytest.raises(UserError, match='epochs=.*, must be at most 1e'):
    validate(config)


def test_a_run_has_fewer_than_2_to_the_31_steps(tmp_path):
  config = task_config('lenet_mnist')
  config.update(dataset='mnist_5k', period=20, epochs=1e9)
  with pytest.raises(UserError, match=r'epochs=1e\+09 is \d+ steps, must be less than 2\^31'):
    make_experiment(config, tmp_path)


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
@pytest.mark.parametrize('name', ['b', 'x0', 'noise', 'a', 'c', 'outer_momentum'])
def test_a_field_that_is_not_finite_is_refused(name, value):
  """NaN differs from itself: such a run could never be resumed."""
  config = task_config('quadratic')
  config.update(workers=1, batch_size=1, period=5, steps=20, **{name: (value,) if name in 'ac' else value})
  with pytest.raises(UserError, match=f'^{name}='):
    validate(config)
    make_task(config)


# One value that differs from the default, by the role that decides who must notice.

OTHER = {bool: lambda x: not x, int: lambda x: (x or 1) + 1, float: lambda x: (x or 0.1) * 2, str: lambda x: f'{x}_'}
CHANGES = [
  (field.name, OTHER[field.kind](field.default), role_of(field.name))
  for field in FIELDS
  if field.kind in OTHER and field.role is not Role.SWEEP
]


@pytest.mark.parametrize(('name', 'value', 'role'), CHANGES, ids=[name for name, *_ in CHANGES])
def test_the_role_decides_which_checks_notice_a_change(name, value, role):
  before, after = _config().to_dict(), _config().to_dict() | {name: value}
  assert bool(differences(before, after)) == (role in RESULT_ROLES)
  assert (initial_weights_fields(before) != initial_weights_fields(after)) == (role is Role.PROBLEM)
  processes = [fingerprint.run_fields(ml_collections.ConfigDict(each)) for each in (before, after)]
  assert (processes[0] != processes[1]) == (role is not Role.BOOKKEEPING)
  runs = [Run(f'run {i}', each, ()) for i, each in enumerate((before, after))]
  compared = role in (Role.PROBLEM, Role.METHOD)
  assert series.differing_fields(runs) == ([name] if compared else [])


def test_seeds_that_differ_in_how_they_ran_are_one_curve():
  """`tile_bytes` was missing from the report's own list."""
  runs = [Run(f'seed={seed}', {'seed': seed, 'tile_bytes': size}, ()) for seed, size in ((0, None), (1, 0))]
  assert [len(group) for group in series.group_seeds(runs)] == [2]


@pytest.mark.parametrize(
  'name', ['period', 'first_period', 'period_stages', 'max_period', 'fragments', 'delay', 'bits']
)
def test_one_s_sgd_run_is_the_baseline_of_all_periods_and_ways_to_send(name):
  """`period_stages` and `max_period` were missing from the report's own list, and later `bits` and its like here."""
  baseline = Run('S-SGD', {'algorithm': 's_sgd', name: 1}, ())
  other = Run('VRL-SGD', {'algorithm': 'vrl_sgd', name: 2}, ())
  assert series.ignores(baseline, name) and not series.ignores(other, name)
  assert series.differ_only_in_algorithm(other, baseline)


@pytest.mark.parametrize('name', ['tensorboard', 'wandb'])
def test_a_writer_does_not_change_the_initial_weights(name, tmp_path):
  """Both were missing from the initial weights' own list, and they were computed again."""
  config = fields.default_config()
  config.update(workers=2, batch_size=1, period=5, steps=10, init_epochs=2.0)
  config.update({'a': (1.0, 2.0), 'c': (-2.0, 1.0), 'b': 1.0, 'dimension': 1, 'x0': 1.0, 'noise': 0.0})
  for config[name] in (False, True):
    initial_model(config, task := make_task(config), tmp_path, fingerprint.data_fields(task))
  assert len(list(tmp_path.glob('initial_*'))) == 1


def test_a_removed_field_is_not_a_difference():
  now = _config().to_dict()
  assert differences(now | {'unroll': None}, now) == differences(now | {'unroll': 4}, now) == ''
  assert role_of('unroll') is Role.EXECUTION


def test_a_field_that_was_added_later_had_its_default():
  """With `bits`, `delay` and `fragments`, no run of an earlier version could be resumed."""
  now = default_config().to_dict()
  before = {name: value for name, value in now.items() if name not in ('bits', 'delay', 'fragments')}
  assert differences(before, now) == ''
  assert differences(before, now | {'bits': 4}) == 'bits=32 there and 4 now'
  seeds = [Run('seed=0', {'seed': 0}, ()), Run('seed=1', {'seed': 1, 'bits': 32}, ())]
  assert [len(group) for group in series.group_seeds(seeds)] == [2]
  assert series.differing_fields(seeds) == ['seed']
  assert series.differing_fields([*seeds, Run('four', {'seed': 0, 'bits': 4}, ())]) == ['seed', 'bits']


# The checks.


@pytest.mark.parametrize('value', [0, -1, 2.0, True, None, '5'])
def test_integer(value):
  with pytest.raises(UserError, match=r'must be an integer of at least 1 or "auto"'):
    integer(1, otherwise='auto')('period', value)
  integer(1, otherwise='auto')('period', 'auto')


def test_integer_with_a_limit():
  integer(0, bits=31)('steps', 2**31 - 1)
  with pytest.raises(UserError, match=r'steps=2147483648, must be less than 2\^31'):
    integer(0, bits=31)('steps', 2**31)


@pytest.mark.parametrize(
  ('check', 'good', 'bad', 'allowed'),
  [
    (number(), (0, 0.0, 3), (-1, float('nan'), float('inf')), 'a number of at least 0'),
    (number(positive=True), (1e-9,), (0, 0.0, -1.0), 'a number greater than 0'),
    (number(below=1), (0.0, 0.99), (1, 1.5), 'less than 1'),
    (number(most=100), (0.0, 100), (100.1,), 'at most 100'),
    (one_of(('a', 'b')), ('a', 'b'), ('c', ''), 'one of a, b'),
  ],
)
def test_checks(check, good, bad, allowed):
  for value in good:
    check('x', value)
  for value in bad:
    with pytest.raises(UserError, match=f'x={value!r}, must be {allowed}'):
      check('x', value)


def test_a_boolean_is_not_a_number():
  with pytest.raises(UserError, match='rate=True, must be a number'):
    Field('rate', 0.1, float, Role.METHOD, '', number()).require(True)
