"""Files as people have them: comments, YAML, nonsense; the command line and its speed."""

import json
import resource
import subprocess
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pplab.advise.check import Report, check
from pplab.advise.check.cli import main, run_check
from pplab.advise.check.reader import LARGEST, ReadError, read

GOOD = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 16,
    "gradient_clipping": 1.0,
    "steps_per_print": 10,
    "zero_optimization": {"stage": 1},
}


def write(path, text, encoding="utf-8"):
    """A file with this text; its path."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return str(path)


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("  \n\n", 1, "empty"),
        ("[1, 2]", 1, "a list"),
        ("5", 1, "single value"),
        ('{\n "a": 1\n "b" 2}', 3, "colon is missing"),
        ('{"a": 1 "b": 2}', 1, "comma is missing"),
        ('{\n "a": [1, 2\n}', 3, "'}'"),
        ('{\n "a": {"b": 1\n', 2, "never closed"),
        ('{\n "a": "open\n}', 2, "never closed"),
        ('{\n "a": bare\n}', 2, "text without quotes"),
        ('{\n "a":\n}', 3, "value is missing"),
        ('{"a": NaN}', 1, "no JSON number"),
        ('{"a": 1}\nmore', 2, "more after the end"),
        ("a: 1\nzero_optimization:\n  stage: 1\n", 2, "YAML"),
        ("---\ntrain_batch_size: 8\n", 1, "YAML"),
        ("# comment\ntrain_batch_size: 8\nfp16:\n  enabled: true\n", 3, "YAML"),
        ('{\n "a": ${SIZE}\n}', 2, "placeholder"),
        ('{\n "a": CONFIG_SIZE,\n "b": 1}', 2, "placeholder"),
        ('{"a": {{ size }}}', 1, "placeholder"),
        ('{"a": <size>}', 1, "placeholder"),
        ("\x00\x01\x02", 1, "binary"),
        ("[" * 5000, 1, "deep"),
        ('{"a":' * 3000, 1, "deep"),
    ],
)
def test_what_is_no_config_is_refused_with_its_line(text, line, words):
    with pytest.raises(ReadError) as caught:
        read(text)
    assert words in caught.value.sentence
    assert caught.value.line == line
    report = check(text) if "{" in text else None
    assert report is None or (report.exit_code == 2 and not report.readable)


@pytest.mark.parametrize(
    ("text", "liberty", "line"),
    [
        ('{\n "a": 1, // one\n "b": 2}', "comment", 2),
        ('{\n # note\n "a": 1}', "comment", 2),
        ('{"a": 1, /* two\n lines */ "b": 2}', "comment", 1),
        ('{"a": 1,\n "b": [1, 2,],\n}', "comma", 2),
        ('{"a": 1\n "b": 2}', "comma", 2),
        ("{'a': 'x'}", "quotes", 1),
        ("{a: 1}", "quotes", 1),
        ('\ufeff{"a": 1}', "bom", 1),
        ('{"a": True}', "words", 1),
    ],
)
def test_what_is_not_strict_json_is_read_and_noted(text, liberty, line):
    document = read(text)
    assert document.value["a"] in (1, "x", True)
    assert document.liberties[liberty] == line
    rule = {"bom": "byte-order-mark", "words": "python-word"}.get(liberty, "not-strict-json")
    assert rule in check(text).rules()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
).map(lambda value: {"x": value}), st.sampled_from([None, 1, 2]))  # fmt: skip
def test_reads_json_as_json_does(value, indent):
    text = json.dumps(value, indent=indent)
    document = read(text)
    assert document.value == value
    assert not document.liberties and not document.duplicates
    rows = text.split("\n")
    for path, line in document.lines.items():
        if isinstance(path[-1], str):
            assert json.dumps(path[-1]) in rows[line - 1]


def test_reads_what_hjson_reads():
    """Where this reader accepts a text, DeepSpeed's makes the same of it."""
    hjson = pytest.importorskip("hjson")
    texts = [
        '{\n // c\n "a": 1, # x\n /* y */ "b": 2}', '{"a":1,}', '{"a":1\n "b":2}',
        "{'a': 1}", '{"a": 5 # five\n}', '{a: 1\n b: [1, 2]}', '{"a": -1.5e3, "b": 1E5}',
        '{"a": "x\\n\\u0041"}',
    ]  # fmt: skip
    for text in texts:
        assert read(text).value == hjson.loads(text), text


