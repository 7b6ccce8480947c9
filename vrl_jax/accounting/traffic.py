"""The traffic of an algorithm, counted from its jaxprs."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vrl_jax.algorithms.core.algorithm import Algorithm
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.engine.batch_stats import communicate_stats
from vrl_jax.jaxprs import jaxprs_in

if TYPE_CHECKING:  # the tasks need the extra `train`, and counting does not
  from vrl_jax.tasks.task import Task

_REDUCTIONS = ('psum', 'all_gather', 'all_to_all', 'pmin', 'pmax', 'reduce_scatter')


class Traffic(NamedTuple):
  """Bytes that each worker passes to collectives, one worker on each device.

  An all-to-all and an all-gather are the two halves of an all-reduce: of M bytes each, they send as much as an all-reduce of
  M bytes, and count as one.

  Attributes:
    per_step: bytes reduced over the workers in every local step.
    per_round: bytes reduced over the workers at the end of every round.
    to_neighbours: bytes sent directly to other workers in every local step.
    participation: the fraction of the workers that take part in a round.

  >>> local = Traffic(per_step=0, per_round=4000)  # a model of 1,000 float32, once a round
  >>> local.communications(steps=100, rounds=5), local.ring_bytes(steps=100, rounds=5, workers=8)
  (5, 35000)
  >>> every_step = Traffic(per_step=4000, per_round=0)
  >>> every_step.communications(steps=100, rounds=5), every_step.ring_bytes(steps=100, rounds=5, workers=8)
  (100, 700000)
  """

  per_step: int
  per_round: int
  to_neighbours: int = 0
  participation: float = 1.0

  def communications(self, steps: int, rounds: int) -> int:
    """The number of communications in `steps` steps and `rounds` rounds."""
    return steps * (self.per_step + self.to_neighbours > 0) + rounds * (self.per_round > 0)

  def ring_bytes(self, steps: int, rounds: int, workers: int) -> int:
    """Bytes sent per worker in `steps` steps and `rounds` rounds, with ring all-reduces: 2(N−1)/N of the bytes reduced.

    With partial participation this is the mean over the workers if only the round's subset sends.
    """
    if workers == 1:
      return 0
    senders = max(1, round(self.participation * workers))
    reduced = steps * self.per_step * workers + rounds * self.per_round * senders
    return round(2 * (workers - 1) / workers * reduced / workers) + steps * self.to_neighbours


def traffic(algorithm: Algorithm, params: Any, workers: int = 8, devices: int | None = None) -> Traffic:
  """Counts the bytes that `transform.update` and `communicate` reduce over the workers, from their jaxprs.

  Args:
    algorithm: any algorithm with the default `axis_name`, or with `vrl_jax.AXES`.
    params: arrays or shapes, without worker axes.
    workers: N; makes a difference on a ring of two, where each worker has one neighbour, and for quantised models.
    devices: D, for the bytes that each device sends instead, of an algorithm that does not send to neighbours; the
      quantised models of several workers on a device are sent separately.

  >>> import optax, vrl_jax
  >>> params = {'kernel': jnp.zeros((10, 5)), 'bias': jnp.zeros(5)}  # 55 float32
  >>> traffic(vrl_jax.vrl_sgd(optax.sgd(0.1), axis_name=AXES), params)
  Traffic(per_step=0, per_round=220, to_neighbours=0, participation=1.0)
  >>> traffic(vrl_jax.s_sgd(optax.sgd(0.1), axis_name=AXES), params)
  Traffic(per_step=220, per_round=0, to_neighbours=0, participation=1.0)
  >>> traffic(vrl_jax.quantised(vrl_jax.vrl_sgd(optax.sgd(0.1), axis_name=AXES), bits=8), params)  # 8 (8 + 4)
  Traffic(per_step=0, per_round=96, to_neighbours=0, participation=1.0)
  """
  params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params)
  state = jax.eval_shape(algorithm.transform.init, params)
  each = workers // devices if devices else 1
  update = _jaxpr(algorithm.transform.update, params, state, params, workers=workers, each=each)
  communicate = _jaxpr(algorithm.communicate, params, state, workers=workers, each=each)
  return Traffic(
    per_step=_count(update, _REDUCTIONS),
    per_round=_count(communicate, _REDUCTIONS, each),
    to_neighbours=_count(update, ('ppermute',)),
    participation=algorithm.participation,
  )


def with_batch_stats(sends: Traffic, policy: str, task: 'Task', batch_size: int) -> Traffic:
  """Adds the traffic of the batch normalisation statistics.

  Args:
    sends: the algorithm's traffic.
    policy: one of `vrl_jax.engine.batch_stats.POLICIES`.
    task: a task whose model has batch statistics.
    batch_size: the batch size of each worker, for tracing the loss.

  >>> from vrl_jax.tasks.task import Task
  >>> x = np.ones((8, 3), np.float32)
  >>> stats = {'mean': np.zeros(3, np.float32), 'var': np.ones(3, np.float32)}
  >>> loss = lambda params, frozen, batch, rng: (params @ batch['x'].mean(axis=0), frozen['batch_stats'])
  >>> task = Task(lambda rng: np.zeros(3, np.float32), loss, None, {'x': x}, None, frozen={}, batch_stats=stats)
  >>> with_batch_stats(Traffic(per_step=0, per_round=12), 'average', task, batch_size=4)
  Traffic(per_step=0, per_round=36, to_neighbours=0, participation=1.0)
  """
  batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((batch_size, *x.shape[1:]), x.dtype), task.train)
  params, rng = jax.eval_shape(lambda rng: (task.init(rng), rng), jax.random.key(0))
  frozen = {**task.frozen, 'batch_stats': task.batch_stats}
  gradient = _jaxpr(jax.grad(task.loss, has_aux=True), params, frozen, batch, rng)
  communicate = _jaxpr(lambda stats: communicate_stats(policy, stats, AXES), task.batch_stats)
  return sends._replace(
    per_step=sends.per_step + _count(gradient, _REDUCTIONS),
    per_round=sends.per_round + _count(communicate, _REDUCTIONS),
  )


def _jaxpr(fun, *args, workers=2, each=1):
  # Mostly one worker per device, so that nothing moves within a device. A single worker counts as one of two.
  return jax.make_jaxpr(fun, axis_env=[(AXES[0], max(2, workers // each)), (AXES[1], each)])(*args).jaxpr


def _count(jaxpr, primitives, each=1):
  return round(_sum(jaxpr, primitives, each))


def _sum(jaxpr, primitives, each):
  total = 0
  for equation in jaxpr.eqns:
    name = equation.primitive.name.split('_invariant')[0]
    if name in primitives and not _on_device(equation):
      arrays = equation.outvars if name == 'all_gather' else equation.invars
      size = sum(int(np.prod(v.aval.shape)) * jnp.dtype(v.aval.dtype).itemsize for v in arrays)
      total += size * {'all_gather': 0.5, 'all_to_all': 0.5 * each}.get(name, 1)
    total += sum(_sum(sub, primitives, each) for sub in jaxprs_in(equation))
  return total


def _on_device(equation):
  """Whether a collective stays within a device."""
  axes = equation.params.get('axes', equation.params.get('axis_name'))
  return set(axes if isinstance(axes, tuple) else (axes,)) <= {AXES[1]}
