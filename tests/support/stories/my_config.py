"""The appendix's quadratics with an optimizer and a schedule of one's own."""

import vrl_jax


def get_config():
  config = vrl_jax.load_config('quadratic')
  config.update(steps=40, log_every_step=False, optimizer='my_optimizers:scaled_sgd')
  config.update(schedule='my_optimizers:inverse_root', eval_every=20.0)
  config.optimizer_kwargs = {'scale': 0.5}
  config.schedule_kwargs = {'start': 'learning_rate', 'warmup': 20}
  return config
