"""Device models: names, lookups, occupancy."""

import pytest

from fuser import device
from fuser.errors import DeviceError


@pytest.mark.parametrize("name", device.names())
def test_every_model_is_usable(name: str) -> None:
    d = device.find(name)
    assert d.kind == ("cpu" if name == "cpu" else "cuda")
    assert min(d.sms, d.bandwidth, d.issue, d.special, d.launch_us, d.inflight, d.argument_bytes) > 0


def test_spellings() -> None:
    assert device.find("sm_90a") is device.find("sm_90")
    assert device.find("compute_80") is device.find("sm_80")
    assert device.find("cuda").name == device.DEFAULT_CUDA


def test_an_architecture_between_two_known_ones_takes_the_older_numbers() -> None:
    found = device.find("sm_101")
    assert found.name == "sm_101"
    assert found.sms == device.find("sm_100").sms


@pytest.mark.parametrize(("name", "hint"), [("sm90", "sm_90"), ("sm_60", "sm_"), ("tpu", "known")])
def test_unknown_names_are_refused_with_what_is_near(name: str, hint: str) -> None:
    with pytest.raises(DeviceError, match="is not known") as caught:
        device.find(name)
    assert hint in str(caught.value)


def test_occupancy_follows_registers_and_shared_memory() -> None:
    h200 = device.find("sm_90")
    assert h200.occupancy(32, 256) == 2048
    assert h200.occupancy(64, 256) == 1024
    assert h200.occupancy(255, 256) == 256
    assert h200.occupancy(32, 256, shared=100 << 10) == 512
    assert h200.occupancy(33, 256) == h200.occupancy(40, 256)
