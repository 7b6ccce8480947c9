"""SCAFFOLD: control variates, a global learning rate, and partial participation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from vrl_jax.algorithms.core.algorithm import Algorithm, Params, State
from vrl_jax.algorithms.core.averaging import mean_over_workers
from vrl_jax.algorithms.core.axes import AXIS, AxisName, worker_axes
from vrl_jax.algorithms.core.evaluation import evaluated_mean
from vrl_jax.algorithms.core.exchange import (
  Exchange,
  Server,
  control_variates,
  mean_gradient_by_response,
  with_exchange,
)
from vrl_jax.algorithms.core.linearity import require_linear
from vrl_jax.algorithms.core.precision import copied, subtract_correction, wide_zeros
from vrl_jax.algorithms.core.probe import divide_by_response, probe_leaves, probe_step


class ScaffoldState(NamedTuple):
  """State of :func:`scaffold`.

  Attributes:
    inner: the inner optimizer's state, per worker.
    own: the control variate c_i, per worker; at least float32.
    mean: the control variate c, the same on every worker; at least float32.
    start: the model x at the start of the round, the same on every worker.
    probe: the state of the inner optimizer that gets the constant gradient 1; the same on every worker.
    response: how far the probe has moved in this round; the same on every worker.
    round: int32 scalar, the number of rounds so far; the same on every worker.

  >>> state = scaffold(optax.sgd(0.1)).transform.init(jnp.ones(2))
  >>> state.own.tolist(), state.mean.tolist()
  ([0.0, 0.0], [0.0, 0.0])
  """

  inner: State
  own: Params
  mean: Params
  start: Params
  probe: State
  response: Params
  round: jax.Array


def scaffold(
  inner: optax.GradientTransformation,
  *,
  global_learning_rate: float = 1.0,
  participation: float = 1.0,
  seed: int = 0,
  assume_linear: bool = False,
  axis_name: AxisName = AXIS,
) -> Algorithm:
  r"""SCAFFOLD (option II): local steps corrected by control variates, with a random subset of workers in each round.

  With :math:`c_i` the control variate of worker i (`state.own`), :math:`c` the common one (`state.mean`), :math:`x` the
  model at the start of the round (`state.start`), :math:`y_i` the worker's model (`params`) and S the round's subset,

  .. math::

    y_i &\leftarrow y_i - \eta (g_i(y_i) - c_i + c) && \quad \text{at every local step} \\
    c_i^+ &= c_i - c + \frac{x - y_i}{K \eta}, \quad
    x \leftarrow x + \eta_g \frac{1}{|S|} \sum_{i \in S} (y_i - x), \quad
    c \leftarrow c + \frac{1}{N} \sum_{i \in S} (c_i^+ - c_i), \quad
    c_i \leftarrow c_i^+ \text{ for } i \in S && \quad \text{after } K \text{ steps.}

  The divisor :math:`K\eta` is measured (`vrl_jax.algorithms.core.probe`). With all workers and :math:`\eta_g = 1` the
  trajectory is that of VRL-SGD with :math:`\Delta_i = c_i - c`, at twice the communication cost. Workers outside S run
  the same program; their results are masked out, but their momentum, if any, is kept.

  Args:
    inner: an optax optimizer that is linear in the gradient, as for :func:`vrl_jax.vrl_sgd`.
    global_learning_rate: the server's learning rate :math:`\eta_g`.
    participation: the fraction of the workers in each round; :math:`|S|` is rounded to the nearest integer, at least 1.
    seed: the seed of the random subsets, which are the same on all workers.
    assume_linear: skips the linearity check.
    axis_name: the mapped axis (or axes) of the workers.

  Returns:
    The Algorithm. Each worker of the subset sends two vectors per round: the model and the control variate.

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.scaffold(optax.sgd(0.5), axis_name='w')
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> for _ in range(2):  # a round of two steps with the constant gradients 1 and 3
  ...   updates, state = jax.vmap(algorithm.transform.update)(jnp.array([1.0, 3.0]), state, params)
  ...   params = params + updates
  >>> params, state = jax.vmap(algorithm.communicate, axis_name='w')(params, state)
  >>> params.tolist(), state.own.tolist(), state.mean.tolist()
  ([-2.0, -2.0], [1.0, 3.0], [2.0, 2.0])

  References:
    Karimireddy et al, `SCAFFOLD: Stochastic Controlled Averaging for Federated Learning
    <https://arxiv.org/abs/1910.06378>`_, 2019
  """
  if not global_learning_rate > 0:
    raise ValueError(f'global_learning_rate={global_learning_rate}, must be positive')
  if not 0 < participation <= 1:
    raise ValueError(f'participation={participation}, must be in (0, 1]: the fraction of the workers in each round')
  inner = optax.with_extra_args_support(inner)

  def init(params):
    unit = probe_leaves(params, 0)
    probe = inner.init(unit)
    if not assume_linear:
      require_linear(inner, unit, probe)
    start, c_i, c = copied(params), wide_zeros(params), wide_zeros(params)
    return ScaffoldState(inner.init(params), c_i, c, start, probe, unit, jnp.zeros([], jnp.int32))

  def update(grads, state, params=None, **extra_args):
    v = subtract_correction(grads, correction(state))
    updates, inner_state = inner.update(v, state.inner, params, **extra_args)
    step, probe = probe_step(inner, state.inner, state.probe, grads, extra_args)
    response = jax.tree.map(jnp.add, state.response, step)
    return updates, state._replace(inner=inner_state, probe=probe, response=response)

  def communicate(params, state):
    selected, fraction = _draw_subset(participation, seed, state.round, axis_name)
    zero_outside = lambda x: jnp.where(selected, x, jnp.zeros_like(x))

    def gain(c, x, y, response):
      # A period with a learning rate of 0 says nothing about the gradient.
      return jnp.where(response != 0, divide_by_response(x.astype(c.dtype) - y.astype(c.dtype), response) - c, 0)

    moved = jax.tree.map(lambda y, x, c: y.astype(c.dtype) - x.astype(c.dtype), params, state.start, state.mean)
    gained = jax.tree.map(gain, state.mean, state.start, params, state.response)
    moved, gained = jax.tree.map(zero_outside, (moved, gained))
    mean_moved, mean_gained = mean_over_workers((moved, gained), axis_name)

    rate = global_learning_rate / fraction
    server = jax.tree.map(lambda x, m: (x.astype(m.dtype) + rate * m).astype(x.dtype), state.start, mean_moved)
    return server, ScaffoldState(
      inner=state.inner,
      own=jax.tree.map(jnp.add, state.own, gained),
      mean=jax.tree.map(jnp.add, state.mean, mean_gained),
      start=server,
      probe=state.probe,
      response=probe_leaves(params, 0),
      round=state.round + 1,
    )

  def correction(state):
    return jax.tree.map(jnp.subtract, state.own, state.mean)

  def server_step(state, agreed, mean, response):
    return jax.tree.map(lambda x, m: x + global_learning_rate * m, agreed, mean), state

  algorithm = Algorithm(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=communicate,
    consensus=lambda params, state: evaluated_mean(params, state.inner, axis_name),
    correction=correction,
    participation=participation,
  )
  parts = Exchange(
    inner,
    axis_name,
    correction=control_variates(mean_gradient_by_response, uses_response=True),
    server=Server(lambda agreed: (), server_step),
  )
  return with_exchange(algorithm, parts) if participation == 1 else algorithm


def _draw_subset(participation, seed, number, axis_name):
  """Whether this worker is in the subset of round `number`, and the fraction of the workers in it."""
  axes = worker_axes(axis_name)
  workers = lax.psum(1, axes)
  chosen = max(1, round(participation * workers))
  if chosen == workers:
    return True, 1.0
  order = jax.random.permutation(jax.random.fold_in(jax.random.key(seed), number), workers)
  return order[lax.axis_index(axes)] < chosen, chosen / workers
