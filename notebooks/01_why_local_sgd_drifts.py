# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Why Local SGD drifts, and what VRL-SGD does about it
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/OWNER/vrl-jax/blob/main/notebooks/01_why_local_sgd_drifts.ipynb)
#
# Two workers, a scalar model and no noise are enough to show
#
# - why averaging models every $k$ steps **misses** the optimum when the workers' data differ,
# - what VRL-SGD's correction $\Delta_i$ is, and why it costs no communication,
# - why the first round matters (VRL-SGD-W).
#
# The notebook runs in less than a minute.

# %%
import sys  # the next line installs VRL-JAX where it is missing, on Colab for example
# !{sys.executable} -c 'import vrl_jax' 2>/dev/null || {sys.executable} -m pip install --quiet 'vrl-jax[train] @ git+https://github.com/OWNER/vrl-jax'

# %%
import os
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from IPython.display import Image, display

import vrl_jax

vrl_jax.prepare_devices(workers=2)  # call it before JAX is used
jax.config.update('jax_enable_x64', True)
plt.rcParams.update({'figure.dpi': 110, 'font.size': 9})
COLORS = {'Local SGD': '#d55e00', 'VRL-SGD': '#0072b2'}
QUICK = bool(os.environ.get('VRL_JAX_QUICK'))  # the tests run a shortened form

# %% [markdown]
# ## Two workers that disagree
#
# The loss of worker 1 is $f_1(x) = (x + 2b)^2$, that of worker 2 is $f_2(x) = 2(x - b)^2$, and the workers minimise the mean
# of the two. This is the example in the appendix of the VRL-SGD paper. The constant $b$ sets how much the workers' data differ.
# The minima of the two losses are at $-2b$ and $b$; the minimum of their mean is at **0** for every $b$.

# %%
A, C = np.array([1.0, 2.0]), np.array([-2.0, 1.0])  # f_i(x) = A_i (x - b C_i)²


def gradients(x, b):
  """The gradients of the workers at their models; the last axis of x is the worker."""
  return 2 * A * (x - b * C)


x = np.linspace(-3, 3, 200)
f = A[:, None] * (x - C[:, None]) ** 2
fig, ax = plt.subplots(figsize=(5.2, 2.6))
WORKERS = ('#009e73', '#cc79a7')
for i in (0, 1):
  ax.plot(x, f[i], color=WORKERS[i], label=f'$f_{i + 1}$ of worker {i + 1}')
ax.plot(x, f.mean(axis=0), color='black', linewidth=2, label='their mean')
ax.plot(0, f.mean(axis=0).min(), 'o', color='black')
ax.set(xlabel='x', ylabel='loss', ylim=(0, 16), title='b = 1')
ax.legend();

# %% [markdown]
# ## Local SGD by hand
#
# An algorithm of `vrl_jax` consists of a local step (`transform`, an optax transform) and the end of a period
# (`communicate`). Both act on the values of one worker; `jax.vmap` with the axis name maps them over the workers. The loop
# below runs every algorithm of the package.


# %%
def run(algorithm, period, rounds, first_period=None, b=1.0, x0=1.5):
  """Records the workers after every step, and again after every communication."""

  def local_step(x, state, a, c):
    updates, state = algorithm.transform.update(2 * a * (x - c), state, x)
    return optax.apply_updates(x, updates), state

  over_workers = lambda f: jax.jit(jax.vmap(f, axis_name=vrl_jax.AXIS))
  local_step, communicate = over_workers(local_step), over_workers(algorithm.communicate)
  consensus = over_workers(algorithm.consensus)
  x = jnp.full(2, x0)
  state = jax.vmap(algorithm.transform.init)(x)
  steps, workers, models, corrections = [], [], [], []

  def record(step):
    steps.append(step)
    workers.append(np.asarray(x))
    models.append(np.asarray(consensus(x, state))[0])
    delta = algorithm.correction(state)  # None if the algorithm has none
    corrections.append(np.zeros(2) if delta is None else np.asarray(delta))

  record(0)
  for length in [first_period or period] + [period] * (rounds - 1):
    for _ in range(length):
      x, state = local_step(x, state, A, C * b)
      record(steps[-1] + 1)
    x, state = communicate(x, state)
    record(steps[-1])
  history = {'step': steps, 'workers': workers, 'model': models, 'correction': corrections}
  return {name: np.array(values) for name, values in history.items()}


