"""Preparing data sets with TensorFlow Datasets (TFDS) and reading them without TensorFlow."""
