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
# In this package an algorithm is a local step (an optax transform), the end of a period, and the model to evaluate. Here you write
# one that is not in the package, in twenty lines, and take it all the way: by hand, in the training loop, in the report, and
# through the tests that every algorithm of the package has to pass.
#
# The example is **FedProx** ([Li et al, 2018](https://arxiv.org/abs/1812.06127)): Local SGD whose workers are tied to the last common
# model $\hat x$ by a spring, so that they cannot drift far:
#
# $$x_i \leftarrow x_i - \gamma\,\bigl(g_i(x_i) + \mu\,(x_i - \hat x)\bigr).$$

# %%
# Where VRL-JAX is not installed: installs it from a checkout around or in this folder, or else from REPOSITORY.
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

REPOSITORY = os.environ.get('VRL_JAX_REPOSITORY', '')  # without a checkout: the address of your copy, 'git+https://…'

spec = importlib.util.find_spec('vrl_jax')
if spec is None or spec.origin is None:  # no origin: only a folder of that name, perhaps the checkout itself
  here = pathlib.Path.cwd()
  places = [here, *here.parents, *sorted(here.iterdir())]
  checkout = next((path for path in places if (path / 'vrl_jax' / 'train.py').exists()), None)
  if not (checkout or REPOSITORY):
    raise ModuleNotFoundError(f'no VRL-JAX in or around {here}: clone or upload it to there, or set REPOSITORY above')
  tpu = '[tpu]' if pathlib.Path('/dev/accel0').exists() else ''
  extra = '[cuda]' if shutil.which('nvidia-smi') else tpu
  source = f'{checkout}{extra}' if checkout else f'vrl-jax{extra} @ {REPOSITORY}'
  subprocess.run([sys.executable, '-m', 'pip', 'install', '--quiet', source], check=True)
  importlib.invalidate_caches()

# %%
import inspect
import os
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
from IPython.display import Image, display

import vrl_jax
from vrl_jax.config_files import load_config
from vrl_jax.sweep import run_sweep

vrl_jax.devices.prepare(workers=2)  # before anything touches JAX
QUICK = bool(os.environ.get('VRL_JAX_QUICK'))  # the project's tests run a shortened form

# %% [markdown]
# ## Twenty lines
#
# Each function sees **one** worker's values. Whatever a worker must remember from step to step lives in the state; the only
# place where workers meet is a mean over `axis_name`. FedProx leaves that to Local SGD, and adds the common model
# to the state. There is no period, no counter and no learning rate in it: the engine decides when a round ends, and the
# inner optimizer has the rate.


# %%
def fed_prox(inner, *, mu: float = 1.0, axis_name=vrl_jax.AXIS):
  """FedProx: Local SGD with a spring to the last common model."""
  local = vrl_jax.local_sgd(inner, axis_name=axis_name)

  def init(params):
    return local.init(params), params

  def update(grads, state, params=None, **extra_args):
    state, common = state
    grads = jax.tree.map(lambda g, x, c: g + mu * (x - c), grads, params, common)
    updates, state = local.update(grads, state, params, **extra_args)
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
# Two workers with a model of one number each; the gradients are 1 and 3, the rate is ½, the spring 1. Work the second step out on
# paper before you look: the workers stand at $-\tfrac12$ and $-\tfrac32$, so the spring adds $-\tfrac12$ and $-\tfrac32$ to their gradients.

# %%
algorithm = fed_prox(optax.sgd(0.5), mu=1.0)
update = jax.vmap(algorithm.update, axis_name=vrl_jax.AXIS)
communicate = jax.vmap(algorithm.communicate, axis_name=vrl_jax.AXIS)

x = jnp.zeros(2)
state = jax.vmap(algorithm.init)(x)
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
# One line in the registry, and the config has a field `mu`, `--config.algorithm=fed_prox` works, checkpoints, the report and the
# accounting of bytes, too. (In a checkout the line goes into `vrl_jax/algorithms/__init__.py`, and the function into a file beside it.)

# %%
vrl_jax.ALGORITHMS['fed_prox'] = fed_prox

config = load_config('quadratic')  # two workers that disagree: see notebook 01
config.b, config.period, config.learning_rate = 1.0, 10, 0.05
config.steps = 50 if QUICK else 150
config.title = 'A spring against the drift'
config.sweep = (
  {'name': 'S-SGD', 'algorithm': 's_sgd'},
  {'name': 'Local SGD', 'algorithm': 'local_sgd'},
  {'name': 'FedProx mu=1', 'algorithm': 'fed_prox', 'mu': 1.0},
  {'name': 'FedProx mu=10', 'algorithm': 'fed_prox', 'mu': 10.0},
  {'name': 'VRL-SGD', 'algorithm': 'vrl_sgd'},
)
config.figure = ({'name': 'distance', 'y': 'distance_to_optimum', 'x': 'step', 'log_y': False},)
workdir = pathlib.Path(tempfile.mkdtemp())
run_sweep(config, workdir);
# %%
display(Image(workdir / 'figures' / 'distance.png', width=620))

# %% [markdown]
# The spring does what it promises: the stronger it is, the closer to the optimum FedProx stops. But it stops beside it, for every
# $\mu$, and a strong spring slows the way there. A correction that *learns* the difference between the workers (VRL-SGD) has
# no such compromise.
#
# ## Through the common battery
#
# Does it keep its shapes and dtypes in float32, float64 and bfloat16? Does it compile once? Does it accept extra arguments, and give the
# same trajectory on any number of devices? `tests/test_algorithms.py` asks every algorithm of the registry, so it asks yours as soon
# as it is registered. Here a pytest plugin does that, as the function lives in this notebook.

# %%
places = (pathlib.Path(vrl_jax.__file__).parents[1], *pathlib.Path.cwd().parents)
checkout = next((path for path in places if (path / 'tests' / 'test_algorithms.py').exists()), None)

if checkout is None:
  print('The battery is part of the repository, not of the installed package: clone it to run this cell.')
else:
  plugin = pathlib.Path(tempfile.mkdtemp())
  source = 'import jax, optax, vrl_jax\n\n' + inspect.getsource(fed_prox)
  (plugin / 'my_algorithm.py').write_text(source + "\nvrl_jax.ALGORITHMS['fed_prox'] = fed_prox\n")
  which = 'fed_prox and (shapes or extra or compiled)' if QUICK else 'fed_prox'
  result = subprocess.run(
    [sys.executable, '-m', 'pytest', '-p', 'my_algorithm', '-p', 'no:cacheprovider', '-v', '--no-header']
    + ['--color=no', '-k', which, 'tests/test_algorithms.py'],
    cwd=checkout,
    env=os.environ | {'PYTHONPATH': f'{plugin}'},
    capture_output=True,
    text=True,
  )
  print(result.stdout)
  assert result.returncode == 0, result.stdout + result.stderr

# %% [markdown]
# What the battery cannot know is what your algorithm is *for*. Write one more test with numbers worked out by hand, like the cell above,
# and one against a plain NumPy version (`tests/numpy_reference.py` has those of the package).
#
# ## What to try next
#
# - A spring *and* a correction: put `vrl_jax.vrl_sgd` in the place of `local_sgd` above (its `correction` comes along with
#   `_replace`, but wants its own part of the state). Does VRL-SGD still reach the optimum?
# - Forget to put the common model into the state, and use the mean at every step: which test of the battery notices?
# - Change what is sent: average only the leaves whose name begins with `Dense`, or send bfloat16 differences. The report's column
#   *sent* is counted from your program, not from a formula.
# - Look at how the package's own are written: `vrl_jax/algorithms/vrl_sgd.py` is the paper's algorithm in one screen.
