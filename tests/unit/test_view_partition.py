"""Cuts beside each other: rows, words, the picture, and what the widget answers."""

import base64
import re
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pplab
from pplab.core.costs import Costs
from pplab.core.partition import DoesNotFit, Links, Partition, PartitionError, compare, devices
from pplab.core.partition.examples import article
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedules import gpipe, interleaved
from pplab.view import colours, compare_partitions, partition_bundle
from pplab.view.partition import PartitionComparison
from pplab.view.partition_card import picture
from pplab.view.partition_colours import STAGES, stage_colour
from pplab.view.partition_rows import Rows, signed
from pplab.view.show import WIDGET


def model(layers: int = 12, source: str = "made up") -> Profile:
    """Equal blocks between a cheap embedding and a heavy head that shares its weights."""
    block = {"parameters": 7_000_000, "activation_bytes": 60_000_000}
    found = [LayerProfile("embed", 0.0004, 0.0009, parameters=12_000_000, tied="wte")]
    found += [LayerProfile(f"block.{i}", 0.004, 0.008, **block) for i in range(layers)]
    found += [LayerProfile("head", 0.012, 0.022, parameters=12_000_000, tied="wte")]
    return Profile(tuple(found), source=source)


def texts_of(figure: Any) -> list[str]:
    return [t.get_text() for t in figure.texts] + [
        t.get_text() for ax in figure.axes for t in ax.texts
    ]


# -- what a cell shows ---------------------------------------------------------------------------


def test_partitions_and_comparisons_show_themselves() -> None:
    cuts = compare(article(), 3, ("uniform", "minimax"))
    for shown in (cuts, cuts[0], cuts[1]):
        data = shown._repr_mimebundle_()
        assert set(data) == {WIDGET, "image/png", "text/plain"}
        assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
        assert data["text/plain"].startswith("[simulated] ")
    assert isinstance(cuts, list) and str(cuts).count("\n") == 1
    assert compare(article(), 3, ())._repr_mimebundle_() == {"text/plain": "no partitions"}
    assert set(partition_bundle([cuts[0]])) == {WIDGET, "image/png", "text/plain"}


def test_public_names() -> None:
    assert pplab.partition([1, 2, 3], 2).bounds == (0, 2, 3)
    assert pplab.devices(2, speed=[1, 2])[1].speed == 2 and pplab.Links(latency=1).latency == 1
    assert pplab.LayerProfile("a", 1, 2).time == 3
    assert isinstance(pplab.compare_partitions([1, 2, 3], 2), PartitionComparison)


def test_default_methods_leave_out_what_the_profile_does_not_know() -> None:
    names = [row.name for row in compare_partitions(article(), 3).rows.rows]
    assert names == ["uniform", "optimal"]
    names = [row.name for row in compare_partitions(model(), 3).rows.rows]
    assert names == ["uniform", "parameters", "optimal"]


def test_what_can_be_compared() -> None:
    cuts = compare(article(), 3, ("uniform", "minimax", [0, 1, 2, 8], [0, 2, 3, 8]))
    names = [row.name for row in compare_partitions(cuts).rows.rows]
    assert names == ["uniform", "minimax", "bounds", "bounds 2"]
    named = compare_partitions({"before": cuts[0], "after": cuts[1]})
    assert [row.name for row in named.rows.rows] == ["before", "after"]
    assert [row.name for row in compare_partitions(cuts[0]).rows.rows] == ["uniform"]
    other = pplab.partition(article(), 3, "uniform", schedule=gpipe)
    two = compare_partitions({"1F1B": cuts[0], "GPipe": other})
    assert "1F1B, 3 stages, 8 micro-batches and GPipe, 3 stages" in two.rows.setting()


