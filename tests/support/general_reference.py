"""The general rule of communication in plain NumPy and float64, written from DESIGN.md and independent of vrl_jax.

Fragments at different times, transfers that take some steps and rounded numbers, for VRL-SGD, Local SGD, SCAFFOLD and the
outer optimizers. Models are flat vectors [N, d] and every step of the network is that of one worker per row.
"""

from typing import NamedTuple

import ml_dtypes
import numpy as np


class Sending(NamedTuple):
  """How models are sent."""

  fragments: int = 1
  delay: int = 0
  bits: int = 32
  block: int = 256
  error_feedback: bool = True


def rounded(x, bits, block):
  """[..., numbers] after encoding: 16 bits are a bfloat16, of fewer bits `block` numbers share a scale."""
  if bits == 16:
    return x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
  levels = 2 ** (bits - 1) - 1
  out = np.empty_like(x)
  for first in range(0, x.shape[-1], block):
    part = x[..., first : first + block]
    scale = (np.abs(part).max(axis=-1, keepdims=True) / levels).astype(np.float32).astype(np.float64)
    safe = np.where(scale > 0, scale, 1.0)
    out[..., first : first + block] = np.where(scale > 0, np.clip(np.rint(part / safe), -levels, levels) * scale, 0)
  return out


def mean_of(t, sending):
  """What each worker contributes of t [N, n], and the mean."""
  if sending.bits == 32:
    return t, t.mean(axis=0)
  workers, n = t.shape
  shard = -(-n // workers)
  blocks = -(-shard // sending.block)
  block = -(-shard // blocks)
  block += block % 2
  padded = np.zeros((workers, workers * blocks * block))
  padded[:, :n] = t
  q = rounded(padded, sending.bits, block)
  mean = rounded(q.mean(axis=0), sending.bits, block)
  lost = mean - q.mean(axis=0)
  for j in range(workers):  # the owner of a shard answers for what its mean has lost
    own = slice(j * blocks * block, (j + 1) * blocks * block)
    q[j, own] += workers * lost[own]
  return q[:, :n], mean[:n]


def run(problem, rate, lengths, x0, sending, *, kind='vrl_sgd', momentum=0.0, server=None):
  """The models [T, N, d] after every step, and Δ after the last.

  Args:
    problem: with `gradients(x)`.
    rate: γ(t).
    lengths: of the periods.
    x0: [d].
    sending: how models are sent.
    kind: 'vrl_sgd', 'local_sgd', 'scaffold' or 'vrl_adaptive'.
    momentum: β of the inner optimizer.
    server: `(memory, ref, mean, R) -> (x̂, memory)`; memory starts as 0.
  """
  workers, d = len(problem.a), len(x0)
  f_ = [slice(d * f // sending.fragments, d * (f + 1) // sending.fragments) for f in range(sending.fragments)]
  x = np.tile(np.asarray(x0, np.float64), (workers, 1))
  zeros = lambda: np.zeros((workers, d))
  delta, buffer, delta_buffer, moved_by_delta, unsent, gradients = (zeros() for _ in range(6))
  own, common = zeros(), np.zeros(d)
  ref, memory = np.asarray(x0, np.float64).copy(), np.zeros(d)
  response, probe, count = np.zeros(d), 0.0, np.zeros(d)
  under_way = {}

  def start(f):
    s = f_[f]
    under_way[f] = (x[:, s].copy(), response[s].copy(), moved_by_delta[:, s].copy(), gradients[:, s] / count[s])
    response[s], moved_by_delta[:, s], gradients[:, s], count[s] = 0.0, 0.0, 0.0, 0.0

  def finish(f):
    if f not in under_way:
      return
    s = f_[f]
    begun, r, u, gradient = under_way.pop(f)
    t = begun - ref[s] + unsent[:, s]
    q, mean = mean_of(t, sending)
    if sending.bits < 32 and sending.error_feedback:
      unsent[:, s] = t - q
    if kind == 'vrl_sgd':
      delta[:, s] = (mean - q + u) / r
    if kind in ('scaffold', 'vrl_adaptive'):
      target = gradient if kind == 'vrl_adaptive' else (u - (begun - ref[s])) / r
      sent, mean_sent = mean_of(target - own[:, s], sending)
      own[:, s] += sent
      common[s] += mean_sent
      delta[:, s] = own[:, s] - common[s]
    new = ref[s] + mean
    if server:
      new, memory[s] = server(memory[s], ref[s], mean, r)
    x[:, s] = new + (x[:, s] - begun)
    ref[s] = new

  out, step = [], 0
  for length in lengths:
    ends = [int(np.ceil(length * (f + 1) / sending.fragments)) for f in range(sending.fragments)]
    last = sending.fragments - 1
    for place in range(1, length + 1):
      gradient = problem.gradients(x)
      buffer = momentum * buffer + gradient - delta
      delta_buffer = momentum * delta_buffer + delta
      probe = momentum * probe + 1.0
      x = x - rate(step) * buffer
      moved_by_delta += rate(step) * delta_buffer
      response += rate(step) * probe
      gradients += gradient
      count += 1
      step += 1
      if sending.delay and place == min(sending.delay, ends[0]):
        finish(last)
      for f in range(sending.fragments):
        if place == ends[f]:
          start(f)
          if not sending.delay:
            finish(f)
        if sending.delay and f != last and place == min(ends[f] + sending.delay, ends[f + 1]):
          finish(f)
      out.append(x.copy())
  return np.stack(out), delta
