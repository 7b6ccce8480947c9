"""SlowMo: momentum over the periods of Local SGD."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from vrl_jax.algorithms.core.algorithm import Algorithm, Params, State, no_correction
from vrl_jax.algorithms.core.axes import AXIS, AxisName
from vrl_jax.algorithms.core.exchange import Exchange, Server, with_exchange
from vrl_jax.algorithms.core.precision import cast_like, copied, wide_zeros
from vrl_jax.algorithms.core.probe import divide_by_response, probe_leaves, probe_step, reset_probe
from vrl_jax.algorithms.local_sgd import local_sgd


class SlowMoState(NamedTuple):
  """State of :func:`slowmo`.

  Attributes:
    inner: the inner optimizer's state, per worker.
    slow: the slow momentum u, the same on every worker; at least float32.
    start: the model at the start of the period, the same on every worker.
    probe: the state of the inner optimizer that gets the constant gradient 1; the same on every worker.
    response: how far the probe has moved in this period; the same on every worker.

  >>> state = slowmo(optax.sgd(0.1)).transform.init(jnp.ones(2))
  >>> state.slow.tolist(), state.start.tolist()
  ([0.0, 0.0], [1.0, 1.0])
  """

  inner: State
  slow: Params
  start: Params
  probe: State
  response: Params


def slowmo(
  inner: optax.GradientTransformation,
  *,
  slow_learning_rate: float = 1.0,
  slow_momentum: float = 0.7,
  buffers: str = 'keep',
  axis_name: AxisName = AXIS,
) -> Algorithm:
  r"""SlowMo: Local SGD with a momentum step at the end of every period, on the period's pseudo-gradient.

  With :math:`x^s` the model at the start of the period, :math:`\hat x` the mean at its end and :math:`\gamma` the
  period's learning rate,

  .. math::

    u \leftarrow \beta u + \frac{x^s - \hat x}{\gamma}, \qquad x_i \leftarrow x^s - \alpha \gamma u .

  The division gives u the units of a gradient, so that it stays meaningful when γ or k changes. Here γ is the response
  of the period, as in VRL-SGD (`vrl_jax.algorithms.core.probe`): :math:`k\gamma` for plain SGD, where the constant k
  cancels. With a constant response this is :func:`vrl_jax.with_outer_optimizer` with the outer optimizer
  `optax.sgd(α, momentum=β)`; with β = 0 and α = 1 it is Local SGD.

  Args:
    inner: any optax optimizer, applied by each worker to its own gradients.
    slow_learning_rate: the slow learning rate :math:`\alpha`.
    slow_momentum: the slow momentum :math:`\beta`.
    buffers: what a communication does to the inner optimizer's buffers: 'keep', 'mean' (which sends them) or 'reset'.
    axis_name: the mapped axis (or axes) of the workers.

  Returns:
    The Algorithm. It sends the parameters once per period (and the buffers with 'mean').

  >>> import jax, jax.numpy as jnp, optax, vrl_jax
  >>> algorithm = vrl_jax.slowmo(optax.sgd(0.5), slow_momentum=0.5, axis_name='w')
  >>> params = jnp.zeros(2)  # two workers, a model of one number each
  >>> state = jax.vmap(algorithm.transform.init)(params)
  >>> for _ in range(2):  # two periods of one step with the constant gradients 1 and 3: u = 2, then 1 + 2
  ...   updates, state = jax.vmap(algorithm.transform.update)(jnp.array([1.0, 3.0]), state, params)
  ...   params, state = jax.vmap(algorithm.communicate, axis_name='w')(params + updates, state)
  ...   print(params.tolist())
  [-1.0, -1.0]
  [-2.5, -2.5]

  References:
    Wang et al, `SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum
    <https://arxiv.org/abs/1910.00643>`_, 2019
  """
  if not slow_learning_rate > 0:
    raise ValueError(f'slow_learning_rate={slow_learning_rate}, must be positive')
  if not 0 <= slow_momentum < 1:
    raise ValueError(f'slow_momentum={slow_momentum}, must be at least 0 and less than 1')
  base = local_sgd(inner, buffers=buffers, axis_name=axis_name)
  inner = base.transform

  def init(params):
    unit = probe_leaves(params, 0)
    return SlowMoState(inner.init(params), wide_zeros(params), copied(params), inner.init(unit), unit)

  def update(grads, state, params=None, **extra_args):
    updates, inner_state = inner.update(grads, state.inner, params, **extra_args)
    step, probe = probe_step(inner, state.inner, state.probe, grads, extra_args)
    response = jax.tree.map(jnp.add, state.response, step)
    return updates, state._replace(inner=inner_state, probe=probe, response=response)

  def new_slow(u, moved, response):
    return jnp.where(response != 0, slow_momentum * u + divide_by_response(moved, response), u)

  def steps(slow, response):
    return jax.tree.map(lambda u, response: -slow_learning_rate * response * u, slow, response)

  def communicate(params, state):
    agreed, inner_state = base.communicate(params, state.inner)
    back = jax.tree.map(lambda s, x, u: s.astype(u.dtype) - x.astype(u.dtype), state.start, agreed, state.slow)
    slow = jax.tree.map(new_slow, state.slow, back, state.response)
    moved = steps(slow, state.response)
    params = optax.apply_updates(state.start, cast_like(moved, state.start))
    # Averaged buffers cancel in x̂ - x_i but not in x̂ itself, so the probe drops its buffers only if the others do.
    probe = reset_probe(inner, params, state.probe) if buffers == 'reset' else state.probe
    return params, SlowMoState(inner_state, slow, params, probe, probe_leaves(params, 0))

  def server_step(slow, agreed, mean, response):
    slow = jax.tree.map(lambda u, m, r: new_slow(u, -m, r), slow, mean, response)
    return jax.tree.map(jnp.add, agreed, steps(slow, response)), slow

  algorithm = Algorithm(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=communicate,
    consensus=lambda params, state: base.consensus(params, state.inner),
    correction=no_correction,
  )
  parts = Exchange(inner, axis_name, server=Server(wide_zeros, server_step, uses_response=True))
  return with_exchange(algorithm, parts) if buffers == 'keep' else algorithm