def test_refusals_say_what_to_do() -> None:
    cuts = compare(article(), 3, ("uniform", "minimax"))
    with pytest.raises(TypeError, match="cut already: stages, schedule cannot be set here"):
        compare_partitions(cuts, 3, schedule=gpipe)
    with pytest.raises(TypeError, match="a list of partitions holds 3"):
        compare_partitions([cuts[0], 3])
    with pytest.raises(ValueError, match="at least one partition"):
        compare_partitions([])
    with pytest.raises(ValueError, match="uniform and bounds cut different profiles"):
        compare_partitions([cuts[0], pplab.partition([1, 2, 3], 3, [0, 1, 2, 3])])
    with pytest.raises(ValueError, match=r"given for best; the partitions are called uniform, min"):
        compare_partitions(cuts, measured={"best": [1, 2, 3]})
    with pytest.raises(ValueError, match="uniform has 3 slices and 2 measured times"):
        compare_partitions(cuts, measured={"uniform": [1, 2]})
    with pytest.raises(ValueError, match="finite and not negative"):
        compare_partitions(cuts, measured={"uniform": [1, 2, float("nan")]})
    with pytest.raises(DoesNotFit):
        compare_partitions(model(), 3, ["optimal"], devices=devices(3, memory=1e8))


# -- words ---------------------------------------------------------------------------------------


def test_the_sentence_is_made_from_the_numbers() -> None:
    shown = compare_partitions(article(), 3)
    uniform, best = (row.partition for row in shown.rows.rows)
    longer = uniform.step / best.step - 1
    assert f"Uniform takes {uniform.step:.0f} units a step, {longer * 100:.1f} % longer" in str(
        shown
    )
    assert "160 units (stage 1)" in str(shown) and "115 units (stage 0)" in str(shown)
    alone = str(compare_partitions(article(), 3, ["optimal"]))
    assert alone.startswith(f"[simulated] The optimal cut: {best.step:.0f} units a step, ")


def test_predictions_from_measured_layers_are_marked_as_measured() -> None:
    """They change from run to run, and a test of a notebook must know."""
    text = str(compare_partitions(model(source="measured: 2 CPU cores"), 3))
    assert all(line.startswith("[measured] ") for line in text.split("\n"))
    assert "[measured]" not in str(compare_partitions(model(), 3))


def test_measured_times_stand_beside_the_predicted_ones() -> None:
    cuts = compare(model(), 3, ("uniform", "optimal"))
    times = (cuts[0].loads * [1, 1.25, 0.9]).tolist()
    shown = compare_partitions(cuts, measured={"uniform": times})
    last = str(shown).split("\n")[-1]
    assert last.startswith("[measured] uniform: the slices took ")
    assert "slice 1 is furthest off, +25.0 % against the predicted" in last
    assert shown.about["rows"][0]["excess"] == ["0.0 %", "+25.0 %", "-10.0 %"]
    assert any("(+25.0 %)" in text for text in texts_of(picture(shown.rows)))
    assert shown.rows.longest == pytest.approx(max(sum(times), cuts[0].loads.sum()))


def test_measured_times_come_from_a_run_with_the_same_cut() -> None:
    cut = pplab.partition(model(), 3, "uniform")
    costs = Costs(cut.forward * 2, np.tile(cut.backward[:, None] * 2, 8), unit="s")
    run = SimpleNamespace(costs=costs, bounds=cut.bounds)
    for found in (run, costs):
        shown = compare_partitions(cut, measured={"uniform": found})
        assert shown.rows.rows[0].measured == pytest.approx((cut.loads * 2).tolist())
    run.bounds = (0, 1, 2, 14)
    with pytest.raises(ValueError, match=r"run for uniform was cut at \[0, 1, 2, 14\], not \[0, 5"):
        compare_partitions(cut, measured={"uniform": run})
    with pytest.raises(ValueError, match="measured for uniform are in 's', the profile's in 'un"):
        units = pplab.partition(article(), 3, "uniform")
        compare_partitions(units, measured={"uniform": costs})


def test_what_does_not_fit_is_said_everywhere() -> None:
    shown = compare_partitions(model(), 3, devices=devices(3, memory=[0.9e9, 1.5e9, 3e9]))
    row = shown.rows.rows[0]
    assert row.partition.overfull == (0,) and shown.rows.best is not None
    assert shown.rows.best.partition.fits
    assert "but does not fit; optimal takes" in str(shown)
    assert "does not fit: stage 0 needs" in str(shown)
    assert any("does not fit: stage 0" in text for text in texts_of(picture(shown.rows)))
    tied = pplab.partition(model(), 3, "uniform", micro_batches=6, chunks=2,
                           schedule=interleaved, keep_tied=True)  # fmt: skip
    assert "keeps tied layers on different ranks" in str(Rows.of([tied]))


