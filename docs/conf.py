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
  """Lists all that `vrl_jax` exports, so that a new algorithm has its entry by itself."""
  app.connect('source-read', _list_public_names)


def _list_public_names(app, docname, source):
  del app
  if docname == 'api':
    import vrl_jax

    public = [(name, value) for name, value in vars(vrl_jax).items() if not name.startswith('_') and callable(value)]
    public = [name for name, value in public if name != 'Algorithm' and value.__module__.startswith('vrl_jax')]
    functions = [f'.. autofunction:: {name}' for name in public if name.islower()]
    classes = [f'.. autoclass:: {name}' for name in public if not name.islower()]
    source[0] = source[0].replace('PUBLIC NAMES', '\n'.join(functions + classes))
