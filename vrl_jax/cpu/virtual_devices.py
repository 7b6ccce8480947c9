"""How many virtual devices a CPU is divided into."""

import os


def default_cpu_devices(workers: int) -> int:
  """The number of virtual CPU devices for `workers`: the largest divisor of them that is at most the number of cores.

  `python -m benchmarks choices` on 2 cores, examples per second of 8 workers as 2 devices x 4, as 8 x 1 and as 1 x 8:
  LeNet 75,548, 64,600, 42,298; TextCNN 36,754, 31,979, 22,469; an MLP of 2.3 M parameters 29,134, 26,240, 16,050.

  >>> default_cpu_devices(workers=1), 6 % default_cpu_devices(workers=6)
  (1, 0)
  """
  return max(d for d in range(1, min(workers, os.cpu_count() or 1) + 1) if workers % d == 0)
