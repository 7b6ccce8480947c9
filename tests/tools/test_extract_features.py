"""The feature extractor: part files and resuming with a fake model; Inception V3 if Keras is installed."""

import importlib.util
import io
import pathlib
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from vrl_jax.data.sources.tiny_imagenet_images import Image as UnreadImage
from vrl_jax.data.sources.tiny_imagenet_images import open_images
from vrl_jax.errors import DataError, UserError
from vrl_jax.tools import extract_features
from vrl_jax.tools.extract_features import extract, load_image, main, open_parts, parts_folder

WNIDS = ['n03', 'n01', 'n02']


def jpeg(number: int, mode: str = 'RGB') -> bytes:
  shape = (64, 64, 3) if mode == 'RGB' else (64, 64)
  pixels = np.random.default_rng(number).integers(0, 256, shape, dtype=np.uint8)
  out = io.BytesIO()
  Image.fromarray(pixels).save(out, 'JPEG')
  return out.getvalue()


def write_images(root: pathlib.Path, train: int, test: int) -> pathlib.Path:
  root = root / 'tiny-imagenet-200'
  (root / 'val' / 'images').mkdir(parents=True)
  (root / 'wnids.txt').write_text('\n'.join(WNIDS) + '\n')
  number = 0
  for wnid in WNIDS:
    (root / 'train' / wnid / 'images').mkdir(parents=True)
    (root / 'train' / wnid / f'{wnid}_boxes.txt').write_text('')
    for i in range(train):
      number += 1
      (root / 'train' / wnid / 'images' / f'{wnid}_{i}.JPEG').write_bytes(jpeg(number, 'L' if i == 1 else 'RGB'))
  lines = []
  for i in range(test * len(WNIDS)):
    (root / 'val' / 'images' / f'val_{i}.JPEG').write_bytes(jpeg(1000 + i))
    lines.append(f'val_{i}.JPEG\t{sorted(WNIDS)[i % len(WNIDS)]}\t0\t0\t62\t62\n')
  (root / 'val' / 'val_annotations.txt').write_text(''.join(lines))
  return root


@pytest.fixture(scope='module')
def images(tmp_path_factory):
  return write_images(tmp_path_factory.mktemp('images'), train=11, test=2)


@pytest.fixture(params=['folder', 'zip'])
def source(request, images, tmp_path):
  if request.param == 'folder':
    return images
  return pathlib.Path(shutil.make_archive(tmp_path / 'tiny', 'zip', images.parent, 'tiny-imagenet-200'))


def fake_model(batch):
  assert batch.dtype == np.float32 and batch.min() >= -1 and batch.max() <= 1
  means = batch.mean(axis=(1, 2, 3), dtype=np.float64)
  return np.repeat(means[:, None], 2048, axis=1).astype(np.float32)


def test_images_are_rgb_and_resized(source):
  for name in ('train/n03/images/n03_0.JPEG', 'train/n03/images/n03_1.JPEG'):
    image = load_image(open_images(source), UnreadImage(name, 0))
    assert image.shape == (299, 299, 3) and image.dtype == np.uint8


def run_extract(root, output, model, batch_size=2):
  images = open_images(root)
  open_parts(parts_folder(output), {'batch_size': batch_size})
  splits = {'train': images.train, 'test': images.test}
  extract(splits, lambda image: load_image(images, image), model, output, batch_size)


def test_a_resumed_run_gives_the_same_file(images, tmp_path):
  expected, resumed = tmp_path / 'expected.npz', tmp_path / 'resumed.npz'
  run_extract(images, expected, fake_model)
  calls = []

  def interrupted(batch):
    calls.append(len(batch))
    if len(calls) == 11:
      raise KeyboardInterrupt
    return fake_model(batch)

  with pytest.raises(KeyboardInterrupt):
    run_extract(images, resumed, interrupted)
  parts = tmp_path / 'resumed.npz.parts'
  assert sorted(file.name for file in parts.iterdir()) == ['settings.json', 'train-0000000.npy']
  assert not resumed.exists()
  (parts / '.train-0000016.npy.0123456789abcdef.tmp').write_bytes(b'half a part')  # as a kill leaves it
  run_extract(images, resumed, interrupted)
  assert calls == [2] * (11 + 9 + 3)  # 17 + 3 batches; the 8 of the first part were not repeated
  assert resumed.read_bytes() == expected.read_bytes()
  assert sorted(file.name for file in tmp_path.iterdir()) == ['expected.npz', 'resumed.npz']


