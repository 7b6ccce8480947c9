"""The engine on the three tasks of the paper, with random data of the right shapes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from vrl_jax.algorithms import ALGORITHMS
from vrl_jax.algorithms.core.axes import AXES
from vrl_jax.config.fields import default_config
from vrl_jax.config.optimizers import inner_optimizer
from vrl_jax.cpu.worker_order import group_workers, serialize_workers
from vrl_jax.data.partition import by_class
from vrl_jax.data.stream import index_stream
from vrl_jax.engine.engine import Engine
from vrl_jax.engine.feed import Feed
from vrl_jax.engine.placement import Placement, place_workers
from vrl_jax.models.lenet import LeNet
from vrl_jax.models.mlp import MLP
from vrl_jax.models.textcnn import TextCNN
from vrl_jax.tasks.classification import classification_task
from vrl_jax.tasks.task import Task

VOCABULARY = 20_000


class Setting(NamedTuple):
  """A task of the paper: its model, and the data and hyperparameters of a worker."""

  model: Any
  inputs: Callable[[np.random.Generator, int], np.ndarray]
  classes: int
  batch: int
  period: int
  learning_rate: float


SETTINGS = {
  'lenet': Setting(
    model=LeNet(),
    inputs=lambda r, n: r.normal(size=(n, 32, 32)).astype(np.float32),
    classes=10,
    batch=32,
    period=20,
    learning_rate=0.005,
  ),
  'textcnn': Setting(
    model=TextCNN(),
    inputs=lambda r, n: r.integers(0, VOCABULARY, (n, 50), np.int32),
    classes=14,
    batch=64,
    period=50,
    learning_rate=0.01,
  ),
  'mlp': Setting(
    model=MLP(),
    inputs=lambda r, n: r.normal(size=(n, 2048)).astype(np.float32),
    classes=200,
    batch=32,
    period=20,
    learning_rate=0.025,
  ),
}


def make_task(name: str, examples: int, **model: Any) -> Task:
  """The task with `examples` random examples; `model` overrides fields of its model."""
  setting, rng = SETTINGS[name], np.random.default_rng(0)
  data = {
    'input': setting.inputs(rng, examples),
    'label': rng.integers(0, setting.classes, examples).astype(np.int32),
  }
  text = name == 'textcnn'
  constants = {'embedding': rng.normal(size=(VOCABULARY, 50)).astype(np.float32)} if text else None
  return classification_task(setting.model.clone(**model), data, data, range(setting.classes), constants, dropout=text)


class Bench:
  """An engine with its state; calling it runs rounds."""

  def __init__(
    self,
    name: str,
    algorithm: str,
    *,
    workers: int = 8,
    devices: int | None = None,
    period: int | None = None,
    where: str = 'device',
    shard: int = 512,
    workers_at_once: int | None = None,
    tile_bytes: int | None = None,
    **model: Any,
  ):
    """Builds the engine; `model` overrides fields of the setting's model."""
    setting = SETTINGS[name]
    self.period = period or setting.period
    self.placement: Placement = place_workers(workers, devices)
    self.task = make_task(name, workers * shard, **model)
    stream = index_stream(by_class(self.task.labels, workers), setting.batch)
    self.feed = Feed(self.task.train, stream, self.placement, frozen=self.task.frozen, where=where)
    config = default_config()
    config.learning_rate, config.weight_decay = setting.learning_rate, 1e-4
    self.engine = Engine(
      ALGORITHMS[algorithm](inner_optimizer(config, 1), axis_name=AXES),
      self.task.loss,
      self.placement,
      self.feed.supply,
      workers_at_once=workers_at_once,
      tile_bytes=tile_bytes,
    )
    self.params = jax.tree.map(np.asarray, self.task.init(jax.random.key(0)))
    self.state = self.engine.init(self.params)
    self.examples_per_round = self.period * workers * setting.batch

  def __call__(self, count: int) -> None:
    """Runs `count` rounds and waits for them."""
    if self.feed.on_device:
      self.state, token = self.engine.run(self.state, self.feed.items(0, self.period, count), count)
    else:
      for r in range(count):
        self.state, token = self.engine.run(self.state, self.feed.items(r * self.period, self.period, 1), 1)
    token.block_until_ready()


class BareGradient:
  """The mini-batch gradients of a `Bench` in the same layout and order, without optimizer and communication."""

  def __init__(self, bench: Bench):
    self._bench = bench
    supply, task = bench.feed.supply, bench.task
    platform = bench.placement.platform
    gradient = group_workers(jax.grad(task.loss), platform)

    def steps(state, data, frozen, items):
      def step(state, item):
        params, _, count = state
        rng = jax.random.fold_in(jax.random.key(0), count)
        return (params, gradient(params, frozen, supply.fetch(data, item), rng), count + 1), None

      return lax.scan(step, state, items)[0]

    def worker(params, data, frozen, items):
      start = params, jax.tree.map(jnp.zeros_like, params), jnp.zeros([], jnp.int32)
      flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), items)
      return serialize_workers(steps, platform)(start, data, frozen, flat)[1]

    mapped = jax.vmap(worker, (0, None, None, 0), axis_name=AXES[1])
    self._program = bench.placement.pmap(mapped)
    self._params = bench.placement.split(
      jax.tree.map(lambda x: np.broadcast_to(x, (bench.placement.workers, *x.shape)), bench.params)
    )

  def __call__(self, count: int) -> None:
    """Computes the gradients of `count` rounds and waits for them."""
    jax.block_until_ready(self.gradients(count))

  def gradients(self, count: int) -> Any:
    """The last of the gradients of `count` rounds, [D, N/D, ...]."""
    supply, items = self._bench.feed.supply, self._bench.feed.items(0, self._bench.period, count)
    return self._program(self._params, supply.data, supply.frozen, items)

  def compiled(self, count: int = 1) -> jax.stages.Compiled:
    """The compiled program, for its memory analysis."""
    supply, items = self._bench.feed.supply, self._bench.feed.items(0, self._bench.period, count)
    return self._program.lower(self._params, supply.data, supply.frozen, items).compile()
