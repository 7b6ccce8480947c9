"""The models: their parameters, and the equality of both forms of the convolution."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vrl_jax.cpu import conv_pool
from vrl_jax.cpu.conv_form import choose_form
from vrl_jax.models.lenet import LeNet
from vrl_jax.models.mlp import MLP
from vrl_jax.models.textcnn import TextCNN

VOCABULARY = 30


class PlainLeNet(nn.Module):
  """LeNet made of flax layers."""

  @nn.compact
  def __call__(self, x):
    for features in (6, 16):
      x = nn.max_pool(nn.relu(nn.Conv(features, (5, 5), padding='VALID')(x)), (2, 2), (2, 2))
    x = x.reshape(x.shape[0], -1)
    for features in (120, 84):
      x = nn.relu(nn.Dense(features)(x))
    return nn.Dense(10)(x)


def images(batch, dtype=jnp.float32, seed=0):
  x = np.random.RandomState(seed).randn(batch, 32, 32, 1)
  x[:, :8] = x[:, :, -8:] = -0.4242  # a constant border as in MNIST, where max-pools see equal values
  return jnp.asarray(x, dtype)


def tokens(batch, seed=0):
  x = np.random.RandomState(seed).randint(1, VOCABULARY, (batch, 50))
  x[:, 30:] = 0  # padding, where windows are equal
  x[0, :10] = 7
  return jnp.asarray(x, jnp.int32)


def embedding(dtype=jnp.float32):
  table = np.random.RandomState(5).randn(VOCABULARY, 50)
  table[0] = 0
  return {'embedding': jnp.asarray(table, dtype)}


def random_params(model, x, seed=0):
  """Random parameters of a plausible size, also for the biases; faster than compiling `init`."""
  random = np.random.RandomState(seed)
  draw = lambda leaf: jnp.asarray(random.randn(*leaf.shape) * max(np.prod(leaf.shape[:-1]), 9) ** -0.5, leaf.dtype)
  return jax.tree.map(draw, jax.eval_shape(model.init, jax.random.key(0), x)['params'])


@functools.cache
def lenet_params(seed=0):
  return random_params(LeNet(), images(1), seed)


@functools.cache
def textcnn_params(seed=0):
  return random_params(TextCNN(), tokens(1), seed)


@functools.cache
def compiled_loss_and_grads(model):
  """One jitted function per model, so that tests with the same shapes share a compilation."""

  def loss(params, x, labels, constants):
    logits = model.apply({'params': params} | ({'constants': constants} if constants else {}), x)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), logits

  return jax.jit(jax.value_and_grad(loss, has_aux=True))


def loss_and_grads(model, params, x, labels, constants=None):
  """The loss, the logits and the gradient, from one compiled program."""
  return compiled_loss_and_grads(model)(params, x, labels, constants)


def shapes(params):
  return jax.tree.map(lambda x: x.shape, params)


def count(params):
  return sum(x.size for x in jax.tree.leaves(params))


def assert_close(a, b, tolerance):
  """Compares leaf by leaf, relative to the largest element of the leaf where that exceeds 1."""
  atol = lambda y: tolerance * max(1, np.abs(y).max())
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=atol(y)), a, b)


def test_lenet_parameters():
  params = lenet_params()
  assert count(params) == 61_706
  assert shapes(params) == {
    'Conv_0': {'kernel': (5, 5, 1, 6), 'bias': (6,)},
    'Conv_1': {'kernel': (5, 5, 6, 16), 'bias': (16,)},
    'Dense_0': {'kernel': (400, 120), 'bias': (120,)},
    'Dense_1': {'kernel': (120, 84), 'bias': (84,)},
    'Dense_2': {'kernel': (84, 10), 'bias': (10,)},
  }


def test_textcnn_parameters():
  params = textcnn_params()
  assert count(params) == sum(width * 50 * 100 + 100 for width in (3, 4, 5)) + 300 * 14 + 14
  assert shapes(params)['Conv_1'] == {'kernel': (4, 50, 100), 'bias': (100,)}
  assert set(params) == {'Conv_0', 'Conv_1', 'Conv_2', 'Dense_0'}  # the word vectors are not parameters


def test_mlp_parameters():
  params = jax.eval_shape(MLP().init, jax.random.key(0), jnp.zeros((1, 2048)))['params']
  assert count(params) == 2048 * 1024 + 1024 + 1024 * 200 + 200
  deep = jax.eval_shape(MLP(num_classes=3, hidden=(7, 5)).init, jax.random.key(0), jnp.zeros((1, 4)))['params']
  assert count(deep) == 4 * 7 + 7 + 7 * 5 + 5 + 5 * 3 + 3


def test_initial_parameters_equal_those_of_flax_layers():
  initial = lambda model: jax.jit(model.init)(jax.random.key(3), images(1))['params']
  jax.tree.map(np.testing.assert_array_equal, initial(LeNet(conv_form='patches')), initial(PlainLeNet()))


@pytest.mark.parametrize('form', ['xla', 'patches'])
@pytest.mark.parametrize('batch', [1, 32])
def test_lenet_forms_agree_with_flax_layers(form, batch):
  x, labels = images(batch), jnp.arange(batch) % 10
  expected = loss_and_grads(PlainLeNet(), lenet_params(), x, labels)
  assert_close(loss_and_grads(LeNet(conv_form=form), lenet_params(), x, labels), expected, 2e-6)


def test_lenet_forms_agree_with_batch_norm():
  """The logits in training, the new statistics, and the logits in evaluation."""
  x, results = images(6), []
  for form in ('xla', 'patches'):
    model = LeNet(conv_form=form, batch_norm=True)
    variables = jax.eval_shape(model.init, jax.random.key(0), x)
    ones = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), variables['batch_stats'])
    params = random_params(model, x)
    train = jax.jit(functools.partial(model.apply, train=True, mutable=['batch_stats']))
    logits, new = train({'params': params, 'batch_stats': ones}, x)
    results.append((logits, new, jax.jit(model.apply)({'params': params, **new}, x)))
  assert {name for name in results[0][1]['batch_stats']} == {f'BatchNorm_{i}' for i in range(4)}
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), *results)


def test_lenet_forms_agree_on_a_large_batch():
  x = images(conv_pool._CHEAP_IDENTITY + 1)  # transposed instead of multiplied
  logits = [jax.jit(LeNet(conv_form=form).apply)({'params': lenet_params()}, x) for form in ('xla', 'patches')]
  assert_close(*logits, 2e-6)


@pytest.mark.parametrize('length', [50, 5])
def test_textcnn_forms_agree(length):
  x, labels = tokens(8)[:, :length], jnp.arange(8) % 14
  results = [
    loss_and_grads(TextCNN(conv_form=form), textcnn_params(), x, labels, embedding()) for form in ('xla', 'patches')
  ]
  assert_close(*results, 2e-6)


def test_textcnn_forms_agree_for_other_widths():
  for widths in [(2,), (7, 3, 3)]:
    model = TextCNN(widths=widths, features=6)
    params = random_params(model, tokens(1))
    forms = [model.clone(conv_form=form) for form in ('xla', 'patches')]
    variables = {'params': params, 'constants': embedding()}
    assert_close(*(jax.jit(form.apply)(variables, tokens(4)) for form in forms), 2e-6)


@pytest.mark.parametrize('task', ['lenet', 'textcnn'])
def test_forms_agree_in_float64(task):
  single = lenet_params() if task == 'lenet' else textcnn_params()  # flax cannot make them with x64 enabled
  with jax.enable_x64(True):
    as_double = functools.partial(jax.tree.map, lambda x: jnp.asarray(np.asarray(x), jnp.float64))
    labels = jnp.arange(6, dtype=jnp.int32) % 10
    if task == 'lenet':
      model, inputs = LeNet, (images(6, jnp.float64), labels)
    else:
      model, inputs = TextCNN, (tokens(6), labels, embedding(jnp.float64))
    results = [loss_and_grads(model(conv_form=form), as_double(single), *inputs) for form in ('xla', 'patches')]
    assert all(x.dtype == jnp.float64 for x in jax.tree.leaves(results[1]))
    assert_close(*results, 1e-12)


@pytest.mark.parametrize('task', ['lenet', 'textcnn'])
def test_forms_agree_under_vmap_over_workers(task):
  labels = jnp.arange(12).reshape(3, 4) % 10
  if task == 'lenet':
    model, x, params, constants = LeNet, images(12).reshape(3, 4, 32, 32, 1), lenet_params, None
  else:
    model, x, params, constants = TextCNN, tokens(12).reshape(3, 4, 50), textcnn_params, embedding()
  workers = [params(seed) for seed in range(3)]
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *workers)
  form = functools.partial(loss_and_grads, model(conv_form='patches'), constants=constants)
  mapped = jax.vmap(lambda p, x, y: form(p, x, y))(stacked, x, labels)
  for i, worker in enumerate(workers):
    alone = loss_and_grads(model(conv_form='xla'), worker, x[i], labels[i], constants)
    assert_close(jax.tree.map(lambda leaf, i=i: leaf[i], mapped), alone, 2e-6)


@pytest.mark.parametrize('form', ['xla', 'patches'])
@pytest.mark.parametrize('task', ['lenet', 'textcnn', 'mlp'])
def test_permuting_the_batch_permutes_the_logits(task, form):
  order = np.random.RandomState(2).permutation(9)
  if task == 'lenet':
    apply, x = functools.partial(LeNet(conv_form=form).apply, {'params': lenet_params()}), images(9)
  elif task == 'textcnn':
    variables = {'params': textcnn_params(), 'constants': embedding()}
    apply, x = functools.partial(TextCNN(conv_form=form).apply, variables), tokens(9)
  else:
    model, x = MLP(num_classes=4, hidden=(16,)), images(9).reshape(9, -1)
    apply = functools.partial(model.apply, model.init(jax.random.key(0), x))
  apply = jax.jit(apply)
  assert_close(apply(x[order]), apply(x)[order], 1e-6)


@pytest.mark.parametrize('form', ['xla', 'patches'])
def test_dropout_is_only_in_training_and_reproducible(form):
  model, variables, x = TextCNN(conv_form=form), {'params': textcnn_params(), 'constants': embedding()}, tokens(4)
  apply = jax.jit(model.apply, static_argnames='train')
  train = lambda seed: apply(variables, x, train=True, rngs={'dropout': jax.random.key(seed)})
  np.testing.assert_array_equal(train(1), train(1))
  assert np.abs(train(1) - train(2)).max() > 1e-3
  np.testing.assert_array_equal(apply(variables, x), apply(variables, x))
  assert np.abs(train(1) - apply(variables, x)).max() > 1e-3
  without = model.clone(dropout_rate=0.0)
  assert_close(jax.jit(without.apply, static_argnames='train')(variables, x, train=True), apply(variables, x), 1e-6)


def test_dropout_does_not_depend_on_the_form():
  variables, rngs = {'params': textcnn_params(), 'constants': embedding()}, {'dropout': jax.random.key(4)}
  apply = lambda form: jax.jit(TextCNN(conv_form=form).apply, static_argnames='train')
  assert_close(*(apply(form)(variables, tokens(4), train=True, rngs=rngs) for form in ('xla', 'patches')), 2e-6)


@pytest.mark.parametrize('form', ['xla', 'patches'])
def test_results_are_float32(form):
  results = [
    loss_and_grads(LeNet(conv_form=form), lenet_params(), images(2), jnp.arange(2)),
    loss_and_grads(TextCNN(conv_form=form), textcnn_params(), tokens(2), jnp.arange(2), embedding()),
  ]
  assert {x.dtype for x in jax.tree.leaves(results)} == {jnp.dtype('float32')}
  assert not any(x.weak_type for x in jax.tree.leaves(results))


@pytest.mark.parametrize(('kind', 'form'), [('cpu', 'patches'), ('TPU v5 lite', 'xla'), ('NVIDIA H100', 'xla')])
def test_the_form_is_that_of_the_devices_of_the_program(kind, form):
  platform = (
    {'platform': 'any'} if 'platform' in jax.sharding.AbstractDevice.__annotations__ else {}
  )  # since JAX 0.10.1
  device = jax.sharding.AbstractDevice(device_kind=kind, num_cores=1, **platform)
  with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((2,), ('x',), abstract_device=device)):
    assert (choose_form('auto'), choose_form('patches')) == (form, 'patches')
    program = str(jax.make_jaxpr(LeNet().apply)({'params': lenet_params()}, images(1)))
  assert ('conv_general_dilated' in program) == (form == 'xla')


@pytest.mark.parametrize('batch_norm', [False, True])
def test_a_mapped_program_has_the_form_of_its_devices(batch_norm):
  model = LeNet(batch_norm=batch_norm)
  variables = jax.eval_shape(model.init, jax.random.key(0), images(1))
  apply = jax.pmap(model.apply, in_axes=(None, 0))
  assert 'conv_general_dilated' not in str(jax.make_jaxpr(apply)(variables, jnp.zeros((2, 1, 32, 32))))


@pytest.mark.parametrize('platform', ['cpu', 'tpu', 'cuda'])
@pytest.mark.parametrize('model', ['lenet', 'textcnn'])
def test_an_exported_program_has_the_form_of_its_platform(model, platform):
  if model == 'lenet':
    args = LeNet(), {'params': lenet_params()}, images(1)
  else:
    args = TextCNN(), {'params': textcnn_params(), 'constants': embedding()}, tokens(1)
  exported = jax.export.export(jax.jit(args[0].apply), platforms=[platform])(*args[1:])
  assert ('stablehlo.convolution' in exported.mlir_module()) == (platform != 'cpu')


def test_the_choice_when_the_program_is_lowered_can_be_differentiated():
  x, labels = images(2), jnp.arange(2)
  results = [loss_and_grads(LeNet(conv_form=form), lenet_params(), x, labels) for form in ('auto', 'patches')]
  assert_close(*results, 1e-6)


def test_an_invalid_form_or_image_size_raises():
  with pytest.raises(ValueError, match="conv_form='fft', must be one of .*patches"):
    LeNet(conv_form='fft').init(jax.random.key(0), images(1))
  with pytest.raises(ValueError, match='30x32.*conv_form="xla"'):
    LeNet(conv_form='patches').init(jax.random.key(0), jnp.zeros((1, 30, 32, 1)))


@pytest.mark.parametrize(
  'model, inputs, message',
  [
    (LeNet(), jax.ShapeDtypeStruct((32, 32), jnp.float32), 'rank 2 .* but expected .*3, 4'),
    (MLP(), jax.ShapeDtypeStruct((2048,), jnp.float32), 'rank 1 .* but expected 2'),
    (TextCNN(), jax.ShapeDtypeStruct((50,), jnp.int32), 'rank 1 .* but expected 2'),
    (TextCNN(), jax.ShapeDtypeStruct((8, 50), jnp.float32), 'type float32 but expected'),
  ],
  ids=['image without batch axis', 'features without batch axis', 'text without batch axis', 'tokens of type float'],
)
def test_inputs_of_a_wrong_shape_or_type_are_refused(model, inputs, message):
  with pytest.raises(AssertionError, match=message):
    jax.eval_shape(model.init, jax.random.key(0), inputs)
