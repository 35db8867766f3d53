"""Pictures: files in folders and zips, lists of them, pixels in a cache, and changes to images in training."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.data.images.augment import ImageTransform, find_augmentation, prepare, scale_to_unit
    from seqdg.data.images.image_folder import SUFFIXES
    from seqdg.data.images.pictures import Container, File, decode, open_container, require_pillow

__getattr__, __dir__ = open_front(__name__)
