"""The peak of what an algorithm sends: the most bytes in any window of some local steps."""

from vrl_jax.algorithms.core.transfers import start_steps


def peak_bytes(per_round: float, period: int, window: int, *, fragments: int = 1, delay: int = 0) -> float:
  """The most bytes that a link has to carry in any `window` local steps.

  A transfer without a delay is carried at once. One that takes τ local steps is carried at a constant rate while it is under
  way, which is the slowest link that does not make the workers wait.

  Args:
    per_round: the bytes of a round.
    period: k.
    window: in local steps, at most k.
    fragments: F.
    delay: τ.

  >>> peak_bytes(4000, period=20, window=2), peak_bytes(4000, 20, 2, fragments=4)  # the model, and a quarter of it
  (4000.0, 1000.0)
  >>> peak_bytes(4000, 20, 2, fragments=4, delay=5)  # something is always under way: 2/20 of the model
  400.0
  """
  starts = start_steps(period, fragments)
  transfers = []  # first and last moment, of two rounds
  for start, following in zip(starts, [*starts[1:], period + starts[0]]):
    takes = min(delay, following - start)
    transfers += [(start, start + takes), (start + period, start + period + takes)]
  share = per_round / fragments

  def carried(begin):  # in (begin, begin + window]
    end, total = begin + window, 0.0
    for first, last in transfers:
      inside = max(0, min(last, end) - max(first, begin))
      total += share * (inside / (last - first) if last > first else begin < first <= end)
    return total

  edges = [edge for transfer in transfers for edge in transfer]
  return max(
    carried(begin) for edge in edges for begin in (edge - 1, edge, edge - window) if begin >= starts[0] - window
  )
