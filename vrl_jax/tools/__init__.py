"""Command-line tools: `python -m vrl_jax.tools.<name>`."""
