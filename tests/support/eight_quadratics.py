"""Eight noisy quadratics with momentum on four devices, with a checkpoint after every short round."""

from vrl_jax.config.fields import default_config


def get_config():
  config = default_config()
  config.task = 'quadratic'
  config.workers = 8
  config.devices = 4
  config.a = ()
  config.c = ()
  config.b = 1.0
  config.dimension = 5
  config.x0 = 1.0
  config.noise = 0.1
  config.batch_size = 1
  config.period = 4
  config.first_period = 1
  config.steps = 150
  config.learning_rate = 0.05
  config.schedule = 'linear'
  config.momentum = 0.5
  config.weight_decay = 0.01
  config.eval_every = 10.0
  config.checkpoint_every = 1
  return config
