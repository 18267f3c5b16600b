"""Model states and activations of one rank, against published tables and formulas."""

import pytest

from pplab.core.memory import (
    PRECISIONS,
    Transformer,
    model_states,
    transformer_memory,
    transformer_slices,
)

GPT3 = Transformer(96, 12288, 96, 2048, 51200, 2048)

#: ZeRO, arXiv 1910.02054, Table 1: GB per device of model states, as printed, for N =
REPLICAS = (1, 4, 16, 64, 256, 1024)
ZERO_TABLE = {
    (7.5e9, 1): ("120", "52.5", "35.6", "31.4", "30.4", "30.1"),
    (7.5e9, 2): ("120", "41.3", "21.6", "16.6", "15.4", "15.1"),
    (7.5e9, 3): ("120", "30", "7.5", "1.88", ".47", ".12"),
    (128e9, 1): ("2048", "896", "608", "536", "518", "513"),
    (128e9, 2): ("2048", "704", "368", "284", "263", "257"),
    (128e9, 3): ("2048", "512", "128", "32", "8", "2"),
    (1e12, 1): ("16000", "7000", "4750", "4187", "4046", "4011"),
    (1e12, 2): ("16000", "5500", "2875", "2218", "2054", "2013"),
    (1e12, 3): ("16000", "4000", "1000", "250", "62.5", "15.6"),
}

#: Megatron-LM, arXiv 2104.04473, Table 1: (billion parameters, heads, hidden, layers); the largest
#: is printed as 1008.0.
MEGATRON = [
    ("1.7", 24, 2304, 24), ("3.6", 32, 3072, 30), ("7.5", 32, 4096, 36), ("18.4", 48, 6144, 40),
    ("39.1", 64, 8192, 48), ("76.1", 80, 10240, 60), ("145.6", 96, 12288, 80),
    ("310.1", 128, 16384, 96), ("529.6", 128, 20480, 105), ("1008.0", 160, 25600, 128),
]  # fmt: skip


def within_last_digit(value, printed):
    """Rounded or cut off: the paper does both."""
    digits = len(printed.partition(".")[2])
    return abs(value - float(printed)) < 10**-digits


@pytest.mark.parametrize(("model", "stage"), ZERO_TABLE)
def test_zero_table(model, stage):
    for replicas, printed in zip(REPLICAS, ZERO_TABLE[model, stage], strict=True):
        states = model_states(model, zero=stage, replicas=replicas)
        assert within_last_digit(states.device / 1e9, printed), (replicas, printed)


def test_zero_formulas():
    """16 P; 4 P + 12 P / N; 2 P + 14 P / N; 16 P / N (the same paper, Figure 1)."""
    n, p = 64, 7.5e9
    wanted = (16 * p, 4 * p + 12 * p / n, 2 * p + 14 * p / n, 16 * p / n)
    for stage, total in enumerate(wanted):
        assert model_states(p, zero=stage, replicas=n).device == pytest.approx(total)


def test_deepspeeds_own_estimators():
    """GPU bytes of estimate_zero2/3_model_states_mem_needs, which count the fp32 copy as well."""
    zero2 = pytest.importorskip("deepspeed.runtime.zero.stage_1_and_2")
    zero3 = pytest.importorskip("deepspeed.runtime.zero.stage3")
    p = 3e9
    for gpus, nodes in ((1, 1), (8, 1), (8, 4)):
        n = gpus * nodes
        ours = model_states(p, zero=2, replicas=n)
        _, theirs = zero2.estimate_zero2_model_states_mem_needs(p, gpus, nodes, cpu_offload=False)
        assert ours.device + ours.at_step == pytest.approx(theirs, rel=1e-6)
        ours = model_states(p, zero=2, replicas=n, offload_optimizer="cpu")
        _, theirs = zero2.estimate_zero2_model_states_mem_needs(p, gpus, nodes, cpu_offload=True)
        assert ours.device == pytest.approx(theirs)
        ours = model_states(p, zero=3, replicas=n)
        _, theirs, live = zero3.estimate_zero3_model_states_mem_needs(
            p, 0, gpus, nodes, cpu_offload=False, cpu_offload_params=False
        )
        assert live == 0  # the largest layer is in the pipeline's workspace, see below
        # theirs leaves the 16-bit gradients out beside the fp32 ones
        assert ours.device + ours.at_step - ours.gradients == pytest.approx(theirs, rel=1e-6)


def test_zero3_puts_one_layer_together():
    """4 bytes a parameter of the largest layer, as DeepSpeed's estimator counts it."""
    zero3 = pytest.importorskip("deepspeed.runtime.zero.stage3")
    largest = Transformer(12, 1024, 16, 512).layer_parameters
    _, _, live = zero3.estimate_zero3_model_states_mem_needs(1e9, largest, 8, 1, cpu_offload=False)
    model = Transformer(12, 1024, 16, 512)
    two, three = (
        transformer_memory(model, 1, 4, 1, zero=stage, replicas=8).ranks[0] for stage in (2, 3)
    )
    assert three.workspace - two.workspace == live


