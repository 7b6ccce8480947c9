"""CoCoD-SGD: numbers by hand, and the overlap of its all-reduce with the local steps."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import family, family_reference, quadratics

import vrl_jax
from vrl_jax.accounting.hlo import collectives
from vrl_jax.algorithms.core.axes import AXES


def test_by_hand():
  # γ = 0.5, two steps of the gradients 2 and 6 a period: the workers move by -2 and -6.
  # Period 1: the means at the start are 0, so -2 and -6. Period 2: -4 + (-2), -4 + (-6). Period 3: -8 + ...
  algorithm = vrl_jax.cocod_sgd(optax.sgd(0.5), axis_name='w')
  models, state = family.run_rounds(algorithm, [jnp.array([2.0, 6.0])] * 2, 3, jnp.zeros(2))
  np.testing.assert_array_equal(models, [[-2, -6], [-6, -10], [-10, -14]])
  np.testing.assert_array_equal(state.start, models[-1])


def test_against_numpy():
  with jax.enable_x64(True):
    algorithm = vrl_jax.cocod_sgd(family.falling_sgd(), axis_name='w')
    models, evaluated, _ = family.run(algorithm)
    expected = family_reference.cocod_sgd(family.PROBLEM, family.rate, family.LENGTHS, family.X0)
    np.testing.assert_allclose(models, expected, atol=1e-12)
    np.testing.assert_allclose(evaluated[:, 3], expected.mean(axis=1), atol=1e-12)


@pytest.mark.parametrize(('name', 'waits'), [('cocod_sgd', False), ('local_sgd', True), ('vrl_sgd', True)])
def test_whether_the_all_reduce_depends_on_the_local_steps(name, waits):
  algorithm = vrl_jax.ALGORITHMS[name](optax.sgd(0.03, momentum=0.5), axis_name=AXES)
  engine = quadratics.make_engine(algorithm, family.PROBLEM, devices=2, dtype=np.float32)
  state, items = engine.init(quadratics.start(family.X0, np.float32)), quadratics.items(engine, 3, 2)
  program = engine.lower('run', state, items, engine.placement.replicate(np.int32(2))).compile().as_text()
  found = collectives(program)
  assert sum(c.bytes for c in found) == 4 * quadratics.DIMENSION
  assert {(c.op, c.loops, c.needs_loop) for c in found} == {('all-reduce', 1, waits)}
  if not waits:  # it is also scheduled before the scan
    body = next(part for part in program.split('\n\n') if ' all-reduce(' in part)
    assert body.index(' all-reduce(') < re.search(r' (while|call)\(', body).start()  # JAX 0.12 wraps the loop in a call
