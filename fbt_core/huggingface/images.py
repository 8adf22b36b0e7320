"""From a picture to what an image model reads, as its preprocessor_config.json says, with PIL and numpy alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from fbt_core.huggingface.config import HuggingFaceConfig

MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
"""ViT's, where a processor says that it normalises and not by what."""

LARGEST_SIDE = 4096
"""Of what a file may ask a picture to be resized to."""

BILINEAR = 2
"""PIL's number, the library's default."""


def pixel_values(picture: Image.Image, config: HuggingFaceConfig) -> Float[Tensor, "channel height across"]:
    """A picture resized, cropped, rescaled and normalised as the checkpoint's processor does it, in that order.

    Raises ``ValueError`` (got, expected) for a processor whose numbers make no sense.
    """
    rules = _rules(config)
    picture = picture.convert("RGB")
    if rules.get("do_resize", True):
        picture = picture.resize(_target(rules, picture.size), Image.Resampling(rules.get("resample", BILINEAR)))
    if rules.get("do_center_crop", False):
        picture = _cropped(picture, _sides(rules.get("crop_size", rules.get("size"))))
    pixels = np.asarray(picture, dtype=np.float32)
    if rules.get("do_rescale", True):
        pixels = pixels * np.float32(rules.get("rescale_factor", 1 / 255))
    if rules.get("do_normalize", True):
        mean, std = (np.asarray(rules.get(name) or default, dtype=np.float32)
                     for name, default in (("image_mean", MEAN), ("image_std", STD)))  # fmt: skip
        if mean.shape != (3,) or std.shape != (3,) or not (std > 0).all():
            raise ValueError(f"got image_mean {mean.tolist()} and image_std {std.tolist()}, expected three of each")
        pixels = (pixels - mean) / std
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def patch_labels(count: int, config: Any, pixels: Float[Tensor, "channel height across"]) -> tuple[str, ...]:
    """One label a token of an image model: what stands before the patches, then ``patch row,column``."""
    size = getattr(config, "patch_size", 0)
    tall, wide = (size, size) if isinstance(size, int) else tuple(size)
    if not tall or not wide:
        return tuple(f"token {index}" for index in range(count))
    rows, columns = pixels.shape[1] // tall, pixels.shape[2] // wide
    before = count - rows * columns
    if before < 0:
        return tuple(f"token {index}" for index in range(count))
    special = ("[CLS]", *(f"[register {index}]" for index in range(1, before)))[:before]
    return (*special, *(f"patch {row},{column}" for row in range(rows) for column in range(columns)))


def _rules(config: HuggingFaceConfig) -> Mapping[str, Any]:
    """The processor's settings; of a checkpoint without one, the size that its model needs."""
    rules = json.loads(config.processor) if config.processor else {}
    size = json.loads(config.table).get("image_size", 224)
    return {"size": size, **{name: value for name, value in rules.items() if value is not None}}


def _sides(size: Any) -> tuple[int, int]:
    """Height and width of a size: one number, or a dict of two."""
    sides: tuple[Any, ...]
    if isinstance(size, Mapping) and {"height", "width"} <= set(size):
        sides = (size["height"], size["width"])
    elif isinstance(size, Mapping) and "shortest_edge" in size:
        sides = (size["shortest_edge"],) * 2
    else:
        sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
    if len(sides) != 2 or not all(isinstance(side, int) and 0 < side <= LARGEST_SIDE for side in sides):
        raise ValueError(f"got an image size {repr(size)[:80]}, expected whole numbers from 1 to {LARGEST_SIDE}")
    return sides[0], sides[1]


def _target(rules: Mapping[str, Any], now: tuple[int, int]) -> tuple[int, int]:
    """Width and height to resize to; with a shortest edge the picture keeps its proportions."""
    size = rules["size"]
    height, width = _sides(size)
    if not (isinstance(size, Mapping) and "shortest_edge" in size):
        return width, height
    across, tall = now
    long = int(height * max(across, tall) / min(across, tall))
    if long > LARGEST_SIDE:
        raise ValueError(f"got a picture of {across} x {tall}, expected one that is less long for its width")
    return (height, long) if across <= tall else (long, height)


def _cropped(picture: Image.Image, sides: tuple[int, int]) -> Image.Image:
    """The middle of a picture; black where it is too small."""
    height, width = sides
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    return picture.crop((left, top, left + width, top + height))
