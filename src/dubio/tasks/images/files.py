"""Image files and arrays: any mode that cameras and archives write, class folders, and npz archives.

Problems with single photographs, as a preprocessing report lists them, and progress on a screen.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from dubio.core.errors import BadFile, MissingExtra, UserError
from dubio.core.npz import read_npz
from dubio.core.unpacking import OPTION, check_unpacked, size_text, unpacking_limit

if TYPE_CHECKING:
    from PIL.Image import Image as Picture


ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")

DRAFT_FACTOR = 1.5
"""A jpeg may be decoded at a half, a quarter or an eighth of its size, as long as that is at least this multiple of the
target size: the pixels lost would not survive the resizing."""

_BYTES_PER_PIXEL = 8
"""Of a picture in Pillow's memory (four), and of the copy in another mode."""

_SIXTEEN_BIT = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_GREY = ("1", "L", "LA", *_SIXTEEN_BIT)
_TRANSPARENT = ("RGBA", "LA", "PA", "La", "RGBa")


T = TypeVar("T")


class Unreadable(Exception):
    """A file that holds no usable picture; the message says why."""


def pillow(use: str = "images") -> Any:
    """Return the module ``PIL.Image``.

    Raises:
        MissingExtra: When Pillow is not installed.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError as missing:
        raise MissingExtra(use, "train") from missing
    # Damaged pictures are refused or read here, and large ones have a limit: no lines of a library between ours.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    return Image


def to_levels(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return the nearest grey levels, 0 to 255."""
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def reading(source: Path | BinaryIO, read: Callable[[Any], T]) -> T:
    """Open an image file, or one in memory, and apply a function to it.

    Raises:
        Unreadable: When it is empty, truncated, of an unknown format, or absurdly large.
    """
    image_module = pillow()
    try:
        if isinstance(source, Path) and source.stat().st_size == 0:
            raise Unreadable("the file is empty")
        with image_module.open(source) as image:
            check_pixels(*image.size)
            return read(image)
    except image_module.UnidentifiedImageError as fault:  # its message has the address of an object in memory
        raise Unreadable("its format is not that of a picture") from fault
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as fault:
        raise Unreadable(str(fault) or type(fault).__name__) from fault


def check_pixels(width: int, height: int) -> None:
    """Refuse a picture that takes more memory than a file may unpack to, before a pixel of it is decoded.

    Raises:
        Unreadable: Naming its size and the limit.
    """
    needed = width * height * _BYTES_PER_PIXEL
    if needed > unpacking_limit():
        allowed = f"the limit on unpacked files ({OPTION}) is {size_text(unpacking_limit())}"
        raise Unreadable(f"{width}×{height} pixels take {size_text(needed)} in memory; {allowed}")


def open_picture(path: Path, size: int) -> Picture:
    """Return the picture in a file as RGB, upright, at least :data:`DRAFT_FACTOR` times as large as ``size``.

    A smaller file keeps its size.

    Raises:
        Unreadable: When it cannot be decoded.
    """

    def read(image: Any) -> Picture:
        from PIL import ImageOps

        if image.format == "JPEG":
            least = DRAFT_FACTOR * size / max(1, min(image.size))
            image.draft(None, (int(image.width * least) + 1, int(image.height * least) + 1))
        image.load()
        upright = ImageOps.exif_transpose(image)
        picture: Picture = _rgb(upright if upright is not None else image)
        return picture

    return reading(path, read)


def _rgb(image: Any) -> Any:
    """Convert any mode to RGB; 16-bit levels are divided, not clipped, and what is transparent becomes black."""
    if image.mode == "F":
        raise Unreadable("its levels are fractions without a known range")
    image = _eight_bit(image)
    if image.mode in _TRANSPARENT or "transparency" in image.info:
        layered = image.convert("RGBA")
        black = pillow().new("RGBA", layered.size, (0, 0, 0, 255))
        image = pillow().alpha_composite(black, layered)
    return image.convert("RGB")


