"""The benchmarks' own parts: fair timing, tables, and that the bare gradient computes what a round's first step does."""

import jax
import numpy as np

from benchmarks import measure
from benchmarks.setups import BareGradient, Bench


def test_candidates_run_in_turn_and_the_first_time_does_not_count():
  calls = []
  candidates = {name: lambda count, name=name: calls.append((name, count)) for name in 'ab'}
  seconds = measure.interleaved(candidates, count=3, repeats=2)
  assert calls == [('a', 3), ('b', 3), ('a', 3), ('b', 3), ('b', 3), ('a', 3)]
  assert {name: len(values) for name, values in seconds.items()} == {'a': 2, 'b': 2}


def test_the_ratio_is_the_median_of_ratios():
  seconds = {'a': [1.0, 2.0, 30.0], 'b': [2.0, 2.0, 10.0]}
  assert measure.ratio(seconds, 'a', 'b') == 1.0


def test_tables_are_markdown():
  assert measure.table([['task', 'ms'], ['mlp', '1.5']]) == '| task | ms  |\n|------|-----|\n| mlp  | 1.5 |'


def test_the_bare_gradient_is_the_gradient_of_the_engines_step():
  bench = Bench('mlp', 'local_sgd', workers=4, devices=2, period=1, shard=32, hidden=(8,))
  before = bench.params
  gradient = BareGradient(bench).gradients(1)
  bench(1)
  mean = jax.tree.map(lambda g: np.asarray(g).mean((0, 1)), gradient)
  decayed = jax.tree.map(lambda x, g: x - 0.025 * (g + 1e-4 * x), before, mean)
  after = jax.tree.map(lambda x: np.asarray(x)[0, 0], bench.state.params)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), after, decayed)
