# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # LeNet on your device
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/OWNER/vrl-jax/blob/main/notebooks/02_lenet_on_your_device.ipynb)
#
# The paper's comparison on real digits: LeNet, **eight workers**, the classes divided among them, every algorithm from the
# same initial weights. Eight workers do not need eight devices: they run on one CPU, one GPU or eight TPU cores with the
# same result.
#
# By default the notebook uses 5,000 MNIST images from a Python package, without a download, and takes a few minutes on a
# laptop. `DATASET` below selects the full data set.

# %%
import sys  # the next line installs VRL-JAX where it is missing, on Colab for example
# !{sys.executable} -c 'import vrl_jax' 2>/dev/null || {sys.executable} -m pip install --quiet 'vrl-jax[train] @ git+https://github.com/OWNER/vrl-jax'

# %%
import os
import pathlib
import subprocess
import tempfile

import flax
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image, display

import vrl_jax

vrl_jax.prepare_devices(workers=8)  # call it before JAX is used; on a CPU: one virtual device per core
plt.rcParams.update({'figure.dpi': 110, 'font.size': 9})
QUICK = bool(os.environ.get('VRL_JAX_QUICK'))  # the tests run a shortened form

placement = vrl_jax.place_workers(workers=8)
print(f'{placement.workers} workers on {len(placement.devices)} device(s), {placement.workers_per_device} on each:')
print(*placement.devices, sep='\n')

# %% [markdown]
# ## The data
#
# `DATASET = 'mnist'` uses all 60,000 images. The cell downloads them first if they are missing (11 MB; TFDS prepares them if
# TensorFlow is installed, otherwise `DATA_DIR` gets the four original files). An epoch of the full data set takes fifteen
# times as long, so it is better to use an accelerator.

# %%
DATASET = 'mnist_5k'  # @param ["mnist_5k", "mnist"]
DATA_DIR = 'data'

if DATASET == 'mnist':
  command = [sys.executable, '-m', 'vrl_jax.tools.prepare_data', 'mnist', '--data_dir', DATA_DIR]
  done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
  print(done.stdout)
  assert done.returncode == 0, 'MNIST is missing; the reason is printed above'

# In the `demo` config the learning rate and the period are chosen so that a few minutes on few images show the effect;
# `figures/lenet_mnist` has the paper's settings (k = 20, γ = 0.005) for the full data set.
config = vrl_jax.load_config('demo' if DATASET == 'mnist_5k' else 'figures/lenet_mnist')
config.data_dir = DATA_DIR if DATASET == 'mnist' else None
task = vrl_jax.make_task(config)

shards = np.argsort(task.labels, kind='stable').reshape(8, -1)  # config.partition = 'by_class': sorted by label, then cut
fig, axes = plt.subplots(8, 1, figsize=(7.2, 4.4))
rng = np.random.default_rng(0)
for worker, (ax, shard) in enumerate(zip(axes, shards)):
  ax.imshow(np.hstack(task.train['input'][rng.choice(shard, 18)]), cmap='gray_r')
  ax.set_ylabel(f'worker {worker}', rotation=0, ha='right', va='center')
  ax.set(xticks=[], yticks=[])
  ax.spines[:].set_visible(False)
fig.suptitle('The data of each worker', y=0.95)
fig.subplots_adjust(hspace=0.05);
# %% [markdown]
# No worker has more than two of the ten digits. This is the paper's *non-identical* case, and the hard one for Local SGD.
#
# ## The comparison

# %%
if QUICK:
  config.epochs, config.eval_every, config.init_epochs = 2.0, 1.0, 0.0
  config.sweep = tuple(entry for entry in config.sweep if entry['name'] in ('Local SGD', 'VRL-SGD'))
workdir = pathlib.Path(tempfile.mkdtemp())  # choose another directory to keep the runs
vrl_jax.run_sweep(config, workdir);
# %%
for name in ('loss', 'accuracy'):
  display(Image(workdir / 'figures' / f'{name}.png', width=820))

# %% [markdown]
# Left: against epochs, VRL-SGD stays close to S-SGD while Local SGD lags behind. Right: the same curves against
# communications, the cost that matters on a slow network. S-SGD needs $k$ times as many for the same number of steps.
#
# The directory has `metrics.jsonl` and `config.json` for every run, and `report.html`, a single self-contained page.
#
# ## The model
#
# `export_model` writes the averaged model, here for NumPy; the other suffixes are `.msgpack` (flax), `.safetensors` and `.orbax`.
# A flax module with these parameters predicts with `module.apply({'params': params}, images)`.

# %%
vrl_jax.export_model(workdir / 'VRL-SGD', workdir / 'lenet.npz')

params = flax.traverse_util.unflatten_dict(dict(np.load(workdir / 'lenet.npz')), sep='/')
correct = task.metrics(params, task.frozen, task.test)['accuracy']
print({name: values['kernel'].shape for name, values in params.items()})
print(f'{100 * correct.mean():.2f} % of {len(correct)} test images')

# %% [markdown]
# ## Workers are not devices
#
# The same eight workers on one device and on all devices of this machine have the same trajectory, up to rounding.

# %%
short = vrl_jax.load_config('lenet_mnist')
short.dataset, short.data_dir = DATASET, config.data_dir
short.epochs, short.steps, short.init_epochs, short.period = None, 4 if QUICK else 20, 0.0, 2
losses = {}
for devices in sorted({1, len(placement.devices)}):
  short.devices = devices
  losses[devices] = vrl_jax.train_and_evaluate(short, workdir / f'devices={devices}')['train_loss']
print(losses)
assert np.allclose(list(losses.values()), losses[1], rtol=1e-4)

# %% [markdown]
# ## What to try next
#
# - A period three times as long, or `config.partition = 'dirichlet'`, or `'identical'` (then Local SGD does not drift).
# - `config.seeds = (0, 1, 2)`: three runs per algorithm, bands in the figures, mean ± standard deviation in the table.
# - `config.momentum = 0.9` with a tenth of the learning rate.
# - Interrupt the sweep and run the cell again with the same `workdir`: it resumes.
# - The same from a terminal: `python launch.py --config configs/demo.py`, or `vrl-jax --config demo` where the package is
#   installed.