def test_the_file_has_the_format_of_the_task(images, tmp_path):
  run_extract(images, tmp_path / 'new folder' / 'x.npz', fake_model, batch_size=4)
  with np.load(tmp_path / 'new folder' / 'x.npz') as data:
    assert sorted(data) == ['x_test', 'x_train', 'y_test', 'y_train']
    assert data['x_train'].shape == (33, 2048) and data['x_train'].dtype == np.float16
    assert data['x_test'].shape == (6, 2048) and data['x_test'].dtype == np.float16
    np.testing.assert_array_equal(data['y_train'], np.arange(33) % 3)
    assert data['y_train'].dtype == data['y_test'].dtype == np.int32
    image = (
      load_image(open_images(images), UnreadImage('train/n03/images/n03_10.JPEG', 0)).astype(np.float32) / 127.5 - 1
    )
    np.testing.assert_allclose(data['x_train'][30, 0], image.mean(), atol=1e-3)


def test_parts_with_other_settings_are_refused(tmp_path):
  folder = tmp_path / 'x.npz.parts'
  open_parts(folder, {'batch_size': 2})
  open_parts(folder, {'batch_size': 4})
  (folder / 'train-0000000.npy').touch()
  open_parts(folder, {'batch_size': 4})
  with pytest.raises(UserError, match='other settings .batch_size=4, now 8.: use those, or remove the folder'):
    open_parts(folder, {'batch_size': 8})