def show_workers(ax, history, title):
  step = history['step']
  for i in (0, 1):
    ax.plot(step, history['workers'][:, i], color=WORKERS[i], label=f'worker {i + 1}')
  after = np.flatnonzero(np.diff(step) == 0) + 1  # the second record of a step is after its communication
  ax.plot(step[after], history['model'][after], 'o', color='black', label='after averaging')
  ax.axhline(0, color='black', linewidth=0.8, linestyle=(0, (4, 3)), label='the optimum')
  ax.set(xlabel='steps', title=title)


# %% tags=["parameters"]
# @title Change these, then run the cells below again
period = 10  # @param {type: "slider", min: 1, max: 40}
rate = 0.05  # @param {type: "slider", min: 0.005, max: 0.1, step: 0.005}
b = 1.0  # @param {type: "slider", min: 0, max: 3, step: 0.25}

# %%
local = run(vrl_jax.local_sgd(optax.sgd(rate)), period, rounds=8, b=b)
vrl = run(vrl_jax.vrl_sgd(optax.sgd(rate)), period, rounds=8, b=b)

fig, axes = plt.subplots(1, 2, figsize=(8.6, 2.9), sharey=True, layout='constrained')
show_workers(axes[0], local, 'Local SGD')
show_workers(axes[1], vrl, 'VRL-SGD')
axes[0].set_ylabel('model')
fig.legend(*axes[0].get_legend_handles_labels(), loc='outside lower center', ncols=4)
for name, history in (('Local SGD', local), ('VRL-SGD', vrl)):
  print(f'{name} after 8 rounds: {history["model"][-1]:+.4f} (the optimum is 0)')

# %% [markdown]
# Left: between two averages each worker moves towards its **own** minimum. Worker 2 has the steeper loss: it gets close to
# its minimum and slows down, while worker 1 still has far to go. Local SGD converges to the point where the two *movements*
# cancel, which is not where the two *gradients* cancel, however long you train.
#
# Right: the same number of steps, averages and bytes. After the first round each worker knows how its gradient differs from
# the mean over workers, and subtracts that difference.
#
# ## Where does Local SGD converge to?
#
# In $k$ steps worker $i$ covers a fraction $1 - \rho_i$ of the distance to its minimum $c_i$, with
# $\rho_i = (1 - 2\gamma a_i)^k$. The average does not change when the two movements cancel:
#
# $$\hat x_{\text{Local}} = \frac{\sum_i (1 - \rho_i)\, c_i}{\sum_i (1 - \rho_i)} .$$
#
# For $k = 1$ this is the optimum; for large $k$ it is the mean of the workers' minima.

