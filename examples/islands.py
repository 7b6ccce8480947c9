"""Workers larger than a device: VRL-SGD between islands, each of which trains a transformer with FSDP inside.

python examples/islands.py

The mesh has the axes 'workers' and 'fsdp'. Inside an island of four devices, JAX's partitioner divides the parameters,
Δ and the optimizer's state over the devices, as well as every mini-batch. Between the islands each device sends its
quarter of the model every PERIOD steps, in a branch of the program. Both ways to map a step over the workers are shown,
`jax.shard_map` and `jax.vmap`. The workers' texts count in steps of different sizes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import vrl_jax

WORKERS, DEVICES = 2, 4  # of each worker
PERIOD, STEPS, BATCH = 5, 100, 16
VOCABULARY, LENGTH, WIDTH, HEADS, BLOCKS = 32, 16, 32, 4, 2
if __name__ == '__main__':
  vrl_jax.prepare_devices(WORKERS * DEVICES)  # virtual devices on a CPU


def init(rng):
  """The parameters of a transformer."""
  shapes = {'qkv': (WIDTH, 3 * WIDTH), 'out': (WIDTH, WIDTH), 'up': (WIDTH, 4 * WIDTH), 'down': (4 * WIDTH, WIDTH)}
  keys = iter(jax.random.split(rng, 2 + BLOCKS * len(shapes)))
  normal = lambda shape: jax.random.normal(next(keys), shape) * shape[0] ** -0.5
  blocks = [{name: normal(shape) for name, shape in shapes.items()} for _ in range(BLOCKS)]
  return {'embedding': normal((VOCABULARY, WIDTH)), 'positions': normal((LENGTH, WIDTH)), 'blocks': blocks}


def loss(params, tokens):
  """The cross-entropy of the next token."""
  norm = lambda x: x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6)
  x = params['embedding'][tokens[:, :-1]] + params['positions'][None, : tokens.shape[1] - 1]
  for block in params['blocks']:
    heads = (norm(x) @ block['qkv']).reshape(*x.shape[:2], HEADS, -1)
    attended = jax.nn.dot_product_attention(*jnp.split(heads, 3, axis=-1), is_causal=True)
    x = x + attended.reshape(x.shape) @ block['out']
    x = x + jax.nn.gelu(norm(x) @ block['up']) @ block['down']
  logits = norm(x) @ params['embedding'].T
  return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


tx = optax.chain(
  optax.clip_by_global_norm(1.0),
  vrl_jax.as_optax(vrl_jax.vrl_sgd(optax.sgd(0.1, momentum=0.9), axis_name='workers'), PERIOD),
)


def spec_in_island(x):
  """Divides the rows of a matrix, of the parameters or of anything that is like them, over the island."""
  return P('fsdp') if x.ndim > 1 and x.shape[0] % DEVICES == 0 else P()


def step(params, state, tokens):
  """One step of one worker."""
  divide = lambda tree: jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, spec_in_island(x)), tree)
  value, grads = jax.value_and_grad(loss)(params, tokens)
  updates, state = tx.update(divide(grads), state, params)
  return divide(optax.apply_updates(params, updates)), state, value


def map_with_shard_map(state):
  """The step of all workers; an axis of the mesh is mapped by hand, the other is left to the partitioner."""
  is_mapped = vrl_jax.state_axes(state, True, False)
  specs = vrl_jax.state_axes(state, P('workers'), P())

  def on_island(params, state, tokens):
    only = lambda x: x[0]  # the worker of this island
    params, state, value = step(*on_mapped(only, (True, is_mapped, True), (params, state, tokens)))
    return on_mapped(lambda x: x[None], (True, is_mapped, True), (params, state, value))

  in_specs, out_specs = (P('workers'), specs, P('workers')), (P('workers'), specs, P('workers'))
  return jax.shard_map(on_island, in_specs=in_specs, out_specs=out_specs, axis_names={'workers'})


def map_with_vmap(state):
  """The step of all workers, as an axis of all arrays."""
  axes = vrl_jax.state_axes(state)
  return jax.vmap(step, (0, axes, 0), (0, axes, 0), axis_name='workers', spmd_axis_name='workers')


def on_mapped(fun, is_mapped, tree):
  """Applies a function to the leaves that each worker has of its own."""
  return jax.tree.map(lambda m, part: jax.tree.map(fun, part) if m else part, is_mapped, tree)


def make_mesh():
  """Islands of four devices."""
  return jax.make_mesh((WORKERS, DEVICES), ('workers', 'fsdp'), axis_types=(AxisType.Auto,) * 2)


def start(mesh):
  """The same parameters for all workers, and their state, divided over the devices."""
  params = init(jax.random.key(0))
  state = tx.init(params)

  def copies(x):
    sharding = NamedSharding(mesh, P('workers', *spec_in_island(x)))
    return jax.device_put(jnp.broadcast_to(x, (WORKERS, *x.shape)), sharding)

  return on_mapped(copies, (True, vrl_jax.state_axes(state, True, False)), (params, state))


def batches(seed=0):
  """Mini-batches of all workers, [workers, batch, length]: worker i counts in steps of 2 i + 1 and 2 i + 2."""
  random = np.random.default_rng(seed)
  while True:
    first = random.integers(0, VOCABULARY, (WORKERS, BATCH, 1))
    size = random.integers(1, 3, (WORKERS, BATCH, 1)) + 2 * np.arange(WORKERS)[:, None, None]
    yield ((first + size * np.arange(LENGTH + 1)) % VOCABULARY).astype(np.int32)


def train(mapped, steps=STEPS):
  """The losses [steps, workers] and the last parameters."""
  mesh = make_mesh()
  losses = []
  with jax.set_mesh(mesh):
    params, state = start(mesh)
    compiled = jax.jit(mapped(state), donate_argnums=(0, 1))
    for _, tokens in zip(range(steps), batches()):
      tokens = jax.device_put(tokens, NamedSharding(mesh, P('workers', 'fsdp')))
      params, state, value = compiled(params, state, tokens)
      losses.append(np.asarray(value))
  return np.array(losses), params


def main():
  """Trains, and returns the loss of the last step."""
  losses, _ = train(map_with_shard_map)
  for number in (0, *range(19, STEPS, 20)):
    print(f'step {number + 1:3d}: loss of each worker {losses[number].round(3).tolist()}')
  return losses[-1].mean()


if __name__ == '__main__':
  main()
