"""The operating system: signals, standard streams, and files that are written atomically."""
