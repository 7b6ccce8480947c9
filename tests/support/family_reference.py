"""VRL-SGD's relatives in plain NumPy and float64, written from their papers and independent of vrl_jax.

Every function takes a problem with `gradients(x)`, the learning rate γ(t), the lengths of the rounds (or the number of
steps) and the initial model [d], and returns the models [T, N, d] after every step and its communication, if any.
"""

import numpy as np


def _start(problem, x0):
  return np.tile(np.asarray(x0, np.float64), (len(problem.a), 1))


def cocod_sgd(problem, rate, lengths, x0):
  """Shen et al, Algorithm 1: x̂_s is the mean of the models at the start of the period, then Δ_i is added to it."""
  x = _start(problem, x0)
  out, t = [], 0
  for length in lengths:
    mean_at_start, start = x.mean(axis=0), x
    for _ in range(length):
      x = x - rate(t) * problem.gradients(x)
      t += 1
      out.append(x)
    x = out[-1] = mean_at_start + (x - start)
  return np.stack(out)


def scaffold(problem, rate, lengths, x0, *, global_rate=1.0, subsets=None):
  """Karimireddy et al, Algorithm 1 with option II; `subsets` are the workers of each round, or None for all workers.

  Also returns c_i and c after the last round.
  """
  workers = len(problem.a)
  server = np.asarray(x0, np.float64)
  own, common = np.zeros((workers, len(server))), np.zeros(len(server))
  out, t = [], 0
  for number, length in enumerate(lengths):
    subset = list(range(workers)) if subsets is None else subsets[number]
    y, moved = np.tile(server, (workers, 1)), 0.0
    for _ in range(length):
      y = y - rate(t) * (problem.gradients(y) - own + common)
      moved += rate(t)
      t += 1
      out.append(y)
    new = own - common + (server - y) / moved
    server = server + global_rate * (y[subset] - server).mean(axis=0)
    common = common + len(subset) / workers * (new[subset] - own[subset]).mean(axis=0)
    own = own.copy()
    own[subset] = new[subset]
    out[-1] = np.tile(server, (workers, 1))
  return np.stack(out), own, common


def slowmo(problem, rate, lengths, x0, *, alpha, beta):
  """Wang et al, Algorithm 1: u ← βu + (x_0 − x̂)/γ, x ← x_0 − αγu, with γ the sum of the period's rates."""
  x, u = _start(problem, x0), 0.0
  out, t = [], 0
  for length in lengths:
    start, moved = x[0], 0.0
    for _ in range(length):
      x = x - rate(t) * problem.gradients(x)
      moved += rate(t)
      t += 1
      out.append(x)
    u = beta * u + (start - x.mean(axis=0)) / moved
    x = out[-1] = np.tile(start - alpha * moved * u, (len(x), 1))
  return np.stack(out)


def diloco(problem, rate, lengths, x0, *, alpha, beta):
  """Douillard et al, Algorithm 1, with SGD inside and Nesterov's momentum outside."""
  x, m = _start(problem, x0), 0.0
  out, t = [], 0
  for length in lengths:
    start = x[0]
    for _ in range(length):
      x = x - rate(t) * problem.gradients(x)
      t += 1
      out.append(x)
    outer = start - x.mean(axis=0)
    m = beta * m + outer
    x = out[-1] = np.tile(start - alpha * (outer + beta * m), (len(x), 1))
  return np.stack(out)


def ring(workers):
  """W of a ring: 1/2 for the worker itself and 1/4 for each neighbour."""
  eye = np.eye(workers)
  return eye / 2 + np.roll(eye, 1, axis=0) / 4 + np.roll(eye, -1, axis=0) / 4


def d2(problem, rate, steps, x0, w):
  """Tang et al, Algorithm 1: the first step is plain SGD, the others use the previous model and gradient."""
  x = _start(problem, x0)
  gradient = problem.gradients(x)
  before, x = (x, gradient), w @ (x - rate(0) * gradient)
  out = [x]
  for t in range(1, steps):
    gradient = problem.gradients(x)
    half = 2 * x - before[0] - rate(t) * gradient + rate(t - 1) * before[1]
    before, x = (x, gradient), w @ half
    out.append(x)
  return np.stack(out)


def extra(problem, rate, steps, x0, w):
  """Shi et al, Algorithm 1 with W̃ = (I + W)/2."""
  x, eye = _start(problem, x0), np.eye(len(w))
  gradient = problem.gradients(x)
  before, x = (x, gradient), w @ x - rate(0) * gradient
  out = [x]
  for t in range(1, steps):
    gradient = problem.gradients(x)
    new = (eye + w) @ x - (eye + w) / 2 @ before[0] - rate(t) * gradient + rate(t - 1) * before[1]
    before, x = (x, gradient), new
    out.append(x)
  return np.stack(out)
