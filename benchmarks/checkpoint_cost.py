"""The cost of checkpoints: LeNet's rounds with and without a checkpoint written in the background."""

import pathlib
import statistics
import tempfile

import jax
import numpy as np

from benchmarks.measure import interleaved
from benchmarks.setups import Bench
from vrl_jax.config.fields import default_config
from vrl_jax.training.checkpoint import CheckpointWriter, to_host


def run(quick: bool) -> str:
  bench, config = Bench('lenet', 'vrl_sgd'), default_config()
  step = 0
  with tempfile.TemporaryDirectory() as folder, CheckpointWriter.open(pathlib.Path(folder)) as writer:

    def with_checkpoint(count):
      nonlocal step
      step += 1
      state = to_host(bench.state)  # what `vrl_jax.training.loop` does
      assert all(np.isfinite(x).all() for x in jax.tree.leaves(state))
      writer.save(step, state, {'seconds': 0.0, 'train_loss': 1.0, 'config': config.to_dict()})
      bench(count)

    seconds = interleaved({'without': bench, 'with': with_checkpoint}, count=2, repeats=3 if quick else 11)
    size = sum(x.nbytes for x in jax.tree.leaves(to_host(bench.state)))
  cost = statistics.median(w - o for w, o in zip(seconds['with'], seconds['without']))
  interval = 60 * config.checkpoint_minutes
  return (
    f'LeNet, 8 workers, {size / 1e6:.1f} MB: a checkpoint costs {1e3 * cost:.0f} ms '
    f'({1e3 * statistics.median(seconds["with"]):.0f} ms of training with it, '
    f'{1e3 * statistics.median(seconds["without"]):.0f} ms without), '
    f'{cost / interval:.3%} of the run time at the default interval of {config.checkpoint_minutes:g} minutes'
  )
