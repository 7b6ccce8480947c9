"""Tiny ImageNet (images) for TFDS."""

import tensorflow_datasets as tfds

from vrl_jax.data.archives import TINY_IMAGENET
from vrl_jax.data.builders.raw import manual_dir, url_info
from vrl_jax.data.tiny_imagenet_images import Image, TinyImages, find_images


class TinyImagenet(tfds.core.GeneratorBasedBuilder):
  """200 classes, 500 training and 50 validation images of 64 x 64 pixels each, as the original's JPEG bytes.

  Takes the unpacked folder `tiny-imagenet-200` from the manual folder if it is there, else `tiny-imagenet-200.zip` from
  the manual folder or the network.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   TinyImagenet(data_dir=folder).info.features['image'].shape
  (64, 64, 3)
  """

  VERSION = tfds.core.Version('1.0.0')
  RELEASE_NOTES = {'1.0.0': 'The first.'}
  MANUAL_DOWNLOAD_INSTRUCTIONS = f'Optional: {TINY_IMAGENET.url}, packed, or unpacked as tiny-imagenet-200/.'
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
    found = find_images(manual_dir(dl_manager))
    # A zip goes through the download manager even where it lies ready: that is what verifies its checksum.
    images = TinyImages(found if found and found.is_dir() else dl_manager.download(TINY_IMAGENET.url))
    return {'train': _examples(images, images.train), 'validation': _examples(images, images.test)}

  def _generate_examples(self):
    raise NotImplementedError  # abstract in TFDS, and not called: `_split_generators` returns the generators


def _examples(images: TinyImages, split: list[Image]):
  for image in split:
    example = {'image': images.read(image), 'label': image.label, 'wnid': images.class_names[image.label]}
    yield image.name, {**example, 'name': image.name}
