"""A transformer as a task of one's own: workers that are islands of several devices, and models larger than a device.

python launch.py --config examples/transformer.py --config.devices_per_worker=2 --config.island=sharded --workdir runs/transformer

Four workers learn texts that count in steps of different sizes; on a CPU, with virtual devices. `:large` has 185 million
parameters. It can be compiled for accelerators that are not attached:

python -m vrl_jax.tools.compile_for --config examples/transformer.py:large --config.devices_per_worker=4 --config.island=sharded --topology v5e:2x4
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import vrl_jax
from vrl_jax.tasks import Field, Role, integer, loss_task

FIELDS = (
  Field('vocabulary', 32, int, Role.PROBLEM, 'number of tokens', integer(2)),
  Field('length', 16, int, Role.PROBLEM, 'tokens of a text', integer(2)),
  Field('width', 32, int, Role.PROBLEM, 'numbers of a token, a multiple of `heads`', integer(1)),
  Field('heads', 4, int, Role.PROBLEM, 'heads of the attention', integer(1)),
  Field('blocks', 2, int, Role.PROBLEM, 'blocks of attention and perceptron', integer(1)),
  Field('texts', 1024, int, Role.PROBLEM, 'number of texts', integer(1)),
)
STRIDES = 8
LARGE = {'vocabulary': 32768, 'length': 512, 'width': 1024, 'heads': 16, 'blocks': 12, 'compute_dtype': 'bfloat16'}


def get_config(size='small'):
  """Four workers; `:large` is as large as a small GPT."""
  config = vrl_jax.task_config('examples.transformer:make_task')
  config.update(workers=4, period=5, batch_size=8, learning_rate=0.1, momentum=0.9, clip_norm=1.0, epochs=5.0)
  config.update(LARGE if size == 'large' else {})
  return config


def make_task(config):
  """Texts that count, and a decoder."""
  rng = np.random.default_rng(config.seed)
  stride = np.arange(config.texts) % STRIDES
  start = rng.integers(config.vocabulary, size=(config.texts, 1))
  texts = (start + (1 + stride[:, None]) * np.arange(config.length + 1)) % config.vocabulary
  names = [f'by {1 + number}' for number in range(STRIDES)]
  init = lambda rng: init_params(config, rng)
  loss = lambda params, texts: losses(config.heads, params, texts)
  return loss_task(loss, init, texts.astype(np.int32), labels=stride, class_names=names)


def init_params(config, rng):
  """The parameters."""
  width = config.width
  shapes = {'qkv': (width, 3 * width), 'out': (width, width), 'up': (width, 4 * width), 'down': (4 * width, width)}
  keys = iter(jax.random.split(rng, 2 + config.blocks * len(shapes)))
  normal = lambda shape: jax.random.normal(next(keys), shape) * shape[0] ** -0.5
  blocks = [{name: normal(shape) for name, shape in shapes.items()} for _ in range(config.blocks)]
  embedding = jax.random.normal(next(keys), (config.vocabulary, width)) * width**-0.5
  return {'embedding': embedding, 'positions': normal((config.length, width)), 'blocks': blocks}


def losses(heads, params, texts):
  """The mean cross-entropy of the next token, for each text."""
  x = params['embedding'][texts[:, :-1]] + params['positions'][None]
  for block in params['blocks']:
    # The activations inside of a block are computed again for the gradient, instead of kept.
    x = jax.checkpoint(apply_block, static_argnums=0)(heads, block, x)
  logits = (normalised(x) @ params['embedding'].T).astype(jnp.float32)
  return optax.softmax_cross_entropy_with_integer_labels(logits, texts[:, 1:]).mean(axis=1)


def apply_block(heads, block, x):
  """Causal attention and a perceptron, each added to its input."""
  projected = (normalised(x) @ block['qkv']).reshape(*x.shape[:2], heads, -1)
  attended = jax.nn.dot_product_attention(*jnp.split(projected, 3, axis=-1), is_causal=True)
  x = x + attended.reshape(x.shape) @ block['out']
  return x + jax.nn.gelu(normalised(x) @ block['up']) @ block['down']


def normalised(x):
  """Vectors of mean square 1."""
  square = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
  return x * jax.lax.rsqrt(square + 1e-6).astype(x.dtype)
