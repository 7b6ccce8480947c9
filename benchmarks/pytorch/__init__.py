"""The same training in PyTorch, to compare speeds."""
