"""Black-Scholes prices of European calls and puts: forty operators, one kernel, one read of each input.

Run: python examples/black_scholes.py [--dump-graph]
"""

import numpy as np

import fuser
from fuser import script


def cdf(x):
    """Normal distribution function."""
    return 0.5 * (1 + fuser.ops.erf(x / np.sqrt(2.0)))


@fuser.compile
def black_scholes(spot: "f64[n]", strike: "f64[n]", years: "f64[n]", rate: float = 0.03, volatility: float = 0.25):
    """Prices of a call and a put from spot price, strike price and time to maturity."""
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / spread
    d2 = d1 - spread
    discounted = strike * np.exp(-rate * years)
    call = spot * cdf(d1) - discounted * cdf(d2)
    put = call - spot + discounted
    return call, put


def inputs():
    """A hundred thousand options."""
    rng = np.random.default_rng(0)
    n = 100_003
    return [rng.uniform(50, 150, n), rng.uniform(50, 150, n), rng.uniform(0.1, 2, n)]


if __name__ == "__main__":
    script.main(black_scholes, inputs)
