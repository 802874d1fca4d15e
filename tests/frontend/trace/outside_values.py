"""A module whose values programs read: tests change them between calls."""

from typing import Any

import numpy as np

SCALE = 2.0
W = np.array([1.0, 2.0, 3.0, 4.0])


class Settings:
    SCALE = 2.0


def scaled(x: Any) -> Any:
    return x * SCALE
