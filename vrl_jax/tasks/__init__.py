"""The tasks, one module each; see `vrl_jax.tasks.task.Task`."""
