"""The data-parallel examples run, differ from synchronous SGD in two lines, and reach the same loss."""

import pathlib
import runpy

import jax
import pytest

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
