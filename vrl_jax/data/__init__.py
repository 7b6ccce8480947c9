"""Data: sources (the user's files, TFDS, embedded), partition over workers, feeding."""
