"""Speed on XLA's CPU backend; only the sum of slices also runs on GPUs and TPUs. Trajectories change only by rounding.

- `worker_order`: the order in which the workers of a device compute, so that their data stay in the cache
- `tiled_updates`: the optimizer step of a large matrix tile by tile, so that its gradient stays in the cache
- `conv_pool`, `winograd`, `conv_form`: convolutions as matrix products, and the choice between them and XLA's
- `serial_dispatch`, `thread_pool`: one program at a time, and a thread pool of the right size
- `xla_flags`: flags of XLA, only those that this jaxlib knows
- `virtual_devices`: how many devices a CPU is divided into
- `sum_of_slices`: the sum over the workers of a device

docs/cpu.md explains each: what XLA does, what is done instead, what it gains, and how to switch it off.
"""
