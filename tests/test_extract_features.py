"""The feature extractor: folder and zip reading, order, part files always; Inception V3 itself where Keras is."""

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

from vrl_jax.errors import DataError, UserError
from vrl_jax.tools import extract_features
from vrl_jax.tools.extract_features import extract, find_splits, load_image, main, open_images, open_parts

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


def test_rows_go_round_the_classes_in_the_order_of_the_numbers(source):
  splits = find_splits(*open_images(source))
  names, labels = zip(*splits['train'])
  assert labels == tuple(i % 3 for i in range(33))
  assert names[:4] == tuple(
    f'train/{w}/images/{w}_{i}.JPEG' for w, i in [('n03', 0), ('n01', 0), ('n02', 0), ('n03', 1)]
  )
  assert names[6].endswith('n03_2.JPEG') and names[30].endswith('n03_10.JPEG')
  assert splits['test'] == [
    (f'val/images/val_{i}.JPEG', c) for c, i in [(0, 2), (1, 0), (2, 1), (0, 5), (1, 3), (2, 4)]
  ]


def test_limit_per_class_takes_the_first(source):
  whole, part = (find_splits(*open_images(source), limit) for limit in (None, 2))
  assert part == {'train': whole['train'][:6], 'test': whole['test'][:6]}


def test_classes_of_unequal_size_lose_nothing(tmp_path):
  root = write_images(tmp_path, train=3, test=1)
  (root / 'train' / 'n01' / 'images' / 'n01_1.JPEG').unlink()
  assert [label for _, label in find_splits(*open_images(root))['train']] == [0, 1, 2, 0, 1, 2, 0, 2]


def test_images_are_rgb_of_inceptions_size(source):
  _, read = open_images(source)
  for name in ('train/n03/images/n03_0.JPEG', 'train/n03/images/n03_1.JPEG'):
    image = load_image(read, name)
    assert image.shape == (299, 299, 3) and image.dtype == np.uint8


def run_extract(root, output, model, batch_size=2):
  names, read = open_images(root)
  splits = find_splits(names, read)
  open_parts(output.with_name(output.name + '.parts'), {'batch_size': batch_size})
  extract(splits, lambda name: load_image(read, name), model, output, batch_size)


def test_an_interrupted_run_goes_on_and_ends_the_same(images, tmp_path):
  whole, resumed = tmp_path / 'whole.npz', tmp_path / 'resumed.npz'
  run_extract(images, whole, fake_model)
  calls = []

  def stops(batch):
    calls.append(len(batch))
    if len(calls) == 11:
      raise KeyboardInterrupt
    return fake_model(batch)

  with pytest.raises(KeyboardInterrupt):
    run_extract(images, resumed, stops)
  parts = tmp_path / 'resumed.npz.parts'
  assert sorted(file.name for file in parts.iterdir()) == ['settings.json', 'train-0000000.npy']
  assert not resumed.exists()
  (parts / 'train-0000016.npy.tmp').write_bytes(b'half a part')
  run_extract(images, resumed, stops)
  assert calls == [2] * (11 + 9 + 3)  # 17 + 3 batches in all, of which the 8 of the first part were not made again
  assert resumed.read_bytes() == whole.read_bytes()
  assert sorted(file.name for file in tmp_path.iterdir()) == ['resumed.npz', 'whole.npz']


def test_the_file_has_the_format_of_the_task(images, tmp_path):
  run_extract(images, tmp_path / 'new folder' / 'x.npz', fake_model, batch_size=4)
  with np.load(tmp_path / 'new folder' / 'x.npz') as data:
    assert sorted(data) == ['x_test', 'x_train', 'y_test', 'y_train']
    assert data['x_train'].shape == (33, 2048) and data['x_train'].dtype == np.float16
    assert data['x_test'].shape == (6, 2048) and data['x_test'].dtype == np.float16
    np.testing.assert_array_equal(data['y_train'], np.arange(33) % 3)
    assert data['y_train'].dtype == data['y_test'].dtype == np.int32
    _, read = open_images(images)
    image = load_image(read, 'train/n03/images/n03_10.JPEG').astype(np.float32) / 127.5 - 1
    np.testing.assert_allclose(data['x_train'][30, 0], image.mean(), atol=1e-3)


def test_parts_of_other_settings_are_refused_and_of_none_are_not(tmp_path):
  folder = tmp_path / 'x.npz.parts'
  open_parts(folder, {'batch_size': 2})
  open_parts(folder, {'batch_size': 4})
  (folder / 'train-0000000.npy').touch()
  open_parts(folder, {'batch_size': 4})
  with pytest.raises(UserError, match='other settings .batch_size was 4, is 8.: go on with those, or remove it'):
    open_parts(folder, {'batch_size': 8})


