"""Somebody else's loops in flax, linen and NNX: they run, differ from the plain ones in two lines, and train as well."""

import pathlib
import runpy

import jax
import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / 'examples'


@pytest.fixture(autouse=True)
def as_anybody_has_it():
  with jax.numpy_dtype_promotion('standard'), jax.numpy_rank_promotion('allow'):
    yield


def _plain(text):
  """The loop before the change."""
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
def test_two_lines_change_and_the_loss_does_not(example, tmp_path):
  text = (EXAMPLES / f'{example}.py').read_text()
  code = [line for line in text.splitlines() if '# was: ' not in line]
  plain = _plain(text)
  assert len(set(plain.splitlines()) ^ set(code)) == 3  # one line replaced, one gone
  losses = {}
  for name, source in {'plain': plain, 'vrl': text, 'local': _with_local_sgd(text)}.items():
    (tmp_path / f'{name}.py').write_text(source)
    losses[name] = _loss(tmp_path / f'{name}.py')
  assert abs(losses['vrl'] / losses['plain'] - 1) < 0.03
  assert losses['local'] > 1.08 * losses['plain']
