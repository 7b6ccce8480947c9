"""Data sets, their partition among the workers, and the index stream of the batches."""
