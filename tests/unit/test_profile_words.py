"""A profile in words and as a picture, and what may be profiled at all."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from PIL import Image

from pplab import cli, cli_profile, models
from pplab.core.profile import LayerProfile, Profile
from pplab.core.profile_words import in_bytes, lines, table
from pplab.runtime.profiling.subject import describe, pack
from pplab.view.profile_card import profile_bundle, profile_png, profile_text, runs

BLOCK = LayerProfile("1 Block", 2e-3, 4e-3, 1e-4, 1000, 4000, 3 << 20, 1 << 17, "Block")
EMBED = LayerProfile("0 Embedding", 5e-4, 5e-4, 0, 500, 2000, 2048, 1 << 17, "Embedding")


def measured(blocks: int = 8) -> Profile:
    source = "measured: computed, 1 thread, fp32"
    return Profile((EMBED, *[BLOCK] * blocks), source, "s", 4, {"cores": 2}, ("a note",))


def test_a_table_with_a_line_a_layer() -> None:
    said = str(measured(2)).splitlines()
    assert said == [
        "3 layers, 2,500 parameters, 13 ms a micro-batch (measured: computed, 1 thread, fp32)",
        "layer        F (ms)  B (ms)  ± (ms)  share  parameters  kept for B  handed on",
        "0 Embedding     0.5     0.5       0   7.7%    1.95 KiB       2 KiB    128 KiB",
        "1 Block           2       4     0.1  46.2%    3.91 KiB       3 MiB    128 KiB",
        "1 Block           2       4     0.1  46.2%    3.91 KiB       3 MiB    128 KiB",
        "note: a note",
    ]


def test_columns_that_nobody_measured_are_left_out() -> None:
    rows = table(Profile.of([3, 6]))
    assert rows[0] == ["layer", "F (units)", "B (units)", "share"]
    assert rows[2] == ["layer 1", "2", "4", "66.7%"]


def test_a_long_table_is_cut_in_the_middle() -> None:
    said = lines(table(measured(99)))
    assert len(said) == 1 + 24 + 1 + 8
    assert said[25].strip() == "... 68 more ..."


def test_one_layer_is_one_layer() -> None:
    assert str(Profile.of([1])).startswith("1 layer, ")


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 B"), (1023, "1023 B"), (2048, "2 KiB"), (3.3 * 2**30, "3.3 GiB")]
)
def test_bytes_in_words(count: float, said: str) -> None:
    assert in_bytes(count) == said


def test_an_output_has_a_picture_and_marked_words() -> None:
    data = profile_bundle(measured())
    assert set(data) == {"text/plain", "image/png"}
    assert all(line.startswith("[measured] ") for line in data["text/plain"].splitlines())
    assert profile_text(Profile.of([1, 2])).startswith("2 layers")
    assert repr(measured()).startswith("[measured] 9 layers")


@pytest.mark.parametrize(
    "profile", [measured(), measured(400), Profile.of([1, 2]), Profile.of([0])]
)
def test_pictures_of_any_size(profile: Profile) -> None:
    png = profile_png(profile)
    assert len(png) < 60_000
    width, height = Image.open(io.BytesIO(png)).size
    assert width == 946 and 300 < height < 600


def test_layers_of_one_kind_in_a_row() -> None:
    assert runs(list("abbba")) == [("a", 0, 1), ("b", 1, 3), ("a", 4, 1)]


# -- what may be profiled -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "sample", "kind", "words"),
    [
        (models.gpt(), [1], ValueError, "gpt brings its own micro-batches"),
        (models.paced(), None, ValueError, "say how many paced layers"),
        ([], [1], ValueError, "the list of layers is empty"),
        ([abs], None, ValueError, "needs a sample of its input"),
        ({"n_layer": 2}, None, TypeError, 'with its "model_type"'),
        (3, None, TypeError, "int cannot be profiled; give pplab.models.gpt"),
        ("nowhere.json", None, ValueError, "nowhere.json is not the config.json"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(model, sample, kind, words) -> None:
    with pytest.raises(kind, match=words):
        describe(model, sample)


def test_a_config_is_known_by_its_model_type(tmp_path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "gpt2"}')
    for given in ({"model_type": "gpt2"}, str(path), path):
        assert describe(given, None).settings == {"name": "Hugging Face gpt2"}
    path.write_text("[3]")
    with pytest.raises(ValueError, match="is not the config"):
        describe(path, None)


def test_what_cannot_be_sent_is_said() -> None:
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        pack(describe([(i for i in [1])], [1]))


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from pplab import models\nsmall = models.gpt(2, 32)\nx = [[1.0]]\n")
    return path


def test_the_command_finds_a_model_by_name(file) -> None:
    model, sample = cli_profile.load(f"{file}:small", "x")
    assert str(model).startswith("gpt(layers=2") and sample == [[1.0]]


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("{}:nope", [], "mine.py defines no 'nope'"),
        ("{}:small", ["--sample", "y"], "defines no 'y'"),
        ("/nowhere.py:a", [], "there is no file /nowhere.py"),
        ("gpt2", [], "'gpt2' is neither FILE.py:NAME nor a config.json"),
        ("a.json", ["--sample", "x"], "a config brings its own"),
    ],
)
def test_the_command_says_what_is_not_there(file, model, options, words, capsys) -> None:
    assert cli.main(["profile", model.format(file), *options]) == 2
    assert words in capsys.readouterr().err


def test_describing_and_asking_load_neither_torch_nor_deepspeed() -> None:
    code = (
        "import sys, pplab; from pplab import models; pplab.profile\n"
        "from pplab.runtime.profiling import subject, ask\n"
        "subject.pack(subject.describe(lambda: [], [[1.0]]))\n"
        "print(*[n for n in ('torch', 'deepspeed', 'transformers') if n in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == []
