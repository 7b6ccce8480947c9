"""The metrics of one log line."""

from typing import Any

import jax

from vrl_jax.engine.evaluation import eval_parts, make_evaluator
from vrl_jax.engine.placement import first_copy
from vrl_jax.engine.state import Model
from vrl_jax.training.experiment import Experiment

_EVAL_CHUNK = 500  # examples that a device evaluates at a time


class Evaluator:
  """Evaluates the models of one experiment.

  >>> import pathlib
  >>> from vrl_jax.config.files import load_config
  >>> from vrl_jax.training.experiment import make_experiment
  >>> experiment = make_experiment(load_config('quadratic'), pathlib.Path('.'))
  >>> line = Evaluator(experiment).log_line(0, 0, experiment.placement.replicate(experiment.model))
  >>> line['train_loss'], line['distance_to_optimum'], line['communications']
  (30001.5, 1.0, 0)
  """

  def __init__(self, experiment: Experiment):
    """Transfers the test set to the devices."""
    self._experiment = experiment
    self._evaluate = make_evaluator(
      experiment.task.metrics, experiment.placement, weighted=experiment.partition.is_unequal
    )
    test = experiment.task.test
    self._train = experiment.feed.training_parts(_EVAL_CHUNK)
    self._test = None if test is None else list(eval_parts(test, experiment.placement, _EVAL_CHUNK))
    constrain = experiment.placement.constrain
    self._pick_step = experiment.placement.pmap(lambda models, t: constrain(jax.tree.map(lambda x: x[0, t], models)))

  def log_line(self, step: int, rounds: int, model: Model, scalars: dict[str, float] | None = None) -> dict[str, Any]:
    """One log line, without the time.

    Args:
      step: the number of steps done.
      rounds: the number of complete rounds in them.
      model: the consensus model, one copy per device or island.
      scalars: the engine's measurements in the round; None at step 0.
    """
    experiment = self._experiment
    frozen = model.constants(experiment.feed.supply.frozen)
    train = self._evaluate(model.params, frozen, self._train)
    test = {} if self._test is None else self._evaluate(model.params, frozen, self._test)
    at_start = dict.fromkeys(('step_loss', 'variance_among_workers', 'examples_per_second'))
    at_start |= {'consensus_distance': 0.0, 'correction_norm': 0.0}
    return {
      'step': step,
      'epoch': round(step / experiment.steps_per_epoch, 6),
      'communications': experiment.traffic.communications(step, rounds),
      'bytes_communicated': experiment.traffic.ring_bytes(step, rounds, experiment.placement.workers),
      **{f'train_{name}': value for name, value in train.items()},
      **{f'test_{name}': value for name, value in test.items()},
      **experiment.task.model_metrics(first_copy(model.params)),
      **(scalars or at_start),
    }

  def model_at_step(self, models: Model, t: int) -> Model:
    """The consensus model after step t of a traced round."""
    return self._pick_step(models, self._experiment.placement.replicate(jax.numpy.int32(t)))
