"""The documentation: `make docs`."""

import importlib.metadata
import pathlib
import tomllib

_PROJECT = tomllib.loads(pathlib.Path(__file__).parents[1].joinpath('pyproject.toml').read_text())['project']

project = 'VRL-JAX'
author = 'the VRL-JAX authors'
copyright = f'2026, {author}'
release = importlib.metadata.version('vrl-jax')
extensions = [
  'myst_parser',
  'sphinx.ext.autodoc',
  'sphinx.ext.napoleon',
  'sphinx.ext.viewcode',
  'sphinx-mathjax-offline',
]
exclude_patterns = ['_build']
myst_enable_extensions = ['deflist', 'dollarmath']
myst_heading_anchors = 3
html_theme = 'furo'
html_title = f'VRL-JAX {release}'
html_static_path = ['_static']
html_css_files = ['custom.css']
html_theme_options = {
  'source_repository': _PROJECT['urls']['Repository'],
  'source_branch': 'main',
  'source_directory': 'docs/',
}
default_role = 'code'  # docstrings say `name`
autodoc_member_order = 'bysource'
autodoc_typehints = 'signature'
autodoc_typehints_format = 'short'
autodoc_preserve_defaults = True
add_module_names = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # signatures have the types
napoleon_use_rtype = False


def setup(app):
  """Generates the entries of the algorithms, so that a new algorithm needs none."""
  app.connect('source-read', _list_algorithms)


def _list_algorithms(app, docname, source):
  del app
  if docname == 'api/algorithms':
    import vrl_jax

    public = {name: getattr(vrl_jax, name) for name in dir(vrl_jax)}
    factories = [factory.__name__ for factory in vrl_jax.ALGORITHMS.values()]
    packages = {name: getattr(one, '__module__', '').split('.')[1:2] for name, one in public.items()}
    of_algorithms = [name for name, package in packages.items() if package == ['algorithms']]
    others = [name for name in of_algorithms if name not in (*factories, 'Algorithm', 'AXIS')]  # these have entries
    entries = {
      'FACTORY ENTRIES': [f'.. autofunction:: {name}' for name in factories],
      'COMBINATOR ENTRIES': [f'.. autofunction:: {name}' for name in others if name.islower()],
      'STATE ENTRIES': [f'.. autoclass:: {name}' for name in others if not name.islower()],
    }
    for place, lines in entries.items():
      source[0] = source[0].replace(place, '\n'.join(lines))
