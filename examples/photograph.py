"""An image pipeline on a real photograph: luminance, unsharp mask, contrast stretch.

The photograph (Eileen Collins, NASA, public domain) ships with scikit-image.
Run: python examples/photograph.py [--dump-graph]
"""

import numpy as np

import fuser
from fuser import script


@fuser.compile
def sharpen(photo: "u8[h, w, 3]", amount: float = 0.7):
    """Grey levels in [0, 1], sharpened and stretched to the full range."""
    rgb = photo.astype(np.float32) / 255
    grey = 0.2126 * rgb[..., 0] + 0.7152 * rgb[..., 1] + 0.0722 * rgb[..., 2]
    blurred = grey.copy()
    blurred[1:-1, 1:-1] = (grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:]) / 4
    sharp = grey + amount * (grey - blurred)
    low, high = sharp.min(), sharp.max()
    return (sharp - low) / (high - low)


def inputs():
    """The photograph, 512 x 512 pixels."""
    from skimage import data

    return [data.astronaut()]


if __name__ == "__main__":
    script.main(sharpen, inputs)
