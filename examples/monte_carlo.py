"""The price of an Asian option by simulation: random paths that exist only in registers, one number out.

The random numbers depend on the key and the path's number alone, so the price does not depend on the machine's cores.
Run: python examples/monte_carlo.py [--dump-graph]
"""

import numpy as np

import fuser
from fuser import script


@fuser.compile(static_argnames=("steps",))
def asian_call(strike: "f32[n]", spot: float = 100.0, volatility: float = 0.3, key: int = 7, steps: int = 3):
    """Mean pay-off over one path a strike: the average price of `steps` days above the strike, or nothing."""
    price = np.full_like(strike, spot)
    total = np.zeros_like(strike)
    for day in range(steps):
        shock = fuser.ops.normal(key + day, strike.shape)
        price = price * np.exp(volatility * (1 / 252) ** 0.5 * shock - 0.5 * volatility**2 / 252)
        total = total + price
    return np.maximum(total / steps - strike, 0).mean()


def inputs():
    """Fifty thousand paths, all with the strike at 100."""
    return [np.full(50_000, 100, dtype=np.float32)]


if __name__ == "__main__":
    script.main(asian_call, inputs)
