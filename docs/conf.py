"""The documentation: `make docs`."""

project = 'VRL-JAX'
author = 'the VRL-JAX authors'
extensions = [
  'myst_parser',
  'sphinx.ext.autodoc',
  'sphinx.ext.napoleon',
  'sphinx.ext.viewcode',
  'sphinx-mathjax-offline',
]
exclude_patterns = ['_build']
myst_enable_extensions = ['dollarmath']
myst_heading_anchors = 3
html_theme = 'furo'
html_title = 'VRL-JAX'
default_role = 'code'  # docstrings say `name`
autodoc_member_order = 'bysource'
autodoc_typehints = 'signature'
autodoc_preserve_defaults = True
add_module_names = False
napoleon_use_ivar = True
napoleon_use_rtype = False


def setup(app):
  """Generates the entries of the algorithms on the API page, so that a new algorithm needs none."""
  app.connect('source-read', _list_algorithms)


def _list_algorithms(app, docname, source):
  del app
  if docname == 'api':
    import vrl_jax

    objects = {name: value for name, value in vars(vrl_jax).items() if name[0] != '_' and callable(value)}
    names = [name for name, value in objects.items() if value.__module__.startswith('vrl_jax.')]
    names.remove('Algorithm')  # it has its own entry
    functions = [f'.. autofunction:: {name}' for name in names if name.islower()]
    classes = [f'.. autoclass:: {name}' for name in names if not name.islower()]
    source[0] = source[0].replace('ALGORITHM ENTRIES', '\n'.join(functions + classes))
