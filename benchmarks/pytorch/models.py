"""The three models in PyTorch, as functions of their parameters, with the settings of the paper."""

import collections
import functools

import torch
import torch.nn.functional as F

VOCABULARY = 20_000


Task = collections.namedtuple('Task', 'shapes logits inputs classes batch period rate')


def lenet(params, images):
  k1, b1, k2, b2, *dense = params
  x = images.contiguous(memory_format=torch.channels_last)
  x = F.relu_(F.max_pool2d(F.conv2d(x, k1, b1), 2))
  x = F.relu_(F.max_pool2d(F.conv2d(x, k2, b2), 2))
  return perceptron(dense, x.flatten(1))


def textcnn(params, tokens):
  *convolutions, kernel, bias = params
  words = F.embedding(tokens, embedding_table()).transpose(1, 2).unsqueeze(2)  # [batch, 50, 1, time], channels last
  maps = [F.conv2d(words, k, b).amax((2, 3)) for k, b in zip(convolutions[::2], convolutions[1::2])]
  return F.linear(F.dropout(F.relu_(torch.cat(maps, 1)), 0.5), kernel, bias)


def perceptron(params, x):
  for kernel, bias in zip(params[:-2:2], params[1:-2:2]):
    x = F.relu_(F.linear(x, kernel, bias))
  return F.linear(x, params[-2], params[-1])


embedding_table = functools.cache(lambda: torch.randn(VOCABULARY, 50, generator=torch.Generator().manual_seed(0)))
with_biases = lambda *kernels: [shape for kernel in kernels for shape in (kernel, kernel[:1])]

TASKS = {
  'lenet': Task(
    shapes=with_biases((6, 1, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)),
    logits=lenet,
    inputs=lambda n, g: torch.randn(n, 1, 32, 32, generator=g),
    classes=10,
    batch=32,
    period=20,
    rate=0.005,
  ),
  'textcnn': Task(
    shapes=with_biases((100, 50, 1, 3), (100, 50, 1, 4), (100, 50, 1, 5), (14, 300)),
    logits=textcnn,
    inputs=lambda n, g: torch.randint(VOCABULARY, (n, 50), generator=g),
    classes=14,
    batch=64,
    period=50,
    rate=0.01,
  ),
  'mlp': Task(
    shapes=with_biases((1024, 2048), (200, 1024)),
    logits=perceptron,
    inputs=lambda n, g: torch.randn(n, 2048, generator=g),
    classes=200,
    batch=32,
    period=20,
    rate=0.025,
  ),
}