def test_when_nothing_fits_the_other_cuts_are_still_shown() -> None:
    shown = compare_partitions(model(), 3, devices=devices(3, memory=3e8))
    assert [row.name for row in shown.rows.rows] == ["uniform", "parameters"]
    assert shown.rows.best is None and "Nothing fits: even the cut" in str(shown)
    assert shown.about["best"] is None and shown.about["why"] in texts_joined(shown)


def texts_joined(shown: PartitionComparison) -> str:
    return " ".join(texts_of(picture(shown.rows)))


@pytest.mark.parametrize(
    ("share", "text"), [(0.182, "+18.2 %"), (-0.03, "-3.0 %"), (0, "0.0 %"), (-1e-9, "0.0 %")]
)
def test_signed(share: float, text: str) -> None:
    assert signed(share) == text


# -- the picture ---------------------------------------------------------------------------------


def test_boxes_are_as_wide_as_their_time() -> None:
    shown = compare_partitions(article(), 3)
    figure = picture(shown.rows)
    boxes = [ax for ax in figure.axes if ax.patches]
    assert len(boxes) == 2
    for ax, row in zip(boxes, shown.rows.rows, strict=True):
        wide = [p.get_width() for p in ax.patches if p.get_facecolor()[3]]
        assert np.array(wide) + 1.4 == pytest.approx(row.partition.loads * wide[0] / row.partition
                                                     .loads[0], rel=0.03)  # fmt: skip
        outlined = [p for p in ax.patches if p.get_linewidth() > 1.5]
        assert len(outlined) == 1  # the heaviest stage
    said = texts_of(figure)
    assert "▲ stage 1: 160 units" in said and "▲ stage 0: 115 units" in said
    assert {"layer 0", "layer 3"} <= set(said)


@pytest.mark.parametrize("layers", [4, 30, 1_000])
def test_from_few_layers_to_a_thousand(layers: int) -> None:
    costs = np.random.default_rng(layers).lognormal(size=layers)
    shown = compare_partitions(costs, min(32, layers), micro_batches=8)
    data = shown._repr_mimebundle_()
    assert len(base64.b64decode(data["image/png"])) < 100_000
    assert len(data["text/plain"]) < 1_500


def test_of_many_layers_most_are_named_or_none_is_and_every_stage_is() -> None:
    costs = 1 + np.random.default_rng(1).random(60).round(2)
    figure = picture(compare_partitions(costs, 8, ("uniform",)).rows)
    assert not any(text.get_text().isdigit() for ax in figure.axes for text in ax.texts)
    below = [text.get_text() for text in figure.texts if text.get_fontsize() == 8.5]
    found = [re.match(r"(?:▲ )?(?:stage )?(\d)(?::|$)", text) for text in below]
    assert sorted(name[1] for name in found if name) == list("01234567")
    figure = picture(compare_partitions(costs[:12], 4, ("uniform",)).rows)
    names = [text.get_text() for ax in figure.axes for text in ax.texts]
    assert len(names) == 12


def test_a_long_name_stays_large_enough_to_read() -> None:
    cut = pplab.partition(article(), 3, "uniform")
    figure = picture(compare_partitions({"what everybody does at first": cut}).rows)
    name = next(t for t in figure.texts if t.get_text().startswith("what every"))
    assert name.get_text().endswith("…") and name.get_fontsize() >= 7.5


def test_chunks_have_the_colour_of_their_rank_and_get_lighter() -> None:
    shown = compare_partitions(model(16), 3, ["optimal"], schedule=interleaved, micro_batches=6)
    said = " ".join(texts_of(picture(shown.rows)))
    assert "2.1: rank 2, chunk 1" in said and "▲" in said
    assert shown.rows.piece == "rank" and shown.about["problems"][0]["chunk"] == [0, 0, 0, 1, 1, 1]
    assert stage_colour(2) == STAGES[2] and stage_colour(2 + len(STAGES)) == STAGES[2]
    lights = [colours.luminance(stage_colour(1, chunk, 3)) for chunk in range(3)]
    assert lights == sorted(lights) and len(set(lights)) == 3


def test_stage_colours_can_be_read() -> None:
    for colour in STAGES:
        for page in ("#ffffff", "#111111"):
            assert colours.contrast(colour, page) >= 3
        for chunk in range(3):
            shade = stage_colour(STAGES.index(colour), chunk, 3)
            assert colours.contrast(colours.ink_on(shade), shade) >= 4.5
    assert not set(STAGES) & set(colours.WORK.values())


