"""Layered placement: boxes lie apart and below what they read, at any size, the same each time."""

import random
from itertools import combinations

import pytest

from fuser.draw import layout
from fuser.draw.layout_plan import LIMIT, Scene, scene
from tests.draw import examples


def random_dag(seed: int, count: int) -> tuple[dict[int, layout.Point], list[tuple[int, int]]]:
    draw = random.Random(seed)
    sizes = {k: (float(draw.randint(20, 300)), float(draw.randint(10, 90))) for k in range(count)}
    edges = [(draw.randrange(max(0, k - 9), k), k) for k in range(1, count) for _ in range(2) if draw.random() < 0.8]
    return sizes, edges


@pytest.mark.parametrize("seed", range(6))
def test_boxes_lie_apart_and_in_order(seed: int) -> None:
    sizes, edges = random_dag(seed, 60)
    placed = layout.place(sizes, edges)
    for a, b in combinations(sizes, 2):
        (ax, ay), (bx, by) = placed.corners[a], placed.corners[b]
        beside = ax + sizes[a][0] <= bx + 0.01 or bx + sizes[b][0] <= ax + 0.01
        assert beside or ay + sizes[a][1] <= by + 0.01 or by + sizes[b][1] <= ay + 0.01, (a, b)
    for a, b in edges:
        assert placed.corners[a][1] + sizes[a][1] < placed.corners[b][1]
    assert min(x for x, _ in placed.corners.values()) >= 0
    assert max(x + sizes[k][0] for k, (x, _) in placed.corners.items()) <= placed.width + 0.01
    assert max(y + sizes[k][1] for k, (_, y) in placed.corners.items()) == pytest.approx(placed.height)


def test_same_graph_same_picture() -> None:
    assert layout.place(*random_dag(1, 40)) == layout.place(*random_dag(1, 40))


def test_bends_lead_downwards() -> None:
    sizes = dict.fromkeys(range(5), (50.0, 20.0))
    placed = layout.place(sizes, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)])
    heights = [y for _, y in placed.bends[0, 4]]
    assert len(heights) == 6  # both edges of three layers
    assert heights == sorted(heights)


def inside(found: Scene) -> None:
    """Every box of a kernel lies in its region, below the heading; nothing lies outside the picture."""
    regions = {r.position: r for r in found.regions}
    for box in found.boxes:
        assert box.x >= 0
        assert box.x + box.w <= found.width + 0.01
        assert box.y + box.h <= found.height + 0.01
        if box.place[0] in regions:
            r = regions[box.place[0]]
            assert r.x <= box.x, box
            assert box.x + box.w <= r.x + r.w
            assert r.y + 40 <= box.y
            assert box.y + box.h <= r.y + r.h


def test_operators_lie_in_their_kernels() -> None:
    inside(scene(examples.scores()))
    inside(scene(examples.long(120)))


def test_every_read_of_every_kernel_is_one_link() -> None:
    plan = examples.scores()
    memory = [link for link in scene(plan).links if link.memory]
    assert sum(link.bytes for link in memory) == sum(sum(k.reads.values()) for k in plan.outline)
    assert len(memory) == sum(len(g.inputs) for g in plan.groups)
    assert all(link.text for link in memory)


def test_five_hundred_operators() -> None:
    found = scene(examples.long(500))
    assert len(found.boxes) > 500
    inside(found)


def test_beyond_the_limit_kernels_only() -> None:
    plan = examples.long(LIMIT + 10)
    found = scene(plan)
    assert found.brief
    assert len(found.regions) == len(plan.groups)
    assert {b.row.node.op for b in found.boxes} == {"input"}
