"""The price of a call option by simulation: the random paths exist only in registers, and one number comes out.

The random numbers depend on the key and the path's number alone, so the price depends neither on the machine's cores
nor on what is fused.
Run: python examples/monte_carlo.py [--dump-graph]
"""

import numpy as np

import fuser
from fuser import script


@fuser.compile
def call_option(strike: "f32[n]", spot: float = 100.0, volatility: float = 0.3, key: int = 7):
    """Mean pay-off, in a year, over one path a strike: the price above the strike, or nothing."""
    shock = fuser.ops.normal(key, strike.shape)
    price = spot * np.exp(volatility * shock - 0.5 * volatility**2)
    return np.maximum(price - strike, 0).mean()


def inputs():
    """Two hundred thousand paths, all with the strike at 100."""
    return [np.full(200_000, 100, dtype=np.float32)]


if __name__ == "__main__":
    script.main(call_option, inputs)
