"""What a log line says."""

from typing import Any

import jax

from vrl_jax.arrangement import first_copy
from vrl_jax.data.feed import eval_parts
from vrl_jax.evaluation import make_evaluator
from vrl_jax.experiment import Experiment
from vrl_jax.rounds import Model

_EVAL_CHUNK = 500  # examples a device evaluates at a time


class Measuring:
  """Evaluates models of one experiment.

  >>> import pathlib
  >>> from vrl_jax.config_files import load_config
  >>> from vrl_jax.experiment import make_experiment
  >>> experiment = make_experiment(load_config('quadratic'), pathlib.Path('.'))
  >>> line = Measuring(experiment).line(0, 0, experiment.arrangement.replicate(experiment.model))
  >>> line['train_loss'], line['distance_to_optimum'], line['communications']
  (30001.5, 1.0, 0)
  """

  def __init__(self, experiment: Experiment):
    """Puts the test set on the devices."""
    self._experiment = experiment
    self._evaluate = make_evaluator(experiment.task.metrics, experiment.arrangement)
    test = experiment.task.test
    self._train = experiment.feed.training_parts(_EVAL_CHUNK)
    self._test = None if test is None else list(eval_parts(test, experiment.arrangement, _EVAL_CHUNK))
    self._pick_step = experiment.arrangement.pmap(lambda models, t: jax.tree.map(lambda x: x[0, t], models))

  def line(self, step: int, rounds: int, model: Model, scalars: dict[str, float] | None = None) -> dict[str, Any]:
    """One log line, but for the time.

    Args:
      step: the steps done.
      rounds: how many whole rounds they are.
      model: the consensus model, a copy per device.
      scalars: what the engine measured in the round; at the start there is none.
    """
    experiment = self._experiment
    frozen = model.others(experiment.feed.supply.frozen)
    train = self._evaluate(model.params, frozen, self._train)
    test = {} if self._test is None else self._evaluate(model.params, frozen, self._test)
    at_start = dict.fromkeys(('step_loss', 'variance_among_workers', 'examples_per_second'))
    at_start |= {'consensus_distance': 0.0, 'correction_norm': 0.0}
    return {
      'step': step,
      'epoch': round(step / experiment.steps_per_epoch, 6),
      'communications': experiment.traffic.communications(step, rounds),
      'bytes_communicated': experiment.traffic.ring_bytes(step, rounds, experiment.arrangement.workers),
      **{f'train_{name}': value for name, value in train.items()},
      **{f'test_{name}': value for name, value in test.items()},
      **experiment.task.model_metrics(first_copy(model.params)),
      **(scalars or at_start),
    }

  def model_of_step(self, models: Model, t: int) -> Model:
    """The t-th of a traced round's consensus models."""
    return self._pick_step(models, self._experiment.arrangement.replicate(jax.numpy.int32(t)))
