"""Tiny ImageNet (images) for TFDS."""

from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

from vrl_jax.data.sources.archives import TINY_IMAGENET
from vrl_jax.data.sources.tiny_imagenet_images import Image, TinyImages, find_images, open_images
from vrl_jax.data.tfds.builders.downloads import manual_dir_or_none, url_info


class TinyImagenet(tfds.core.GeneratorBasedBuilder):
  """200 classes with 500 training and 50 validation images each, 64 x 64 pixels, as the original JPEG bytes.

  Reads the unpacked folder `tiny-imagenet-200` in the manual folder if it exists, else `tiny-imagenet-200.zip` from the
  manual folder or the network.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   TinyImagenet(data_dir=folder).info.features['image'].shape
  (64, 64, 3)
  """

  VERSION = tfds.core.Version('1.0.0')
  RELEASE_NOTES = {'1.0.0': 'Initial release.'}
  MANUAL_DOWNLOAD_INSTRUCTIONS = f'Optional: {TINY_IMAGENET.url}, or the folder tiny-imagenet-200/ from it.'
  url_infos = {TINY_IMAGENET.url: url_info(TINY_IMAGENET)}

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      description='Tiny ImageNet: 200 classes of ImageNet at 64 x 64. Labels follow wnids.txt.',
      features=tfds.features.FeaturesDict(
        {
          'image': tfds.features.Image(shape=(64, 64, 3), encoding_format='jpeg'),
          'label': tfds.features.ClassLabel(num_classes=200),
          'wnid': tfds.features.Text(),
          'name': tfds.features.Text(),
        }
      ),
      homepage='http://cs231n.stanford.edu',
      citation='Le, Yang: Tiny ImageNet Visual Recognition Challenge. Stanford CS 231N, 2015.',
    )

  def _split_generators(self, dl_manager):
    found = find_images(manual_dir_or_none(dl_manager))
    # The download manager verifies the checksum of a zip, also of one in the manual folder.
    images = open_images(found if found and found.is_dir() else dl_manager.download(TINY_IMAGENET.url))
    return {'train': _examples(images, images.train), 'validation': _examples(images, images.test)}

  def _generate_examples(self):
    raise NotImplementedError  # abstract in TFDS; never called, because `_split_generators` returns the generators


def _examples(images: TinyImages, split: list[Image]) -> Iterator[tuple[str, dict[str, Any]]]:
  for image in split:
    example = {'image': images.read(image), 'label': image.label, 'wnid': images.class_names[image.label]}
    yield image.name, {**example, 'name': image.name}
