"""An image pipeline on a real photograph: luminance, contrast stretch, unsharp mask.

The photograph (Eileen Collins, NASA, public domain) ships with scikit-image.
Run: python examples/photograph.py [--dump-graph]
"""

import numpy as np

import fuser
from fuser import script


@fuser.compile
def sharpen(photo: "u8[h, w, 3]", amount: float = 0.7):
    """Grey levels stretched to [0, 1], then sharpened."""
    rgb = photo.astype(np.float32) / 255
    grey = 0.2126 * rgb[..., 0] + 0.7152 * rgb[..., 1] + 0.0722 * rgb[..., 2]
    low, high = grey.min(), grey.max()
    grey = (grey - low) / (high - low)
    blurred = grey.copy()
    blurred[1:-1, 1:-1] = (grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:]) / 4
    return np.clip(grey + amount * (grey - blurred), 0, 1)


def inputs():
    """The photograph, 512 x 512 pixels."""
    from skimage import data

    return [data.astronaut()]


if __name__ == "__main__":
    script.main(sharpen, inputs)
