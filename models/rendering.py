"""Text lines and pages drawn with Pillow: the pictures that the PP-OCR models read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.errors import ConfigError
from lucid_fx.models.corpus import tokens

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

Picture = NDArray[np.uint8]
"""Height, width, and the channels blue, green, red."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels."""

Random = np.random.Generator

_MARGIN = 4


@dataclass(frozen=True)
class Line:
    """A picture of one line of text, and the text."""

    picture: Picture
    text: str


@dataclass(frozen=True)
class Page:
    """A picture with lines of text on it, and where they are."""

    picture: Picture
    boxes: tuple[Box, ...]


def random_text(random: Random, held_out: bool, least: int = 2, most: int = 5) -> str:
    """Join a few words, at times with a number; held-out words and others never mix."""
    vocabulary = tokens()[int(held_out) :: 2]
    parts = list(random.choice(vocabulary, size=int(random.integers(least, most + 1))))
    if random.random() < 0.3:
        parts.append(str(random.integers(0, 10_000)))
    return " ".join(str(part) for part in parts)


def random_line(random: Random, held_out: bool) -> Line:
    """Draw a line of 14-34 px, a little rotated, blurred and noisy."""
    text = random_text(random, held_out)
    ink, paper = _colours(random)
    drawn = _draw(text, int(random.integers(14, 35)), ink, paper)
    angle = float(random.uniform(-1.5, 1.5))
    turned = drawn.rotate(angle, resample=_bicubic(), expand=True, fillcolor=paper)
    return Line(_degrade(turned, random), text)


def random_page(random: Random, held_out: bool, height: int, width: int) -> Page:
    """Draw lines of 9-34 px below each other; the boxes leave a margin around the ink."""
    image_module = _pillow("Image")
    ink, paper = _colours(random)
    page = image_module.new("RGB", (width, height), paper)
    boxes: list[Box] = []
    top = int(random.integers(10, 40))
    while top < height - 60:
        size = int(random.integers(9, 35))
        line = _draw(random_text(random, held_out, 1, 4), size, ink, paper)
        left = int(random.integers(8, max(9, width - line.width - 8)))
        if left + line.width < width:
            page.paste(line, (left, top))
            boxes.append((left, top, left + line.width, top + line.height))
        top += line.height + int(random.integers(-4, 24))
    return Page(_degrade(page, random), tuple(boxes))


def resize(picture: Picture, height: int, width: int) -> Picture:
    """Resize with bilinear interpolation."""
    image_module = _pillow("Image")
    image = image_module.fromarray(picture)
    return np.asarray(image.resize((width, height), image_module.Resampling.BILINEAR))


def _draw(text: str, size: int, ink: tuple[int, ...], paper: tuple[int, ...]) -> PillowImage:
    """Draw text in Pillow's own scalable font, with a small margin."""
    font = _pillow("ImageFont").load_default(size)
    left, top, right, bottom = font.getbbox(text)
    extent = (int(right - left) + 2 * _MARGIN, int(bottom - top) + 2 * _MARGIN)
    image: PillowImage = _pillow("Image").new("RGB", extent, paper)
    origin = (_MARGIN - left, _MARGIN - top)
    _pillow("ImageDraw").Draw(image).text(origin, text, fill=ink, font=font)
    return image


def _colours(random: Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pick ink and paper, dark on light or light on dark."""
    dark = tuple(int(value) for value in random.integers(0, 110, 3))
    light = tuple(int(value) for value in random.integers(150, 256, 3))
    return (dark, light) if random.random() < 0.7 else (light, dark)


def _degrade(image: PillowImage, random: Random) -> Picture:
    """Blur slightly, add noise, and put the channels in the order blue, green, red."""
    blur = _pillow("ImageFilter").GaussianBlur(float(random.uniform(0, 1.0)))
    pixels = np.asarray(image.filter(blur), dtype=np.float32)
    noisy = pixels + random.normal(0, random.uniform(1, 16), pixels.shape)
    return np.ascontiguousarray(np.clip(noisy, 0, 255).astype(np.uint8)[:, :, ::-1])


def _bicubic() -> Any:
    return _pillow("Image").Resampling.BICUBIC


def _pillow(module: str) -> Any:
    """Import a module of Pillow, which is an optional dependency."""
    import importlib

    try:
        found = importlib.import_module(f"PIL.{module}")
        importlib.import_module("PIL._imagingft")  # Pillow's scalable font needs FreeType
    except ImportError as error:
        raise ConfigError(
            f"the PP-OCR samples are drawn with Pillow, which cannot be used here: {error}",
            hint="pip install 'lucid-fx[models]'",
        ) from error
    return found
