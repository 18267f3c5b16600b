"""Random valid schedules, costs and layouts for the property tests of the core."""

import random

from hypothesis import strategies as st

from pplab.core.layout import Layout
from pplab.core.ops import Op
from pplab.core.schedule import Schedule


@st.composite
def layouts(draw, max_stages=4):
    """Every placement: one chunk, several dealt round and round, a V."""
    stages = draw(st.integers(1, max_stages))
    placement = draw(st.sampled_from(["loop", "v"]))
    chunks = draw(st.integers(1, 3 if placement == "loop" else 2))
    return Layout(stages, chunks, placement)


@st.composite
def schedules(draw, max_stages=4, max_micro_batches=5):
    """A random valid schedule: operations are taken one by one, any that could run now.

    Some backward passes are split; every order that can be executed at all can come out.
    """
    layout = draw(layouts(max_stages))
    M = draw(st.integers(1, max_micro_batches))
    return random_schedule(layout, M, draw(st.integers(0, 2**32)))


def random_schedule(layout, M, seed):
    """One valid schedule of `layout` with M micro-batches, drawn by `seed`."""
    pick = random.Random(seed)
    # Favouring one kind makes GPipe-like and 1F1B-like orders, not only shuffled ones.
    weight = {"F": pick.choice([1, 8]), "B": pick.choice([1, 8]), "W": pick.choice([1, 8])}
    split_share = pick.choice([0, 0.5, 1])
    slices = layout.slices
    todo = {(kind, p, m) for kind in "FB" for p in range(slices) for m in range(M)}
    todo |= {("W", p, m) for _, p, m in list(todo) if pick.random() < split_share}
    rows = [[] for _ in range(layout.stages)]
    done = set()
    while todo:
        ready = sorted(x for x in todo if needs(x, slices) <= done)
        kind, p, m = pick.choices(ready, [weight[x[0]] for x in ready])[0]
        rank, chunk = layout.place_of(p)
        rows[rank].append(Op(kind, m, chunk))
        done.add((kind, p, m))
        todo.remove((kind, p, m))
    return Schedule("random", M, tuple(map(tuple, rows)), layout)


def needs(item, slices):
    """What must have run before (kind, slice, micro-batch): the definition of a pipeline."""
    kind, p, m = item
    if kind == "F":
        return {("F", p - 1, m)} if p > 0 else set()
    if kind == "W":
        return {("B", p, m)}
    return {("F", p, m)} | ({("B", p + 1, m)} if p < slices - 1 else set())
