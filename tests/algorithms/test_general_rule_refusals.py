"""What cannot be sent in fragments, with a delay or with few bits, is refused in one line."""

import jax.numpy as jnp
import optax
import pytest
from support.general_rule import plain

import vrl_jax

pytestmark = pytest.mark.usefixtures('x64')


@pytest.mark.parametrize(
  'algorithm',
  [
    vrl_jax.easgd(optax.sgd(0.1)),
    vrl_jax.s_sgd(optax.sgd(0.1)),
    vrl_jax.cocod_sgd(optax.sgd(0.1)),
    vrl_jax.d2(optax.sgd(0.1)),
    vrl_jax.extra(optax.sgd(0.1)),
    vrl_jax.vrl_sgd(optax.sgd(0.1, momentum=0.9), buffers='mean'),
    vrl_jax.local_sgd(optax.sgd(0.1, momentum=0.9), buffers='reset'),
    vrl_jax.scaffold(optax.sgd(0.1), participation=0.5),
    vrl_jax.precede(optax.clip(1.0), vrl_jax.vrl_sgd(optax.sgd(0.1))),
    vrl_jax.vrl_sgd(optax.sgd(0.1))._replace(communicate=lambda params, state: (params, state)),
    vrl_jax.with_outer_optimizer(vrl_jax.diloco(optax.sgd(0.1)), optax.sgd(1.0)),
  ],
)
@pytest.mark.parametrize(
  'combinator',
  [lambda a: vrl_jax.streaming(a, 2), lambda a: vrl_jax.overlapped(a, 2), lambda a: vrl_jax.quantised(a, 4)],
)
def test_refused_algorithms(algorithm, combinator):
  with pytest.raises(
    ValueError, match=r'^(streaming|overlapped|quantised) is not possible for this algorithm: only for'
  ):
    combinator(algorithm)


@pytest.mark.parametrize('fragments', [0, -1, 2.0, True, '2'])
def test_bad_fragments(fragments):
  with pytest.raises(ValueError, match=f'fragments={fragments!r}, must be an integer of at least 1'):
    vrl_jax.streaming(plain('vrl_sgd'), fragments)


def test_more_fragments_than_parameters():
  with pytest.raises(ValueError, match='fragments=8, must be at most the number of parameters, 3'):
    vrl_jax.streaming(plain('vrl_sgd'), 8).transform.init(jnp.zeros(3))


@pytest.mark.parametrize('delay', [-1, 1.0, True, None])
def test_bad_delays(delay):
  with pytest.raises(ValueError, match=f'delay={delay!r}, must be an integer of at least 0'):
    vrl_jax.overlapped(plain('vrl_sgd'), delay)


@pytest.mark.parametrize('bits', [2, 12, 4.5, True, '4'])
def test_bad_bits(bits):
  with pytest.raises(ValueError, match=f'bits={bits!r}, must be 4, 8, 16 or 32'):
    vrl_jax.quantised(plain('vrl_sgd'), bits)


def test_bad_blocks():
  with pytest.raises(ValueError, match='block=1, must be an integer of at least 2'):
    vrl_jax.quantised(plain('vrl_sgd'), 4, block=1)


def test_nonlinear_inner_optimizers_are_still_refused():
  with pytest.raises(ValueError, match='not linear in the gradient'):
    vrl_jax.streaming(vrl_jax.vrl_sgd(optax.sign_sgd(0.1)), 2).transform.init(jnp.zeros(3))


def test_an_outer_optimizer_after_streaming_is_refused():
  with pytest.raises(ValueError, match='with_outer_optimizer must come before streaming'):
    vrl_jax.with_outer_optimizer(vrl_jax.streaming(plain('vrl_sgd'), 2), optax.sgd(1.0))