def test_a_corrupt_image_is_named_and_the_rest_is_kept(tmp_path):
  root = write_images(tmp_path, train=11, test=1)
  bad = root / 'train' / 'n02' / 'images' / 'n02_7.JPEG'
  good = bad.read_bytes()
  for content in (b'', b'not a picture', good[: len(good) // 2]):
    bad.write_bytes(content)
    with pytest.raises(DataError, match=r'^train/n02/images/n02_7.JPEG cannot be read as an image \([^\n]*\)$'):
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
  ('damage', 'says'),
  [
    (no_wnids, 'wnids.txt is missing'),
    (no_annotations, 'val/val_annotations.txt is missing'),
    (empty_class, 'train/n02/images has no .JPEG file'),
    (unknown_class, "val/val_annotations.txt, line 4: 'n99' is not a class of wnids.txt"),
    (shutil.rmtree, 'tiny-imagenet-200 is not there: give --images'),
  ],
)
def test_a_damaged_folder_is_told_in_one_line(damage, says, tmp_path, capsys):
  root = write_images(tmp_path, train=1, test=1)
  damage(root)
  assert main(['--images', str(root), '--output', str(tmp_path / 'x.npz'), '--weights', 'random']) == 3
  error = capsys.readouterr().err
  assert says in error and error.count('\n') == 1


@pytest.mark.parametrize(
  ('flags', 'status', 'says'),
  [
    (['--batch_size', '0'], 2, 'batch_size=0'),
    (['--limit_per_class', '0'], 2, 'limit_per_class=0'),
    (['--weights', 'nowhere.h5'], 3, "--weights nowhere.h5 is not there: give a file, 'imagenet'"),
    (['--output', 'x.csv'], 2, 'x.csv must end in .npz'),
  ],
)
def test_wrong_flags_are_told_in_one_line(flags, status, says, images, tmp_path, capsys):
  assert main(['--images', str(images), '--output', str(tmp_path / 'x.npz'), *flags]) == status
  error = capsys.readouterr().err
  assert says in error and error.count('\n') == 1
  assert not list(tmp_path.iterdir())


def test_a_finished_output_is_not_overwritten(images, tmp_path, capsys):
  (tmp_path / 'x.npz').touch()
  assert main(['--images', str(images), '--output', str(tmp_path / 'x.npz')]) == 2
  assert 'x.npz is there already' in capsys.readouterr().err


def test_a_broken_zip_is_told_in_one_line(tmp_path, capsys):
  (tmp_path / 'tiny.zip').write_bytes(b'PK not really')
  assert main(['--images', str(tmp_path / 'tiny.zip'), '--output', str(tmp_path / 'x.npz')]) == 3
  assert 'tiny.zip is neither a folder nor a whole zip file' in capsys.readouterr().err


def test_without_keras_it_says_what_to_install(images, tmp_path, capsys, monkeypatch):
  monkeypatch.setenv('KERAS_BACKEND', 'jax')
  monkeypatch.setitem(sys.modules, 'keras', None)
  assert main(['--images', str(images), '--output', str(tmp_path / 'x.npz'), '--weights', 'random']) == 2
  error = capsys.readouterr().err
  assert "pip install 'keras>=3.15' 'pillow>=13'" in error and error.count('\n') == 1


def test_keyboard_interrupt_says_how_to_go_on(images, tmp_path, capsys, monkeypatch):
  def interrupted(_):
    raise KeyboardInterrupt

  monkeypatch.setattr(extract_features, 'inception_v3', interrupted)
  assert main(['--images', str(images), '--output', str(tmp_path / 'x.npz'), '--weights', 'random']) == 130
  assert capsys.readouterr().err == 'interrupted; the same command goes on\n'


# In processes of their own: Keras does not run under this suite's strict type promotion.
needs_keras = pytest.mark.skipif(
  importlib.util.find_spec('keras') is None, reason='Keras (extra `features`) is missing'
)


def command(images, output, *flags):
  script = [sys.executable, '-m', 'vrl_jax.tools.extract_features', '--batch_size', '2']
  return [*script, '--images', str(images), '--output', str(output), *flags]


@needs_keras
@pytest.mark.slow
def test_inception_killed_and_resumed_gives_the_same_file(images, tmp_path, monkeypatch):
  monkeypatch.setenv('KERAS_HOME', str(tmp_path))
  whole, resumed = tmp_path / 'whole.npz', tmp_path / 'resumed.npz'
  subprocess.run(command(images, whole, '--weights', 'random'), check=True)
  with np.load(whole) as data:
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
  for name, _ in find_splits(*open_images(copy))['train'][:16]:
    (copy / name).write_bytes(b'must not be read again')
  subprocess.run(command(copy, resumed, '--weights', 'random'), check=True)
  assert resumed.read_bytes() == whole.read_bytes()


@needs_keras
@pytest.mark.slow
def test_weights_that_are_none_are_told_in_one_line(images, tmp_path, monkeypatch):
  monkeypatch.setenv('KERAS_HOME', str(tmp_path))
  bad = tmp_path / 'bad.weights.h5'
  bad.write_bytes(b'no weights')
  done = subprocess.run(command(images, tmp_path / 'x.npz', '--weights', str(bad)), capture_output=True, text=True)
  assert done.returncode == 3
  assert done.stderr.splitlines()[-1].startswith('error: no weights from')
  assert 'Traceback' not in done.stderr
