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
# The paper's comparison on real digits: LeNet, **eight workers**, the classes divided among them, every algorithm from the same
# start. The workers need not be eight devices: they run on whatever is here, one CPU, one GPU or eight TPU cores, and
# the result is the same.
#
# By default it uses 5,000 MNIST images that come with a Python package, so it needs no download, and takes a few minutes
# on a laptop. There is a switch for the full data set below.

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
import os
import tempfile

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image, display

import vrl_jax
from vrl_jax.arrangement import arrange
from vrl_jax.config_files import load_config
from vrl_jax.data.mnist import load_mnist, load_mnist_5k
from vrl_jax.data.partition import by_class
from vrl_jax.report import style
from vrl_jax.sweep import run_sweep
from vrl_jax.tools import prepare_data
from vrl_jax.train import train_and_evaluate

vrl_jax.devices.prepare(workers=8)  # before anything touches JAX: on a CPU, one virtual device per core
vrl_jax.devices.use_compilation_cache()  # the second run starts at once
plt.rcParams.update(style.RC | {'figure.dpi': 110, 'font.size': 9})
QUICK = bool(os.environ.get('VRL_JAX_QUICK'))  # the project's tests run a shortened form

spread = arrange(workers=8)
print(f'{spread.workers} workers on {len(spread.devices)} device(s), {spread.workers_per_device} on each:')
print(*spread.devices, sep='\n')

# %% [markdown]
# ## The data
#
# `DATASET = 'mnist'` takes all 60,000 images. If they are not on this machine yet, the cell downloads them first (11 MB; with TensorFlow
# installed they are prepared by TFDS, otherwise the four original files are kept in `DATA_DIR`). Full MNIST takes an accelerator or
# patience: an epoch of it is fifteen times the work.

# %%
DATASET = 'mnist_5k'  # @param ["mnist_5k", "mnist"]
DATA_DIR = 'data'

if DATASET == 'mnist':
  assert prepare_data.main(['mnist', '--data_dir', DATA_DIR]) == 0, 'without MNIST it ends here; the reason is above'
train = (load_mnist(DATA_DIR) if DATASET == 'mnist' else load_mnist_5k()).train

shards = by_class(train['label'], 8).shards
fig, axes = plt.subplots(8, 1, figsize=(7.2, 4.4))
rng = np.random.default_rng(0)
for worker, (ax, shard) in enumerate(zip(axes, shards)):
  ax.imshow(np.hstack(train['image'][rng.choice(shard, 18)]), cmap='gray_r')
  ax.set_ylabel(f'worker {worker}', rotation=0, ha='right', va='center')
  ax.set(xticks=[], yticks=[])
  ax.spines[:].set_visible(False)
fig.suptitle('What each worker sees', y=0.95)
fig.subplots_adjust(hspace=0.05);
# %% [markdown]
# No worker sees more than two of the ten digits: this is the paper's *non-identical* case, and the hard one for Local SGD.
#
# ## The comparison
#
# In the `demo` config the rate and the period are chosen so that the effect is plain after a few minutes on few images;
# `figures/lenet_mnist` has the paper's own settings ($k = 20$, $\gamma = 0.005$) and is meant for the full data set.

# %%
config = load_config('demo' if DATASET == 'mnist_5k' else 'figures/lenet_mnist')
config.data_dir = DATA_DIR if DATASET == 'mnist' else None
if QUICK:
  config.epochs, config.eval_every, config.init_epochs = 2.0, 1.0, 0.0
  config.sweep = tuple(entry for entry in config.sweep if entry['name'] in ('Local SGD', 'VRL-SGD'))
workdir = pathlib.Path(tempfile.mkdtemp())  # a folder of your own keeps the runs
run_sweep(config, workdir);
# %%
for name in ('loss', 'accuracy'):
  display(Image(workdir / 'figures' / f'{name}.png', width=820))

# %% [markdown]
# Left: against epochs, VRL-SGD stays close to S-SGD while Local SGD lags behind. Right: the same curves against what really costs when workers
# are far apart: S-SGD needs $k$ times the communications for the same number of steps.
#
# The folder holds everything in readable files: `metrics.jsonl` and `config.json` of every run, and `report.html`, one page to open in a
# browser or to send to somebody.
#
# ## Workers are not devices
#
# The same eight workers on one device and on all devices that are here: one algorithm, one trajectory, up to rounding.

# %%
short = load_config('lenet_mnist')
short.dataset, short.data_dir = DATASET, config.data_dir
short.epochs, short.steps, short.init_epochs, short.period = None, 4 if QUICK else 20, 0.0, 2
losses = {}
for devices in sorted({1, len(spread.devices)}):
  short.devices = devices
  losses[devices] = train_and_evaluate(short, workdir / f'on {devices}')['train_loss']
print(losses)
assert np.allclose(list(losses.values()), losses[1], rtol=1e-4)

# %% [markdown]
# ## What to try next
#
# - A period three times as long, or `config.partition = 'dirichlet'`, or `'identical'` (then Local SGD has nothing to suffer from).
# - `config.seeds = (0, 1, 2)`: every algorithm three times, bands in the figures, mean ± deviation in the table.
# - `config.momentum = 0.9` with a tenth of the learning rate.
# - Stop the sweep in the middle and run the cell again with the same `workdir`: it goes on where it was.
# - The same from a terminal: `python launch.py --config configs/demo.py`, or `vrl-jax --config demo` where the package is installed.
