"""An optimizer and a schedule."""

import optax


def scaled_sgd(learning_rate, *, scale=1.0):
  return optax.chain(optax.scale(scale), optax.sgd(learning_rate, momentum=0.5))


def inverse_root(*, start, warmup=10):
  return lambda step: start / (1 + step / warmup) ** 0.5