# %%
periods = (1, 2, 5, 10, 20) if QUICK else (1, 2, 3, 5, 7, 10, 15, 20, 30)
ends = {
  name: [run(make(optax.sgd(0.05)), k, rounds=max(80, 200 // k))['model'][-1] for k in periods]
  for name, make in (('Local SGD', vrl_jax.local_sgd), ('VRL-SGD', vrl_jax.vrl_sgd))
}
k = np.linspace(1, max(periods), 200)
share = 1 - (1 - 2 * 0.05 * A[:, None]) ** k
predicted = (share * C[:, None]).sum(axis=0) / share.sum(axis=0)

fig, ax = plt.subplots(figsize=(5.6, 2.8))
ax.plot(k, predicted, color='#666666', linewidth=1, label='the formula')
for name, marker in (('Local SGD', 's'), ('VRL-SGD', 'D')):
  ax.plot(periods, ends[name], marker, color=COLORS[name], label=f'{name}, final model')
ax.axhline(0, color='black', linewidth=0.8, linestyle=(0, (4, 3)))
ax.set(xlabel='period k', ylabel='final model (optimum: 0)', title='γ = 0.05, b = 1')
ax.legend()
assert np.allclose(ends['Local SGD'], np.interp(periods, k, predicted), atol=1e-3)
assert np.allclose(ends['VRL-SGD'], 0, atol=1e-6)

# %% [markdown]
# ## What Δ is
#
# VRL-SGD subtracts a vector $\Delta_i$ from the gradient at every local step, and updates it when the models are averaged:
#
# $$x_i \leftarrow x_i - \gamma\,(g_i - \Delta_i), \qquad
#   \Delta_i \leftarrow \Delta_i + \frac{\hat x - x_i}{k\gamma}.$$
#
# $\hat x - x_i$ is the difference between the mean and this worker's model; divided by $k\gamma$ it is a gradient:
# after a communication $\Delta_i$ is **the mean of the worker's gradients over the period, minus its mean over workers**.
# It is never sent: each worker computes it from the average that it receives anyway.
#
# At the optimum the workers' gradients are not zero (they cancel), and $\Delta_i$ converges to them:
# $\nabla f_1(0) = 4b$ and $\nabla f_2(0) = -4b$.

# %%
fig, axes = plt.subplots(1, 2, figsize=(8.6, 2.9), layout='constrained')
for i in (0, 1):
  axes[0].plot(vrl['step'], vrl['correction'][:, i], color=WORKERS[i], label=f'$\\Delta_{i + 1}$')
  axes[0].axhline(gradients(0.0, b)[i], color=WORKERS[i], linewidth=0.9, linestyle=(0, (2, 2)))
axes[0].set(xlabel='steps', title='The corrections (dotted: the gradients at the optimum)')
axes[0].legend()
for name, history, line in (('Local SGD', local, '--'), ('VRL-SGD', vrl, '-')):
  variance = (gradients(history['workers'], b) - history['correction']).var(axis=1)
  axes[1].plot(history['step'], variance, line, color=COLORS[name], label=name)
axes[1].set(xlabel='steps', title='Variance of the update direction among the workers', yscale='log')
axes[1].legend()
print('sum of the corrections:', float(abs(vrl['correction'].sum(axis=1)).max()))

# %% [markdown]
# The corrections sum to zero, so they do not move the mean; they only keep the workers together. With Local SGD the
# directions differ equally in every round; with VRL-SGD the difference vanishes, and with it the drift. This is the
# *variance reduction* in the name.
#
# ## The first round
#
# In the first round $\Delta_i = 0$: VRL-SGD *is* Local SGD there, and drifts in proportion to $b$. In **VRL-SGD-W** (warm-up)
# the first period is one step long. All workers still have the same model then, so $\Delta_i$ is initialised to the exact
# difference of their gradients, and the trajectory does not depend on $b$ at all.

# %%
fig, axes = plt.subplots(1, 2, figsize=(8.6, 2.9), sharey=True, layout='constrained')
for strength, line, color in ((1.0, '-', '#0072b2'), (10.0, '--', '#80b8d8'), (100.0, ':', '#003959')):
  for ax, first in ((axes[0], None), (axes[1], 1)):
    algorithm, rounds = vrl_jax.vrl_sgd(optax.sgd(0.01)), 8 if QUICK else 20
    history = run(algorithm, 20, rounds, first, b=strength, x0=1.0)
    ax.plot(history['step'], abs(history['model']), line, color=color, label=f'b = {strength:g}')
for ax, title in zip(axes, ('VRL-SGD', 'VRL-SGD-W: the three curves coincide')):
  ax.set(xlabel='steps', title=title, yscale='log')
  ax.legend()
axes[0].set_ylabel('distance to the optimum');
# %% [markdown]
# ## The same with the training loop
#
# Experiments are configs. `run_sweep` trains every entry of a sweep into its run directory, and ends with a table and a
# report, as `python launch.py` does.

# %%
config = vrl_jax.load_config('quadratic')  # the paper's appendix: k = 20, γ = 0.01, 400 steps
config.b = 100.0
if QUICK:
  config.steps = 100
config.title = 'Two quadratics, b = 100, k = 20'
config.sweep = (
  {'name': 'S-SGD', 'algorithm': 's_sgd'},
  {'name': 'Local SGD', 'algorithm': 'local_sgd'},
  {'name': 'EASGD', 'algorithm': 'easgd'},
  {'name': 'VRL-SGD', 'algorithm': 'vrl_sgd'},
  {'name': 'VRL-SGD-W', 'algorithm': 'vrl_sgd', 'first_period': 1},
)
config.figure = ({'name': 'distance', 'y': 'distance_to_optimum', 'x': ('step', 'communications')},)
workdir = pathlib.Path(tempfile.mkdtemp())
vrl_jax.run_sweep(config, workdir);
# %%
display(Image(workdir / 'figures' / 'distance.png', width=820))

# %% [markdown]
# Against *steps* the VRL variants follow S-SGD; against *communications* they are twenty times as fast.
#
# ## What to try next
#
# - Move the sliders above: at `b = 0` the two algorithms differ much less (why do they differ at all?); with `period = 1` both
#   are S-SGD. VRL-SGD always converges here, but the number of *rounds* depends on the period: which period needs the fewest?
# - Use momentum: `optax.sgd(rate, momentum=0.9)`. Nothing else changes; notebook 03 explains why that is not obvious.
# - Add noise: `config.noise = 1.0`, `config.seeds = (0, 1, 2)`, and look at the bands in the report.
# - Train on real digits: [02_lenet_on_your_device](02_lenet_on_your_device.ipynb).
