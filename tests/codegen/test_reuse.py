"""What stages of a resident row keep for each other: raw elements, or values computed from them."""

from fuser.codegen.program import Apply, Fetch, Program
from fuser.codegen.schedule.cuda import body_of
from fuser.codegen.schedule.lower_resident import reuse_of
from fuser.codegen.schedule.reuse import Reuse
from fuser.dtypes import BF16, F32, DType
from tests.codegen.corpus import Case


def reuse(name: str, dtype: DType) -> tuple[Reuse, list[Program]]:
    case = Case(name, dtype, (("n", 4096), ("m", 4096), ("k", 1)))
    (group,) = case.groups
    body = body_of(case.graph, group, case.size_class.layouts)
    return reuse_of(body), [s.loop for s in body.stages]


def taken(found: Reuse, programs: list[Program], stage: int) -> list[str]:
    steps = [programs[stage].steps[k] for k in found.stages[stage].taken]
    return [s.op for s in steps if isinstance(s, Apply)]


def test_an_exponential_as_wide_as_its_element_is_kept() -> None:
    found, programs = reuse("softmax", F32)
    assert len(programs) == 3
    assert taken(found, programs, 2) == ["exp"]
    assert found.stages[2].raw == {}
    assert found.bytes_kept == 4


def test_a_cheap_exponential_of_a_half_row_is_computed_again() -> None:
    found, programs = reuse("softmax", BF16)
    assert [s.op for s in programs[1].steps if isinstance(s, Apply) and s.op.startswith("exp")] == ["exp.fast"]
    assert taken(found, programs, 2) == []
    assert found.bytes_kept == 2


def test_half_rows_keep_raw_elements_of_cheap_values() -> None:
    found, _ = reuse("layer_norm", BF16)
    assert all(not s.taken for s in found.stages)
    assert found.bytes_kept == 2
    assert all(len([f for f in s.raw.values() if f.dtype == BF16]) >= 1 for s in found.stages)


def test_a_value_no_wider_than_its_inputs_is_kept() -> None:
    found, programs = reuse("residual_norm", F32)
    assert taken(found, programs, 1) == ["add"]
    assert [f.dtype for f in found.stages[0].raw.values()] == [F32, F32]
    (weight,) = found.stages[1].raw.values()
    assert isinstance(weight, Fetch)


def test_what_is_taken_is_not_computed_again() -> None:
    found, _ = reuse("softmax", F32)
    last = found.stages[2]
    assert not any(last.needed[k] for k in last.taken)
    assert set(last.taken.values()) <= set(found.stages[1].kept.values())
