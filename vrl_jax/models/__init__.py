"""The models, as flax modules."""