def test_bytes_a_parameter():
    """16 for fp16 Adam, 18 for BLOOM's fp32 sums, and 14 between two steps of fp16 ZeRO-0."""
    assert model_states(1, precision="fp16").device == 16
    assert model_states(1, precision="bf16-fp32").device == 18
    assert model_states(1, precision="fp16").resting == 14
    assert model_states(1, precision="fp32").device == 16
    assert PRECISIONS["fp16"].optimizer == 12


def test_offload():
    here = model_states(1e9, zero=1, replicas=4)
    cpu = model_states(1e9, zero=1, replicas=4, offload_optimizer="cpu")
    assert (cpu.device, cpu.host) == (4e9, here.optimizer)
    assert model_states(1e9, zero=1, offload_optimizer="nvme").nvme == 0  # becomes CPU memory
    deep = model_states(1e9, zero=3, replicas=8, offload_optimizer="nvme", offload_parameters="cpu")
    assert deep.device == 0 and deep.nvme == 14e9 / 8 and deep.host == 2e9 / 8


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"zero": 4}, "0 to 3"),
        ({"replicas": 0}, "at least one replica"),
        ({"offload_optimizer": "cpu"}, "only with ZeRO-1"),
        ({"zero": 1, "offload_parameters": "cpu"}, "only with ZeRO-3"),
        ({"zero": 3, "offload_optimizer": "disk"}, "'cpu' or 'nvme'"),
        ({"precision": "fp8"}, "bf16-fp32"),
    ],
)
def test_settings_deepspeed_does_not_have(settings, words):
    with pytest.raises(ValueError, match=words):
        model_states(1e9, **settings)


# -- transformers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("printed", "heads", "hidden", "layers"), MEGATRON)
def test_megatron_parameter_counts(printed, heads, hidden, layers):
    model = Transformer(layers, hidden, heads, 2048, 51200, 2048)
    assert within_last_digit(model.parameters / 1e9, printed)


def test_korthikanti_formulas():
    """sbh times: 34 + 5as/h; 10 + 24/t + ...; (34 + ...)/t; 34/t selective; 2 full."""
    s, b, h, a, t = 2048, 1, 12288, 96, 8
    sbh, scores = s * b * h, 5 * a * s / h
    assert scores == 80
    layer = GPT3.layer_activation
    assert layer(b) == sbh * (34 + 80)
    # attention 11 sbh + 5as^2b, MLP 19 sbh, norms 4 sbh
    assert layer(b) == 11 * sbh + 5 * a * s * s * b + 19 * sbh + 4 * sbh
    assert layer(b, tensor=t) == sbh * (10 + 24 / t + 80 / t)
    assert layer(b, tensor=t, sequence_parallel=True) == sbh / t * (34 + 80)
    assert layer(b, tensor=t, recompute="selective") == sbh * (10 + 24 / t)
    selective = layer(b, tensor=t, sequence_parallel=True, recompute="selective")
    assert selective == pytest.approx(34 * sbh / t)
    assert layer(b, tensor=t, recompute="full") == 2 * sbh
    # as printed: selective recomputation saves 70 % for GPT-3 and 65 % for the 530B model
    assert 1 - layer(b, recompute="selective") / layer(b) == pytest.approx(0.70, abs=0.005)
    large = Transformer(105, 20480, 128, 2048)
    saved = 1 - large.layer_activation(1, recompute="selective") / large.layer_activation(1)
    assert saved == pytest.approx(0.65, abs=0.005)


def test_zero_bubbles_activation_formula():
    """M_B = sb(34h + 5as) (arXiv 2401.10241), the same as Korthikanti's without parallelism."""
    for layers, heads, hidden in ((22, 24, 2304), (30, 32, 4096), (46, 40, 5120), (62, 48, 6144)):
        model = Transformer(layers, hidden, heads, 1024)
        wanted = 1024 * 6 * (34 * hidden + 5 * heads * 1024)
        assert model.layer_activation(6) == pytest.approx(wanted)


def test_impossible_shapes():
    with pytest.raises(ValueError, match="layers must be at least 1"):
        Transformer(0, 8, 2, 8)
    with pytest.raises(ValueError, match="cannot be dealt"):
        GPT3.layer_activation(1, tensor=7)
    with pytest.raises(ValueError, match="recompute is one of"):
        GPT3.layer_activation(1, recompute="some")
    with pytest.raises(ValueError, match=r"bounds 0 \.\. 96"):
        transformer_slices(GPT3, 2, 1, bounds=[0, 40, 90])


def test_stages_add_up_to_the_model():
    model = Transformer(24, 1024, 16, 512, 50304, 512, tied=False)
    for tensor in (1, 4):
        slices = transformer_slices(model, 6, 2, tensor=tensor)
        norms = 6 * 24 * 1024 + 2 * 1024  # what every tensor-parallel rank holds whole
        whole = norms + 512 * 1024
        total = sum(load.parameters for load in slices)
        assert total == pytest.approx((model.parameters - whole) / tensor + whole)