#: Machado, Oliveira & Fernandes (2009), severity 1: what each kind of eye sees, in linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
               [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def lab(colour: str, sight: Any) -> np.ndarray:
    """CIE L*a*b* of a colour as an eye sees it."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(sight) @ linear, 0, 1)
    matrix = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(matrix) @ seen / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
def test_neighbours_differ_for_every_kind_of_colour_vision(sight: str) -> None:
    for one, other in pairwise((*STAGES, STAGES[0])):
        assert np.linalg.norm(lab(one, SIGHT[sight]) - lab(other, SIGHT[sight])) >= 25


# -- the widget ----------------------------------------------------------------------------------


def asked(shown: PartitionComparison, **wish: Any) -> None:
    """What the page sends."""
    shown._asked(shown, wish, None)


def test_an_untouched_widget_has_the_first_partition() -> None:
    cuts = compare(article(), 3, ("uniform", "optimal"))
    shown = compare_partitions(cuts)
    assert shown.partition is cuts[0]
    shown.show(base=1, bounds=list(cuts[1].bounds))
    assert shown.partition is cuts[1] and shown.partition.proof


def test_a_drag_reaches_python_and_the_answer_is_the_simulators() -> None:
    shown = compare_partitions(article(), 3)
    before, text = shown.rev, str(shown)
    asked(shown, bounds=[0, 2, 6, 8], base=0, seq=7)
    cut = shown.partition
    assert isinstance(cut, Partition) and cut.bounds == (0, 2, 6, 8) and cut.method == "bounds"
    assert shown.seq == 7 and shown.rev > before
    best = shown.rows.best
    assert best is not None
    assert shown.meta["step"] == f"{cut.step:.4g} units"
    assert shown.meta["bubble"] == f"{cut.bubble * 100:.1f} %"
    assert shown.meta["lost"] == signed(cut.step / best.partition.step - 1)
    assert shown.meta["text"] == str(shown) != text and "yours" in str(shown)
    asked(shown, nudge=10)  # keeps the connection awake, and asks nothing
    assert shown.rev == before + 1


def test_where_a_drag_ended_is_kept_at_once() -> None:
    shown = compare_partitions(article(), 3)
    asked(shown, settled=[0, 1, 6, 8], base=0)
    assert shown.partition.bounds == (0, 1, 6, 8)


def test_moving_from_python() -> None:
    shown = compare_partitions(article(), 3)
    shown.move(2, 5)
    assert shown.partition.bounds == (0, 3, 5, 8) and shown.params["bounds"] == [0, 3, 5, 8]
    with pytest.raises(PartitionError, match="empty"):
        shown.move(1, 5)
    with pytest.raises(IndexError, match="1 to 2"):
        shown.move(3, 5)
    with pytest.raises(PartitionError, match="2 partitions to start from, not number 2"):
        shown.show(base=2)
    assert shown.partition.bounds == (0, 3, 5, 8)


def test_rows_with_problems_of_their_own() -> None:
    """Another order of devices, another price of a parameter: each row keeps its own."""
    plain = pplab.partition(model(), 2, "uniform", bytes_per_parameter=2)
    fast = pplab.partition(
        model(), 2, "uniform", devices=devices(2, speed=[1, 2], names=["A", "B"])
    )
    shown = compare_partitions({"plain": plain, "fast": fast})
    one, other = shown.about["problems"]
    assert one["speed"] == [1, 1] and other["speed"] == [1, 2]
    assert other["devices"] == ["A", "B"] and [p["number"] for p in (one, other)] == [0, 1]
    asked(shown, bounds=[0, 4, 14], base=1, seq=1)
    assert shown.partition.devices[1].speed == 2 and shown.partition.bounds == (0, 4, 14)


def test_messages_are_told_with_the_cut() -> None:
    links = Links(latency=0.5)
    shown = compare_partitions(article(), 3, links=links)
    assert shown.meta["messages"] == ["0.5 units", "0.5 units"]
    assert compare_partitions(article(), 3).meta["messages"] == ["", ""]


def test_what_a_notebook_carries_is_small() -> None:
    shown = compare_partitions(np.ones(1_000), 8)
    assert len(shown._esm) < 25_000 and len(shown._css) < 10_000
    assert shown.about["names"] == [] and len(shown.spans) < 50_000
