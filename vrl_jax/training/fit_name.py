"""The name of an algorithm that was given as an object."""

from vrl_jax.algorithms import ALGORITHMS, Algorithm


def name_of(algorithm: Algorithm) -> str:
  """The name of the function that made an algorithm, as far as its functions tell; else 'algorithm'.

  >>> import optax, vrl_jax
  >>> inner = optax.sgd(0.1)
  >>> name_of(vrl_jax.vrl_sgd(inner)), name_of(vrl_jax.local_sgd(inner)._replace(communicate=lambda *args: args))
  ('vrl_sgd', 'algorithm')
  """
  parts = [part for part in (algorithm.communicate, algorithm.transform.update) if hasattr(part, '__qualname__')]
  made_by = [part.__qualname__.split('.')[0] for part in parts if not part.__module__.startswith('optax.')]
  found = [name for name in made_by if name.isidentifier()]
  own = [name for name in found if name not in ALGORITHMS]
  return (own or found[::-1] or ['algorithm'])[0]