def test_a_damaged_image_is_named_and_finished_parts_are_kept(tmp_path):
  root = write_images(tmp_path, train=11, test=1)
  bad = root / 'train' / 'n02' / 'images' / 'n02_7.JPEG'
  good = bad.read_bytes()
  for content, reason in (
    (b'', 'byte 0: not a JPEG'),
    (b'not a picture', 'byte 0: not a JPEG'),
    (good[: len(good) // 2], 'cannot be decoded'),
  ):
    bad.write_bytes(content)
    with pytest.raises(DataError, match=rf'^[^\n]*train/n02/images/n02_7.JPEG[:,] {reason}[^\n]*$'):
      run_extract(root, tmp_path / 'x.npz', fake_model)
  bad.write_bytes(good)
  run_extract(root, tmp_path / 'x.npz', fake_model)


def no_wnids(root):
  (root / 'wnids.txt').unlink()


def no_annotations(root):
  (root / 'val' / 'val_annotations.txt').unlink()


def empty_class(root):
  shutil.rmtree(root / 'train' / 'n02')


def unknown_class(root):
  with (root / 'val' / 'val_annotations.txt').open('a') as file:
    file.write('val_9.JPEG\tn99\t0\t0\t1\t1\n')


@pytest.mark.parametrize(
  ('damage', 'message'),
  [
    (no_wnids, 'wnids.txt: is missing'),
    (no_annotations, 'val/val_annotations.txt: is missing'),
    (empty_class, 'train/n02/images: has no images'),
    (unknown_class, "val/val_annotations.txt, line 4: 'val_9.JPEG\\tn99"),
    (shutil.rmtree, 'tiny-imagenet-200 does not exist, must be the folder'),
  ],
)
def test_a_damaged_folder_is_reported_in_one_line(damage, message, tmp_path, capsys):
  root = write_images(tmp_path, train=1, test=1)
  damage(root)
  assert main(['--images', str(root), '--output', str(tmp_path / 'x.npz'), '--weights', 'random']) == 3
  error = capsys.readouterr().err
  assert message in error and error.count('\n') == 1


@pytest.mark.parametrize(
  ('flags', 'status', 'message'),
  [
    (['--batch_size', '0'], 2, "--batch_size: '0', must be an integer of at least 1"),
    (['--limit_per_class', '0'], 2, "--limit_per_class: '0', must be an integer of at least 1"),
    (['--weights', 'nowhere.h5'], 3, "--weights=nowhere.h5, must be a file, 'imagenet'"),
    (['--output', 'x.csv'], 2, '--output=x.csv, must end in .npz'),
  ],
)
def test_invalid_options_are_reported_in_one_line(flags, status, message, images, tmp_path, capsys):
  try:
    assert main(['--images', str(images), '--output', str(tmp_path / 'x.npz'), *flags]) == status
  except SystemExit as error:  # from the parser
    assert error.code == status
  error = capsys.readouterr().err
  assert message in error and error.count('\n') == 1
  assert not list(tmp_path.iterdir())


def test_a_finished_output_is_not_overwritten(images, tmp_path, capsys):
  (tmp_path / 'x.npz').touch()
  assert main(['--images', str(images), '--output', str(tmp_path / 'x.npz')]) == 2
  assert 'x.npz exists already' in capsys.readouterr().err


def test_a_damaged_zip_is_reported_in_one_line(tmp_path, capsys):
  (tmp_path / 'tiny.zip').write_bytes(b'PK not really')
  assert main(['--images', str(tmp_path / 'tiny.zip'), '--output', str(tmp_path / 'x.npz')]) == 3
  error = capsys.readouterr().err
  assert 'tiny.zip: cannot be read (File is not a zip file)' in error and error.count('\n') == 1


def test_without_keras_the_message_says_what_to_install(images, tmp_path, capsys, monkeypatch):
  monkeypatch.setenv('KERAS_BACKEND', 'jax')
  monkeypatch.setitem(sys.modules, 'keras', None)
  assert main(['--images', str(images), '--output', str(tmp_path / 'x.npz'), '--weights', 'random']) == 2
  error = capsys.readouterr().err
  assert "extract_features needs keras: pip install 'vrl-jax[features]'" in error and error.count('\n') == 1


def test_an_interruption_says_how_to_resume(images, tmp_path, capsys, monkeypatch):
  def interrupted(_):
    raise KeyboardInterrupt

  monkeypatch.setattr(extract_features, 'inception_v3', interrupted)
  assert main(['--images', str(images), '--output', str(tmp_path / 'x.npz'), '--weights', 'random']) == 130
  assert capsys.readouterr().err == 'interrupted; rerun the same command to resume\n'


# In a subprocess: Keras does not run with this suite's strict type promotion.
needs_keras = pytest.mark.skipif(importlib.util.find_spec('keras') is None, reason='needs Keras (extra `features`)')


def command(images, output, *flags):
  script = [sys.executable, '-m', 'vrl_jax.tools.extract_features', '--batch_size', '2']
  return [*script, '--images', str(images), '--output', str(output), *flags]


@needs_keras
@pytest.mark.slow
def test_inception_gives_the_same_file_after_a_kill(images, tmp_path, monkeypatch):
  monkeypatch.setenv('KERAS_HOME', str(tmp_path))
  expected, resumed = tmp_path / 'expected.npz', tmp_path / 'resumed.npz'
  subprocess.run(command(images, expected, '--weights', 'random'), check=True)
  with np.load(expected) as data:
    assert data['x_train'].shape == (33, 2048) and data['x_test'].shape == (6, 2048)
    assert (data['x_train'].max(axis=1) > 0).all()
    assert len(np.unique(data['x_train'], axis=0)) == 33

  copy = shutil.copytree(images, tmp_path / 'copy')
  process = subprocess.Popen(command(copy, resumed, '--weights', 'random'))
  try:
    deadline = time.monotonic() + 300
    while not (tmp_path / 'resumed.npz.parts' / 'train-0000000.npy').exists():
      assert process.poll() is None and time.monotonic() < deadline
      time.sleep(0.01)
  finally:
    process.kill()
    process.wait()
  assert not resumed.exists()
  for image in open_images(copy).train[:16]:
    (copy / image.name).write_bytes(b'must not be read again')
  subprocess.run(command(copy, resumed, '--weights', 'random'), check=True)
  assert resumed.read_bytes() == expected.read_bytes()


@needs_keras
@pytest.mark.slow
def test_a_bad_weights_file_is_reported_in_one_line(images, tmp_path, monkeypatch):
  monkeypatch.setenv('KERAS_HOME', str(tmp_path))
  bad = tmp_path / 'bad.weights.h5'
  bad.write_bytes(b'no weights')
  done = subprocess.run(command(images, tmp_path / 'x.npz', '--weights', str(bad)), capture_output=True, text=True)
  assert done.returncode == 3
  assert done.stderr.splitlines()[-1].startswith('error: no weights from')
  assert 'Traceback' not in done.stderr