def _eight_bit(image: Any) -> Any:
    """Return a 16-bit grey image with 256 levels, any other image as it is."""
    if image.mode not in _SIXTEEN_BIT:
        return image
    return pillow().fromarray(to_levels(np.asarray(image, dtype=np.float64) / 257))  # 65535 becomes 255


def class_folders(folder: Path) -> dict[str, list[Path]]:
    """Return the image files of each folder inside a folder, sorted."""
    return {
        path.name: sorted(file for file in path.rglob("*") if file.suffix.lower() in ENDINGS)
        for path in visible_folders(folder)
    }


def ignored_note(folder: Path, used: Sequence[Path]) -> tuple[str, ...]:
    """Return a sentence about the files in a folder that are not used; hidden ones are left unnamed."""
    files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    ignored = sorted(files - {path.relative_to(folder) for path in used})
    names = [path.as_posix() for path in ignored if not any(name.startswith(".") for name in path.parts)]
    if not names:
        return ()
    shown = ", ".join(names[:EXAMPLES_NAMED]) + (", …" if len(names) > EXAMPLES_NAMED else "")
    reason = f"they are not in a class folder, or do not end in {', '.join(ENDINGS)}"
    return (f"Files that are ignored: {len(names):,}: {shown}; {reason}.",)


def visible_folders(folder: Path) -> list[Path]:
    """Return the folders inside a folder, sorted, hidden ones excepted."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def load_images(folder: Path, paths: Sequence[Path], size: int) -> NDArray[np.uint8]:
    """Return image files of a folder as uint8 ``[N, size, size, C]``: grey where every one of them is, else colour.

    Both sides are stretched to the size (bilinear); transparency is dropped. All headers are read before a pixel is.

    Raises:
        BadFile: When a file cannot be read.
        UserError: For a size below 1.
    """
    if size < 1:
        raise UserError(f"size must be at least 1 pixel; given {size}.")

    def read(image: Any) -> NDArray[np.uint8]:
        resized = _upright(image).resize((size, size), pillow().Resampling.BILINEAR)
        return np.asarray(resized, dtype=np.uint8)

    grey = [_read(path, lambda image: image.mode in _GREY) for path in paths]
    channels = 1 if all(grey) else 3
    check_unpacked(folder, len(paths) * size * size * channels)
    images = np.empty((len(paths), size, size, channels), dtype=np.uint8)
    for row, path in enumerate(paths):
        image = _read(path, read)
        images[row] = image if image.ndim == 3 else image[..., None]  # a grey one has equal channels
    return images


def read_image(source: Path | BinaryIO, shape: tuple[int, ...], *, stretch: bool) -> NDArray[np.uint8]:
    """Return one image as uint8 ``[H, W, C]`` of a shape, as :func:`load_images` reads it.

    Args:
        source: An image file, or one in memory.
        shape: (H, W, C).
        stretch: Whether an image of another size is stretched to it (bilinear); otherwise it is refused.

    Raises:
        Unreadable: When it cannot be decoded, has another size, or has colours where grey is needed.
    """
    height, width, channels = shape

    def read(image: Any) -> NDArray[np.uint8]:
        upright = _upright(image)
        if not stretch and upright.size != (width, height):
            own = "×".join(map(str, reversed(upright.size)))
            raise Unreadable(f"it is {own}; images of {height}×{width} pixels are needed, as in training")
        levels = np.asarray(upright.resize((width, height), pillow().Resampling.BILINEAR), dtype=np.uint8)
        if levels.ndim == 2:
            return np.repeat(levels[..., None], channels, axis=2)  # a grey one has equal channels
        if channels == 1 and (levels != levels[..., :1]).any():
            raise Unreadable("it has colours; grey images are needed, as in training")
        return levels[..., :channels]

    return reading(source, read)


def _upright(image: Any) -> Any:
    """Return a picture as its camera was held, grey with 256 levels or RGB; transparency is dropped."""
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(image)
    return _eight_bit(upright).convert("L") if image.mode in _GREY else upright.convert("RGB")


def _read(path: Path, read: Callable[[Any], T]) -> T:
    try:
        return reading(path, read)
    except Unreadable as fault:
        raise BadFile(f"image {str(path)!r} cannot be read: {fault}.") from fault


def resize_images(path: Path, images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Resize the images ``[N, H, W, C]`` of a file to a square (bilinear)."""
    if images.shape[1:3] == (size, size):
        return images
    check_unpacked(path, len(images) * size * size * images.shape[3])
    module = pillow("resizing images")
    flat = images[..., 0] if images.shape[3] == 1 else images
    small = [np.asarray(module.fromarray(image).resize((size, size), module.Resampling.BILINEAR)) for image in flat]
    return np.array(small, dtype=np.uint8).reshape(len(images), size, size, images.shape[3])


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return every array of an npz file, by its name.

    Raises:
        BadFile: When it cannot be read.
    """
    return read_npz(path, lambda shapes: shapes)


ProblemKind = Literal[
    "label without image", "image without label", "without grade", "duplicate id", "same photograph", "unreadable",
    "no disc", "too dark",
]  # fmt: skip
"""Photographs without a disc and dark ones are used; all others are left out."""

USED: tuple[ProblemKind, ...] = ("no disc", "too dark")
EXAMPLES_NAMED = 3
"""Photographs named in one sentence of the summary."""

_HEADINGS: dict[ProblemKind, str] = {
    "label without image": "Labels without an image",
    "image without label": "Images without a label",
    "without grade": "Photographs without a grade from 0 to 4",
    "duplicate id": "Ids that occur more than once",
    "same photograph": "Copies of another photograph",
    "unreadable": "Files that cannot be read",
    "no disc": "Photographs in which no disc of an eye was found, used whole",
    "too dark": "Photographs that are very dark, used",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with one photograph.

    Attributes:
        kind: The kind of problem.
        id: The photograph, by its id or file.
        details: Details, for a reader.
    """

    kind: ProblemKind
    id: str
    details: str = ""

    def line(self) -> str:
        """Return one line of the report."""
        text = f"{self.id}: {self.kind}{': ' + self.details if self.details else ''}"
        if self.kind == "duplicate id":  # its details say which labels are used
            return text
        return f"{text} ({'kept' if self.kind in USED else 'left out'})"


