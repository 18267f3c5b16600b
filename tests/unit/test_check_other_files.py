"""Files that people give the checker and that are no DeepSpeed config, or hardly one."""

import pytest

from pplab.advise.check import check

SMALL = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 16}
PLAIN = {"ranks": 8, "pipeline": False}


def test_a_file_of_another_program_is_one_finding():
    config = {"student": {}, "rollout": {}, "data": "x", "deepspeed_config": "configs/z3.json"}
    report = check(config, **PLAIN)
    [finding] = [f for f in report.findings if f.rule == "other-file"]
    assert "4 keys (student, rollout, data, ...)" in finding.message
    assert "configs/z3.json" in finding.fix and "unknown-key" not in report.rules()
    nested = check({"model": "x", "deepspeed": SMALL}, **PLAIN)
    assert 'section "deepspeed"' in nested.text()
    assert "other-file" not in check(SMALL | {"student": {}, "rollout": {}}, **PLAIN).rules()


@pytest.mark.parametrize(
    ("text", "line", "rule", "words"),
    [
        ("compute_environment: LOCAL\ndeepspeed_config:\n  zero_stage: 2\n", 2, "accelerate",
         "Accelerate"),
        ("distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: a/z1.json\n", 3,
         "other-file", "a/z1.json"),
        ("model: x\nstage: sft\ndeepspeed: examples/ds_z3_config.json\n", 3, "other-file",
         "ds_z3_config.json"),
        ('{\n "train_batch_size": BATCH_SIZE\n}', 2, "placeholder", "script makes"),
    ],
)  # fmt: skip
def test_what_the_file_is_and_where_the_config_may_be(text, line, rule, words):
    report = check(text)
    [finding] = report.findings
    assert (finding.rule, finding.line, report.exit_code) == (rule, line, 2)
    assert words in finding.message + finding.fix


def test_a_config_without_outer_braces_is_read_as_hjson_reads_it():
    text = '// notes\n"train_batch_size": 8,\n"zero_optimization": {\n  "stage": 1\n}\n"amp": {}\n'
    report = check(text, **PLAIN)
    assert report.readable and report.rules("error") == {"removed-key"}
    assert next(f.line for f in report.findings if f.rule == "removed-key") == 6
    assert "no { } around all of it (line 2)" in report.text()
    assert report.fixed == {"train_batch_size": 8, "zero_optimization": {"stage": 1}}
    hjson = pytest.importorskip("hjson")
    assert hjson.loads(text) == report.config


def test_an_open_section_is_found_by_its_indentation():
    text = (
        '{\n  "fp16": {"enabled": true},\n  "zero_optimization": {\n    "stage": 3,\n'
        '  "scheduler": {\n    "type": "WarmupLR"\n  }\n}\n'
    )
    [finding] = check(text).findings
    assert finding.message == (
        "The { of line 1 is never closed. The } of line 8 stands under it and closes that of line "
        '3 ("zero_optimization"), which lacks its own.'
    )
