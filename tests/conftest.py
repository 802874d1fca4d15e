"""What all tests share: hypothesis's settings, the `slow` and `gpu` markers."""

import ctypes
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every run, and no deadline: a slow machine is not a fault, and a timing is not a test.
settings.register_profile(
    "fuser",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fuser")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = pytest.mark.skip(reason="slow; run with --slow")
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(slow)
        if item.get_closest_marker("gpu") and (reason := why_no_gpu()):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def gpu() -> None:
    """Skip, with the reason, where no CUDA device can be used; for tests that need one in some cases only."""
    if reason := why_no_gpu():
        pytest.skip(reason)


@cache
def why_no_gpu() -> str | None:
    """Ask the driver itself: a fault in fuser's own detection must not skip the tests that would find it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no GPU: libcuda.so.1 not found"
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "no GPU: the driver lists no device"
    return None
