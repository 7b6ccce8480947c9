"""Sub-jaxprs. JAX has a public function for them since 0.10; this one works with JAX 0.8, too."""

from collections.abc import Iterator

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn


def jaxprs_in(equation: JaxprEqn) -> Iterator[Jaxpr]:
  """The jaxprs among an equation's parameters, such as the body of a scan or the branches of a cond.

  >>> import jax
  >>> jaxpr = jax.make_jaxpr(lambda x: jax.lax.cond(x > 0, jax.numpy.sin, jax.numpy.cos, x))(1.0)
  >>> [[inner.primitive.name for inner in branch.eqns] for branch in jaxprs_in(jaxpr.eqns[-1])]
  [['cos'], ['sin']]
  """
  for value in equation.params.values():
    for one in value if isinstance(value, tuple) else (value,):
      if isinstance(one, ClosedJaxpr):
        yield one.jaxpr
      elif isinstance(one, Jaxpr):
        yield one
