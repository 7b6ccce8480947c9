"""examples/islands.py: the trajectory of one device, a quarter of the model per device between islands, no gathers there."""

import functools
import pathlib
import re
import runpy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

EXAMPLE = runpy.run_path(str(pathlib.Path(__file__).parents[2] / 'examples' / 'islands.py'))
STEPS = EXAMPLE['PERIOD'] + 2
WORKERS, DEVICES = EXAMPLE['WORKERS'], EXAMPLE['DEVICES']
styles = pytest.mark.parametrize('style', ['map_with_shard_map', 'map_with_vmap'])


@pytest.fixture(autouse=True)
def default_promotion():
  """JAX's defaults, as in a user's process, instead of those of conftest.py."""
  with jax.numpy_dtype_promotion('standard'), jax.numpy_rank_promotion('allow'):
    yield


@functools.cache
def compiled(style):
  """The program of a step, and its arguments."""
  mesh = EXAMPLE['make_mesh']()
  with jax.set_mesh(mesh):
    params, state = EXAMPLE['start'](mesh)
    sharding = jax.NamedSharding(mesh, jax.P('workers', 'fsdp'))
    tokens = [jax.device_put(t, sharding) for _, t in zip(range(STEPS), EXAMPLE['batches']())]
    return jax.jit(EXAMPLE[style](state)).lower(params, state, tokens[0]).compile(), params, state, tokens


@functools.cache
def on_one_device():
  """The losses [steps, workers] and the parameters without a mesh."""
  tx = EXAMPLE['tx']

  def step(params, state, tokens):
    value, grads = jax.value_and_grad(EXAMPLE['loss'])(params, tokens)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value

  params = EXAMPLE['init'](jax.random.key(0))
  params, state = jax.tree.map(lambda x: jnp.stack([x] * WORKERS), (params, tx.init(params)))
  step = jax.jit(jax.vmap(step, axis_name='workers'))
  losses = []
  for _, tokens in zip(range(STEPS), EXAMPLE['batches']()):
    params, state, value = step(params, state, tokens)
    losses.append(np.asarray(value))
  return np.array(losses), params


@styles
def test_the_trajectory_is_that_of_one_device(style):
  program, params, state, batches = compiled(style)
  losses = []
  for tokens in batches:
    params, state, value = program(params, state, tokens)
    losses.append(np.asarray(value))
  expected, model = on_one_device()
  np.testing.assert_allclose(losses, expected, rtol=2e-5)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5), params, model)
  of_worker = [np.concatenate([np.ravel(x[i]) for x in jax.tree.leaves(params)]) for i in range(WORKERS)]
  assert np.abs(of_worker[0] - of_worker[1]).max() > 1e-3  # two steps after a communication
  # Parameters, momentum and Δ are divided over all devices.
  (delta,) = [s.algorithm.delta for s in state if hasattr(s, 'algorithm')]
  for x in jax.tree.leaves((params, delta)):
    assert {shard.data.size for shard in x.addressable_shards} == {x.size // (WORKERS * DEVICES)}
  assert max(np.abs(x).max() for x in jax.tree.leaves(delta)) > 1e-3


def groups_of(line):
  """The groups of devices of a collective, in each of XLA's notations."""
  text = line.split('replica_groups=')[1]
  if listed := re.match(r'\{(\{[\d,{}]+\})\}', text):
    return [list(map(int, group.split(','))) for group in re.findall(r'\{([\d,]+)\}', listed[1])]
  if mesh := re.match(r'mesh\[(.*?)\] \{(.*?)\}', text):
    axes = re.findall(r"'(\w+)'=(\d+)", mesh[1])
    devices = np.arange(WORKERS * DEVICES).reshape([int(size) for _, size in axes])
    along = [number for number, (name, _) in enumerate(axes) if f"'{name}'" in mesh[2]]
    devices = np.moveaxis(devices, along, range(-len(along), 0))
    return devices.reshape(-1, np.prod(devices.shape[-len(along) :])).tolist()
  iota = re.match(r'\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?', text)
  shape, dims, order = ([int(n) for n in part.split(',')] if part else None for part in iota.groups())
  return np.arange(np.prod(dims)).reshape(dims).transpose(order).reshape(shape).tolist()


def collectives(text):
  """(kind, bytes, whether it connects islands, the computation it is in) of each."""
  computation, found = '', []
  for line in text.splitlines():
    if line.endswith('{') and not line.startswith(' '):
      computation = line.removeprefix('ENTRY ').split()[0]
    match = re.match(
      r'\s+(?:ROOT )?%\S+ = (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)\(', line
    )
    if match:
      sizes = [
        np.dtype({'f': 'float', 's': 'int', 'u': 'uint'}[kind] + bits).itemsize
        * np.prod([int(n) for n in dims.split(',') if n])
        for kind, bits, dims in re.findall(r'([fsu])(\d+)\[([\d,]*)\]', match[1])
      ]
      if match[2] == 'collective-permute':
        pairs = re.findall(r'\{(\d+),(\d+)\}', line.split('source_target_pairs=')[1])
        groups = [list(map(int, pair)) for pair in pairs]
      else:
        groups = groups_of(line)
      crosses = any(len({device // DEVICES for device in group}) > 1 for group in groups)
      found.append((match[2], int(sum(sizes)), crosses, computation))
  return found


def branches(text):
  """The computations of the branches."""
  (line,) = [line for line in text.splitlines() if ' conditional(' in line]
  return set(re.findall(r'%[\w.-]+', re.search(r'(branch_computations=\{.*?\}|true_computation=.*)', line)[0]))


@styles
def test_each_device_sends_its_part_of_the_model_in_the_branch_and_nothing_else_leaves_the_island(style):
  program, params, *_ = compiled(style)
  text = program.as_text()
  found = collectives(text)
  between = [one for one in found if one[2]]
  assert {kind for kind, *_ in between} == {'all-reduce'}
  model = sum(x.nbytes for x in jax.tree.leaves(params)) // WORKERS
  assert sum(size for _, size, *_ in between) == model / DEVICES
  in_branch = branches(text)
  assert {computation for *_, computation in between} <= in_branch
  # Nothing is gathered for the communication: what is gathered in an island is for the gradient.
  assert not [one for one in found if one[3] in in_branch and not one[2]]
  assert [one for one in found if not one[2]]


@pytest.mark.slow
def test_the_example_learns(capsys):
  assert EXAMPLE['main']() < 0.6
  assert capsys.readouterr().out.startswith('step   1: loss of each worker [3.')