def test_duplicate_keys_are_an_error_with_both_lines():
    report = check('{"train_batch_size": 8,\n "fp16": {"enabled": true,\n "enabled": false}}')
    found = [f for f in report.findings if f.rule == "duplicate-key"]
    assert found[0].key == "fp16.enabled" and found[0].line == 3
    assert "lines 2 and 3" in found[0].message


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200) | st.text("{}[]:,\"'#/\n a1.-", max_size=200))
def test_nonsense_never_raises_anything_else(text):
    try:
        read(text)
    except ReadError as error:
        assert error.sentence and 0 <= error.line <= text.count("\n") + 1


ODD = st.recursive(
    st.sampled_from([None, True, False, 0, 1, -3, 2.5, 1e9, "", "auto", "8", "true", "x", [], {}]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(["stage", "enabled", "type", "params", "device", "lr", "x", "offload_param",
                         "offload_optimizer", "grad_accum_dtype", "loss_scale", "ratio"]), inner),
    max_leaves=6,
)  # fmt: skip
TOP = st.sampled_from(
    [
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
        "zero_optimization", "fp16", "bf16", "pipeline", "optimizer", "scheduler", "data_types",
        "gradient_clipping", "steps_per_print", "wall_clock_breakdown", "flops_profiler",
        "activation_checkpointing", "checkpoint", "communication_data_type", "timers", "autotuning",
        "rampup_batch_size", "tensor_parallel", "aio", "num-layers", "hidden-size", "unknown",
        "pipe-parallel-size", "prescale_gradients", "gradient_allreduce_op",
    ]
)  # fmt: skip


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(TOP, ODD, max_size=6), st.sampled_from([None, 1, 8]),
       st.sampled_from([None, 1, 4]), st.booleans())  # fmt: skip
def test_no_config_makes_a_rule_fail(config, ranks, stages, pipeline):
    report = check(config, ranks=ranks, stages=stages, pipeline=pipeline, layers=7, samples=100)
    assert "rule-failed" not in report.rules(), report.text()
    json.loads(report.json())
    assert report.text() and report._repr_html_()
    assert isinstance(report.fixed, dict)
    for finding in report.findings:
        assert finding.message.endswith((".", "?", ")")), finding
        assert finding.severity in ("error", "wrong", "risky", "note")


# -- files and the command line -------------------------------------------------------------------


def test_exit_codes(tmp_path, capsys):
    good = write(tmp_path / "good.json", json.dumps(GOOD))
    bad = write(tmp_path / "bad.json", json.dumps(GOOD | {"gradient_clipp1ng": 1}))
    yaml = write(tmp_path / "job.yaml", "train_batch_size: 8\nfp16:\n  enabled: true\n")
    assert main([good, "--gpus", "8", "--stages", "4"]) == 0
    assert main([bad]) == 1
    assert main([yaml]) == 2
    assert main([str(tmp_path / "missing.json")]) == 2
    assert main([str(tmp_path)]) == 2
    assert main([good, bad, yaml]) == 2
    out = capsys.readouterr().out
    assert "Traceback" not in out and "YAML" in out and "there is no such file" in out


