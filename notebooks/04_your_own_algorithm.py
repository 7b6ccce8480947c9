# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own algorithm
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/OWNER/vrl-jax/blob/main/notebooks/04_your_own_algorithm.ipynb)
#
# An algorithm consists of a local step (an optax transform), the end of a period, and the model to evaluate. This notebook adds
# one in twenty lines, and uses it by hand, in the training loop, in the report, and in the tests that every algorithm of the
# package passes.
#
# The example is **FedProx** ([Li et al., 2018](https://arxiv.org/abs/1812.06127)): Local SGD with a proximal term that pulls each
# worker to the last common model $\hat x$, so that it cannot drift far:
#
# $$x_i \leftarrow x_i - \gamma\,\bigl(g_i(x_i) + \mu\,(x_i - \hat x)\bigr).$$

# %%
import sys  # the next line installs VRL-JAX where it is missing, on Colab for example
# !{sys.executable} -c 'import vrl_jax' 2>/dev/null || {sys.executable} -m pip install --quiet 'vrl-jax[train] @ git+https://github.com/OWNER/vrl-jax'

# %%
import inspect
import os
import pathlib
import subprocess
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
from IPython.display import Image, display

import vrl_jax

vrl_jax.prepare_devices(workers=2)  # call it before JAX is used
QUICK = bool(os.environ.get('VRL_JAX_QUICK'))  # the tests run a shortened form

# %% [markdown]
# ## Twenty lines
#
# Each function acts on the values of **one** worker. What a worker keeps from step to step is part of the state, and workers
# communicate only by a mean over `axis_name`. FedProx leaves that to Local SGD, and adds the common model to the state. It has
# no period, counter or learning rate: the engine decides when a round ends, and the inner optimizer has the learning rate.


# %%
def fed_prox(inner, *, mu: float = 1.0, axis_name=vrl_jax.AXIS):
  """FedProx: Local SGD with a proximal term."""
  local = vrl_jax.local_sgd(inner, axis_name=axis_name)

  def init(params):
    return local.transform.init(params), jax.tree.map(jnp.copy, params)  # a copy: both can be donated

  def update(grads, state, params=None, **extra_args):
    state, common = state
    grads = jax.tree.map(lambda g, x, c: g + mu * (x - c), grads, params, common)
    updates, state = local.transform.update(grads, state, params, **extra_args)
    return updates, (state, common)

  def communicate(params, state):
    params, state = local.communicate(params, state[0])
    return params, (state, params)

  return local._replace(
    transform=optax.GradientTransformationExtraArgs(init, update),
    communicate=communicate,
    consensus=lambda params, state: local.consensus(params, state[0]),
  )


# %% [markdown]
# ## By hand
#
# Two workers with scalar models; the gradients are 1 and 3, the learning rate is ½ and μ = 1. After the first step the models are
# $-\tfrac12$ and $-\tfrac32$, so in the second step the proximal term adds $-\tfrac12$ and $-\tfrac32$ to the gradients.

# %%
algorithm = fed_prox(optax.sgd(0.5), mu=1.0)
update = jax.vmap(algorithm.transform.update, axis_name=vrl_jax.AXIS)
communicate = jax.vmap(algorithm.communicate, axis_name=vrl_jax.AXIS)

x = jnp.zeros(2)
state = jax.vmap(algorithm.transform.init)(x)
for _ in range(2):
  updates, state = update(jnp.array([1.0, 3.0]), state, x)
  x = optax.apply_updates(x, updates)
  print('workers', x)
x, state = communicate(x, state)
print('common ', x)
assert np.allclose(x, -1.5)

# %% [markdown]
# ## In the training loop
#
# One entry in the registry adds the config field `mu` and enables `--config.algorithm=fed_prox`, checkpoints, the report and the
# count of bytes. (In a checkout the entry goes into `vrl_jax/algorithms/__init__.py`, and the function into a file beside it.)

# %%
vrl_jax.ALGORITHMS['fed_prox'] = fed_prox

config = vrl_jax.load_config('quadratic')  # the two workers of notebook 01
config.b, config.period, config.learning_rate = 1.0, 10, 0.05
config.steps = 50 if QUICK else 150
config.title = 'FedProx on two quadratics'
config.sweep = (
  {'name': 'S-SGD', 'algorithm': 's_sgd'},
  {'name': 'Local SGD', 'algorithm': 'local_sgd'},
  {'name': 'FedProx mu=1', 'algorithm': 'fed_prox', 'mu': 1.0},
  {'name': 'FedProx mu=10', 'algorithm': 'fed_prox', 'mu': 10.0},
  {'name': 'VRL-SGD', 'algorithm': 'vrl_sgd'},
)
config.figure = ({'name': 'distance', 'y': 'distance_to_optimum', 'x': 'step', 'log_y': False},)
workdir = pathlib.Path(tempfile.mkdtemp())
vrl_jax.run_sweep(config, workdir);
# %%
display(Image(workdir / 'figures' / 'distance.png', width=620))

# %% [markdown]
# The larger $\mu$, the closer to the optimum FedProx converges. But it misses the optimum for every $\mu$, and converges more
# slowly for a large one. A correction that *learns* the difference between the workers (VRL-SGD) needs no such trade-off.
#
# ## The common tests
#
# Does it keep shapes and dtypes in float32, float64 and bfloat16? Does it compile once? Does it accept extra arguments, and have
# the same trajectory on any number of devices? `tests/algorithms/test_algorithms.py` tests every algorithm in the registry. As
# the function is defined in this notebook, a pytest plugin registers it here.

# %%
TESTS = 'tests/algorithms/test_algorithms.py'
places = (pathlib.Path(vrl_jax.__file__).parents[1], *pathlib.Path.cwd().parents)
checkout = next((path for path in places if (path / TESTS).exists()), None)

if checkout is None:
  print('The tests are not part of the installed package: clone the repository to run this cell.')
else:
  plugin = pathlib.Path(tempfile.mkdtemp())
  source = 'import jax, optax, vrl_jax\nimport jax.numpy as jnp\n\n' + inspect.getsource(fed_prox)
  (plugin / 'my_algorithm.py').write_text(source + "\nvrl_jax.ALGORITHMS['fed_prox'] = fed_prox\n")
  which = 'fed_prox and (shapes or extra or compiled)' if QUICK else 'fed_prox'
  result = subprocess.run(
    [sys.executable, '-m', 'pytest', '-p', 'my_algorithm', '-p', 'no:cacheprovider', '-v', '--no-header']
    + ['--color=no', '-k', which, TESTS],
    cwd=checkout,
    env=os.environ | {'PYTHONPATH': f'{plugin}'},
    capture_output=True,
    text=True,
  )
  print(result.stdout)
  assert result.returncode == 0, result.stdout + result.stderr

# %% [markdown]
# The common tests do not know what your algorithm computes. Add a test with numbers worked out by hand, as in the cell above, and
# one against a NumPy version (those of the package are in `tests/support/numpy_reference.py`).
#
# ## What to try next
#
# - Combine the proximal term with a correction: use `vrl_jax.vrl_sgd` instead of `local_sgd` above (`_replace` keeps its
#   `correction`, which needs its own part of the state). Does VRL-SGD still reach the optimum?
# - Do not keep the common model in the state, but use the mean at every step: which of the common tests fails?
# - Change what is sent: average only the leaves whose name begins with `Dense`, or send bfloat16 differences. The report's column
#   *sent* is counted from the compiled program, not computed from a formula.
# - Read an algorithm of the package: `vrl_jax/algorithms/vrl_sgd.py` is the paper's.
