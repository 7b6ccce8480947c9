"""The partitions: shards are equal and disjoint, dropped examples are counted, and each partition is what it claims."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrl_jax.data.class_table import class_table, format_class_table
from vrl_jax.data.partition import PARTITIONS, Partition
from vrl_jax.errors import UserError

seeds = st.integers(0, 2**40)
CASES = [
  ('identical', {}),
  ('by_class', {}),
  *[('dirichlet', {'alpha': alpha}) for alpha in (1e-300, 1e-3, 0.1, 1.0, 1e3, 1e308)],
  *[('similarity', {'percent': percent}) for percent in (0, 3.7, 10, 50, 100)],
]


@st.composite
def labelled_workers(draw):
  """Labels with classes of any size, also empty ones, and a number of workers that is not too large."""
  labels = draw(st.lists(st.integers(0, draw(st.integers(0, 12))), min_size=1, max_size=150))
  return np.array(labels, draw(st.sampled_from([np.uint8, np.int32, np.int64]))), draw(st.integers(1, len(labels)))


@pytest.mark.parametrize(('name', 'options'), CASES)
@settings(max_examples=40, deadline=None)
@given(data=labelled_workers(), seed=seeds)
def test_shards_are_equal_and_disjoint_and_dropped_examples_are_counted(name, options, data, seed):
  labels, workers = data
  partition = PARTITIONS[name](labels, workers, seed=seed, **options)
  assert isinstance(partition, Partition)
  assert partition.workers == workers
  assert partition.num_examples == len(labels)
  assert partition.dropped == len(labels) % workers
  assert partition.workers * partition.shard_size + partition.dropped == len(labels)
  if name == 'identical':
    assert partition.shards is None
    return
  assert partition.shards.shape == (workers, partition.shard_size)
  assert partition.shards.dtype == np.int64
  assert len(np.unique(partition.shards)) == partition.shards.size
  assert partition.shards.min() >= 0 and partition.shards.max() < len(labels)


@pytest.mark.parametrize(('name', 'options'), CASES)
def test_the_result_is_a_function_of_the_seed(name, options):
  labels = np.arange(1003) % 10
  make = lambda seed: PARTITIONS[name](labels, 8, seed=seed, **options).shards
  np.testing.assert_array_equal(make(1), make(1))
  if name == 'dirichlet' or options.get('percent'):
    assert not np.array_equal(make(1), make(2))


@settings(deadline=None)
@given(labelled_workers())
def test_by_class_cuts_the_stable_sort_into_blocks(data):
  labels, workers = data
  partition = PARTITIONS['by_class'](labels, workers)
  order = sorted(range(len(labels)), key=lambda i: (labels[i], i))
  assert partition.shards.reshape(-1).tolist() == order[: partition.shards.size]


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(1, 20), seeds)
def test_dirichlet_with_small_alpha_gives_each_worker_one_class(classes, per_class, seed):
  labels = np.tile(np.arange(classes), per_class)
  table = class_table(PARTITIONS['dirichlet'](labels, classes, alpha=1e-9, seed=seed), labels, classes)
  assert (table.max(axis=1) == per_class).all()


@settings(deadline=None)
@given(labelled_workers(), seeds)
def test_dirichlet_with_large_alpha_gives_each_worker_the_proportions_of_the_data(data, seed):
  labels, workers = data
  table = class_table(PARTITIONS['dirichlet'](labels, workers, alpha=1e12, seed=seed), labels, 13)
  share = np.bincount(labels, minlength=13) / workers
  # Each worker rounds by less than one example per class; the last ones get the sum of the rounding errors.
  assert (abs(table[0] - share) <= 2).all()
  assert (abs(table - share) <= workers + 1).all()


def test_the_spread_of_dirichlet_decreases_with_alpha():
  labels = np.arange(60_000) % 10
  spread = [
    class_table(PARTITIONS['dirichlet'](labels, 8, alpha=alpha), labels, 10).std() for alpha in (0.01, 0.1, 1, 10, 1e3)
  ]
  assert spread == sorted(spread, reverse=True)


@settings(deadline=None)
@given(labelled_workers(), seeds)
def test_similarity_0_is_by_class(data, seed):
  labels, workers = data
  found = PARTITIONS['similarity'](labels, workers, percent=0, seed=seed)
  np.testing.assert_array_equal(found.shards, PARTITIONS['by_class'](labels, workers).shards)


def test_similarity_100_is_a_uniform_shuffle():
  labels = np.sort(np.arange(60_000) % 10)
  partition = PARTITIONS['similarity'](labels, 8, percent=100, seed=5)
  table = class_table(partition, labels, 10)
  deviation = np.sqrt(7500 * 0.1 * 0.9)
  assert (abs(table - 750) < 5 * deviation).all()
  assert table.std() > deviation / 2  # random, not balanced
  other = PARTITIONS['similarity'](1 + labels[::-1], 8, percent=100, seed=5)
  np.testing.assert_array_equal(partition.shards, other.shards)  # does not depend on the labels


def test_similarity_10_is_uniform_in_a_tenth_and_sorted_in_the_rest():
  labels = np.random.default_rng(1).integers(0, 10, 8000)
  partition = PARTITIONS['similarity'](labels, 8, percent=10, seed=0)
  assert (np.bincount(labels[partition.shards[:, :100]].reshape(-1)) > 40).all()
  rest = labels[partition.shards[:, 100:]].reshape(-1)
  assert (np.diff(rest) >= 0).all()


@pytest.mark.parametrize(
  ('name', 'arguments', 'message'),
  [
    ('by_class', {'workers': 0}, 'workers=0, must be from 1 to the number of examples, 20'),
    ('identical', {'workers': 21}, 'workers=21, must be from 1 to the number of examples, 20'),
    ('dirichlet', {'alpha': 0.0}, 'alpha=0.0, must be a finite number > 0'),
    ('dirichlet', {'alpha': float('nan')}, 'alpha=nan, must be'),
    ('dirichlet', {'alpha': float('inf')}, 'alpha=inf, must be'),
    ('similarity', {'percent': -1}, 'percent=-1, must be from 0 to 100'),
    ('similarity', {'percent': 100.5}, 'percent=100.5, must be from 0 to 100'),
    ('dirichlet', {'seed': -1}, 'seed=-1, must be >= 0'),
    ('by_class', {'labels': np.zeros((4, 2))}, r'labels are float64 \[4, 2\], must be integers'),
  ],
)
def test_errors_name_the_value_and_the_range(name, arguments, message):
  with pytest.raises(UserError, match=message):
    PARTITIONS[name](**({'labels': np.arange(20), 'workers': 4} | arguments))


def test_class_table_counts_the_examples_of_each_worker():
  labels = np.array([2, 0, 2, 0, 0, 2])
  assert class_table(PARTITIONS['by_class'](labels, 2), labels, 4).tolist() == [[3, 0, 0, 0], [0, 0, 3, 0]]
  assert class_table(PARTITIONS['identical'](labels, 2), labels, 4).tolist() == [[3, 0, 3, 0]] * 2


def test_format_with_few_classes():
  labels = np.arange(100) % 10
  text = format_class_table(class_table(PARTITIONS['by_class'](labels, 5), labels, 10))
  assert text.splitlines()[:2] == [
    'worker  all   0   1   2   3   4   5   6   7   8   9',
    '0        20  10  10   .   .   .   .   .   .   .   .',
  ]
  identical = format_class_table(class_table(PARTITIONS['identical'](labels, 5), labels, 10))
  assert [line.split()[0] for line in identical.splitlines()] == ['worker', '0-4']


def test_format_with_long_names_is_narrow():
  names = ['EducationalInstitution'] * 14
  labels = np.arange(77_854) % 14
  text = format_class_table(class_table(PARTITIONS['dirichlet'](labels, 8), labels, 14), names)
  assert max(map(len, text.splitlines())) <= 180
  assert 'Education' in text


def test_format_with_many_classes_is_a_summary():
  labels = np.arange(10_000) % 200
  names = [f'n{i:08}' for i in range(200)]
  lines = format_class_table(class_table(PARTITIONS['by_class'](labels, 8), labels, 200), names).splitlines()
  assert len(lines) == 9
  assert lines[1].split() == ['0', '1250', '25', 'n00000000', '4', '%', '0-24']
  spread = format_class_table(class_table(PARTITIONS['dirichlet'](labels, 8), labels, 200), names)
  assert 'more)' in spread
  assert max(map(len, spread.splitlines())) <= 120
