"""The data-parallel examples run, differ from synchronous SGD in two lines, and reach the same loss; the transformer trains."""

import json
import pathlib
import runpy

import jax
import pytest

import vrl_jax

EXAMPLES = pathlib.Path(__file__).parents[2] / 'examples'


@pytest.fixture(autouse=True)
def default_promotion():
  """JAX's defaults, as in a user's process, instead of those of conftest.py."""
  with jax.numpy_dtype_promotion('standard'), jax.numpy_rank_promotion('allow'):
    yield


def _plain(text):
  """The example with synchronous SGD, as its `# was:` comments say."""
  lines = []
  for line in text.splitlines():
    if '# was: ' in line:
      indent, was = line.split('# was: ')
      lines.append(indent + was)
    elif not line.strip().startswith('tx = vrl_jax.as_optax('):
      lines.append(line)
  return '\n'.join(lines) + '\n'


def _loss(path):
  return runpy.run_path(str(path))['main']()


def _with_local_sgd(text):
  return text.replace('vrl_jax.vrl_sgd(', 'vrl_jax.local_sgd(')


@pytest.mark.parametrize('example', ['flax_loop', 'nnx_loop'])
def test_two_lines_change_and_the_loss_is_the_same(example, tmp_path):
  text = (EXAMPLES / f'{example}.py').read_text()
  code = [line for line in text.splitlines() if '# was: ' not in line]
  plain = _plain(text)
  assert len(set(plain.splitlines()) ^ set(code)) == 3  # one line replaced, one removed
  losses = {}
  for name, source in {'plain': plain, 'vrl': text, 'local': _with_local_sgd(text)}.items():
    (tmp_path / f'{name}.py').write_text(source)
    losses[name] = _loss(tmp_path / f'{name}.py')
  assert abs(losses['vrl'] / losses['plain'] - 1) < 0.03
  assert losses['local'] > 1.08 * losses['plain']


@pytest.mark.parametrize('island', ['replicated', 'sharded'])
def test_the_transformer_trains_on_islands_as_on_single_devices(island, tmp_path):
  options = {'period': 2, 'steps': 4, 'epochs': None, 'eval_every': 0.125, 'texts': 256, 'blocks': 1}
  losses = {}
  for size in (1, 2):
    config = vrl_jax.load_config('examples/transformer.py')
    config.update(
      options | {'devices': 4 * size, 'devices_per_worker': size, 'island': island if size > 1 else 'replicated'}
    )
    vrl_jax.train_and_evaluate(config, tmp_path / str(size))
    lines = (tmp_path / str(size) / 'metrics.jsonl').read_text().splitlines()
    losses[size] = [json.loads(line)['train_loss'] for line in lines]
  assert len(losses[1]) > 2 and losses[1][-1] < losses[1][0]
  assert losses[2] == pytest.approx(losses[1], rel=1e-4)


def test_the_large_transformer_has_150_million_parameters():
  example = runpy.run_path(str(EXAMPLES / 'transformer.py'))
  config = example['get_config']('large')
  shapes = jax.eval_shape(lambda rng: example['init_params'](config, rng), jax.random.key(0))
  assert sum(x.size for x in jax.tree.leaves(shapes)) == 185_073_664