def test_json_output(tmp_path, capsys):
    text = json.dumps(GOOD | {"zero_optimization": {"stage": 3}}, indent=2)
    path = write(tmp_path / "c.json", text)
    assert main([path, "--gpus", "8", "--stages", "4", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    first = found["findings"][0]
    assert (first["rule"], first["severity"]) == ("zero-with-pipeline", "error")
    assert first["key"] == "zero_optimization.stage"
    assert text.split("\n")[first["line"] - 1].strip() == '"stage": 3'
    assert first["message"] and first["fix"]
    resolved = found["resolved"]
    assert resolved["train_batch_size"] == 64 and resolved["replicas"] == 2
    assert resolved["stages"] == 4 and resolved["micro_batches"] == 16
    assert resolved["bubble"] == pytest.approx(3 / 19)
    assert {f["severity"] for f in found["findings"]} <= {"error", "warning", "info"}
    assert main([path, "--no-pipeline", "--json"]) == 0


def test_fix_writes_beside_the_original(tmp_path, capsys):
    config = {
        "train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps ": 8, "gradient_clipp1ng": 0.5,
        "zero_optimization": {"stage": 3, "cpu_offload": True, "stage3_param_persistence": True},
        "fp16": {"enabled": True, "fp16": True},
        "optimizer": {"type": "AdamW", "params": {"lr": "1e-4", "max_grad_norm": 1.0}},
        "pipeline": {"enabled": True, "pipe_parallel_size": 4, "grad_partition": True,
                     "pipe_partitioned": "auto"},
    }  # fmt: skip
    path = write(tmp_path / "c.json", json.dumps(config))
    assert main([path, "--gpus", "8", "--stages", "4", "--fix"]) == 1
    assert json.loads((tmp_path / "c.json").read_text()) == config
    fixed = json.loads((tmp_path / "c.fixed.json").read_text())
    assert fixed == {
        "train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 8, "gradient_clipping": 0.5,
        "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}},
        "fp16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "pipeline": {"grad_partitioned": True},
    }  # fmt: skip
    assert check(fixed, ranks=8, stages=4).ok
    capsys.readouterr()
    assert main([path, "--fix", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["fixed"].endswith("c.fixed.json")


def test_nothing_is_written_when_nothing_can_be_mended(tmp_path):
    path = write(tmp_path / "c.json", json.dumps(GOOD))
    assert main([path, "--fix"]) == 0
    assert not (tmp_path / "c.fixed.json").exists()


def test_encodings_and_sizes(tmp_path, capsys):
    assert main([write(tmp_path / "a", json.dumps(GOOD), "utf-16")]) == 2
    assert main([write(tmp_path / "b", b"\xff\xfe\xfa{")]) == 2
    assert main([write(tmp_path / "c", b'{\n"a": "\xe9"}')]) == 2
    assert main([write(tmp_path / "d", json.dumps(GOOD), "utf-8-sig")]) == 1
    start = time.perf_counter()
    assert main([write(tmp_path / "e", "x" * 10_000_000)]) == 2
    assert main([write(tmp_path / "f", ('{"a": [' * 9 + "1, ") * (LARGEST // 70))]) == 2
    assert time.perf_counter() - start < 10
    out = capsys.readouterr().out
    assert "10.0 MB" in out and "line 2" in out and "utf-16" in out


def test_the_command_line_is_quick_and_loads_nothing_heavy(tmp_path):
    path = write(tmp_path / "c.json", json.dumps(GOOD))
    code = (
        "import sys; from pplab.advise.check.cli import main\n"
        f"main([{path!r}, '--gpus', '8', '--stages', '4'])\n"
        "print([n for n in ('torch', 'deepspeed', 'numpy', 'matplotlib') if n in sys.modules])"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.stdout.strip().endswith("[]"), result.stdout + result.stderr
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 0.5  # of processor time: the machine may be busy with other things


def test_a_report_shows_itself(tmp_path):
    report = check({"train_batch_size": 64, "pipeline": {"<b>": 1}}, ranks=8, stages=4)
    page = report._repr_html_()
    assert "<table>" in page and "&lt;b&gt;" in page and "<b>:" not in page
    assert "train_batch_size 64" in str(report)
    assert repr(report).startswith("<Report config: ")
    assert isinstance(report, Report) and report.of("wrong")
    assert run_check([], as_json=False) == 2
