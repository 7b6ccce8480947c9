"""The order of the package's rooms: each imports only itself and those before it."""

ROOMS = (
  'errors',
  'system',
  'jaxprs',
  'cluster',
  'cpu',
  'algorithms',
  'data',
  'models',
  'engine',
  'config',
  'tasks',
  'accounting',
  'report',
  'training',
  'cli',
  'tools',
)
