"""What an image model sees: a picture that the app draws, or one that was uploaded. PNG and JPEG, small ones."""

from __future__ import annotations

import hashlib
import io
import threading
from collections import OrderedDict

import numpy as np
import torch
from PIL import Image, ImageDraw

from fbt_core.huggingface.config import HuggingFaceConfig

MAXIMUM_BYTES = 8 << 20
"""Of a picture's file."""

MAXIMUM_PIXELS = 24_000_000
"""Of a picture, asked of its header before it is decoded: a few kilobytes may hold a gigapixel."""

KEPT_SIDE = 768
"""Pixels of the longer side that are kept: more than any model here reads."""

HELD = 32
"""Uploaded pictures kept in memory, the oldest forgotten first; about 1.8 MB each at most."""

SAMPLES = {"sample:scene": "a scene: sun, hills, house, tree", "sample:shapes": "four shapes of four colours"}
"""Pictures that need no file: reference to words."""

_pictures: OrderedDict[str, Image.Image] = OrderedDict()
_lock = threading.Lock()


def take(content: bytes) -> str:
    """Hold an uploaded picture; its reference. Raises ``ValueError`` (got, expected) for anything else."""
    if len(content) > MAXIMUM_BYTES:
        raise ValueError(f"got a picture of {len(content):,} bytes, expected at most {MAXIMUM_BYTES:,}")
    try:
        picture = Image.open(io.BytesIO(content), formats=("PNG", "JPEG"))
        width, height = picture.size
        if width * height > MAXIMUM_PIXELS:
            raise ValueError(f"got a picture of {width} x {height} pixels, expected at most {MAXIMUM_PIXELS:,}")
        picture = picture.convert("RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError) as fault:
        raise ValueError(
            "got a file that is no PNG or JPEG picture, or a broken one, expected one of the two"
        ) from fault
    picture.thumbnail((KEPT_SIDE, KEPT_SIDE))
    reference = f"sha256:{hashlib.sha256(content).hexdigest()}"
    with _lock:
        _pictures[reference] = picture
        _pictures.move_to_end(reference)
        while len(_pictures) > HELD:
            _pictures.popitem(last=False)
    return reference


def known(reference: str) -> bool:
    """Whether this server can show it."""
    return reference in ("", *SAMPLES, *_pictures)


def picture(reference: str) -> Image.Image:
    """The picture of a reference; the first sample for an empty one, and for one that is no longer held."""
    with _lock:
        held = _pictures.get(reference)
    if held is not None:
        return held
    return _shapes() if reference == "sample:shapes" else _scene()


def pixels(reference: str, config: HuggingFaceConfig) -> torch.Tensor:
    """(channel, height, width) as the model's own preprocessing makes it."""
    from fbt_core.huggingface.images import pixel_values

    return pixel_values(picture(reference), config)


def _scene(side: int = 384) -> Image.Image:
    """A sky that fades, a sun, two hills, a house and a tree: edges, flat areas and things at places one can name."""
    rows = np.linspace(0, 1, side)[:, None, None]
    sky = (1 - rows) * np.array([86, 140, 214]) + rows * np.array([236, 222, 190])
    image = Image.fromarray(np.broadcast_to(sky, (side, side, 3)).astype(np.uint8))
    draw, s = ImageDraw.Draw(image), side / 384
    draw.ellipse([270 * s, 40 * s, 334 * s, 104 * s], fill=(250, 214, 70))
    draw.ellipse([-120 * s, 210 * s, 260 * s, 560 * s], fill=(92, 150, 84))
    draw.ellipse([120 * s, 240 * s, 520 * s, 620 * s], fill=(62, 120, 70))
    draw.rectangle([70 * s, 210 * s, 170 * s, 300 * s], fill=(190, 84, 62))
    draw.polygon([(56 * s, 212 * s), (120 * s, 150 * s), (184 * s, 212 * s)], fill=(92, 52, 48))
    draw.rectangle([106 * s, 250 * s, 134 * s, 300 * s], fill=(62, 42, 34))
    draw.rectangle([276 * s, 210 * s, 292 * s, 290 * s], fill=(94, 66, 44))
    draw.ellipse([240 * s, 130 * s, 328 * s, 226 * s], fill=(34, 92, 52))
    return image


def _shapes(side: int = 384) -> Image.Image:
    """One shape a quarter, each of another colour, on grey."""
    image = Image.new("RGB", (side, side), (200, 200, 200))
    draw, s = ImageDraw.Draw(image), side / 384
    draw.rectangle([40 * s, 40 * s, 150 * s, 150 * s], fill=(213, 94, 0))
    draw.ellipse([234 * s, 40 * s, 344 * s, 150 * s], fill=(0, 114, 178))
    draw.polygon([(95 * s, 230 * s), (150 * s, 344 * s), (40 * s, 344 * s)], fill=(0, 158, 115))
    draw.line([(240 * s, 240 * s), (340 * s, 340 * s)], fill=(60, 40, 90), width=round(16 * s))
    draw.line([(340 * s, 240 * s), (240 * s, 340 * s)], fill=(60, 40, 90), width=round(16 * s))
    return image
