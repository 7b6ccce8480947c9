"""The benchmarks: their command, timing, tables, and the bare gradient."""

import importlib
import subprocess
import sys

import jax
import numpy as np

from benchmarks import __main__, measure
from benchmarks.setups import BareGradient, Bench


def test_candidates_are_interleaved_and_warmed_up():
  calls = []
  candidates = {name: lambda count, name=name: calls.append((name, count)) for name in 'ab'}
  seconds = measure.interleaved(candidates, count=3, repeats=2)
  assert calls == [('a', 3), ('b', 3), ('a', 3), ('b', 3), ('b', 3), ('a', 3)]
  assert {name: len(values) for name, values in seconds.items()} == {'a': 2, 'b': 2}


def test_ratio_is_the_median_of_the_ratios():
  seconds = {'a': [1.0, 2.0, 30.0], 'b': [2.0, 2.0, 10.0]}
  assert measure.ratio(seconds, 'a', 'b') == 1.0


def test_every_name_is_a_benchmark():
  for name, module in __main__.MODULES.items():
    assert callable(importlib.import_module(module).run), name


def test_an_unknown_name_is_refused():
  command = [sys.executable, '-m', 'benchmarks', 'speed']
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 2
  assert "no benchmark 'speed', must be one of round_time" in done.stderr


def test_tables_are_markdown():
  assert measure.table([['task', 'ms'], ['mlp', '1.5']]) == '| task | ms  |\n|------|-----|\n| mlp  | 1.5 |'


def test_bare_gradient_is_the_gradient_of_the_engine():
  bench = Bench('mlp', 'local_sgd', workers=4, devices=2, period=1, shard=32, hidden=(8,))
  before = bench.params
  gradient = BareGradient(bench).gradients(1)
  bench(1)
  mean = jax.tree.map(lambda g: np.asarray(g).mean((0, 1)), gradient)
  decayed = jax.tree.map(lambda x, g: x - 0.025 * (g + 1e-4 * x), before, mean)
  after = jax.tree.map(lambda x: np.asarray(x)[0, 0], bench.state.params)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), after, decayed)