def summary(problems: Sequence[Problem]) -> tuple[str, ...]:
    """Return a sentence for each kind of problem: how many there are, and the first of them."""
    sentences = []
    for kind, heading in _HEADINGS.items():
        same = [problem for problem in problems if problem.kind == kind]
        if same:
            examples = same[:EXAMPLES_NAMED]
            named = ", ".join(f"{item.id}{f' ({item.details})' if item.details else ''}" for item in examples)
            more = ", …" if len(same) > EXAMPLES_NAMED else ""
            sentences.append(f"{heading}: {len(same):,}: {named}{more}.")
    return tuple(sentences)


def left_out_counts(problems: Sequence[Problem]) -> dict[str, int]:
    """Return reason → number of photographs that are left out; of an id that occurs twice one label is used."""
    kinds = Counter(problem.kind for problem in problems if problem.kind not in (*USED, "duplicate id"))
    return {f"as the problem {kind!r} says": count for kind, count in kinds.items()}


_SECONDS = 0.2


def progress_on_screen(action: str) -> Callable[[int, int], None] | None:
    """Return a function that shows progress on one line of standard error, or None where that is not a terminal."""
    if not sys.stderr.isatty():
        return None
    last = [0.0]

    def show(count: int, total: int) -> None:
        now = time.monotonic()
        if count < total and now - last[0] < _SECONDS:
            return
        last[0] = now
        sys.stderr.write(f"\r{action}: {count:,} of {total:,}" + ("\n" if count == total else ""))
        sys.stderr.flush()

    return show
