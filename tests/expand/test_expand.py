"""Workloads become cases: what is folded, what is used, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tirbench.errors import InputError
from tirbench.expand import count, expand
from tirbench.load import load
from tirbench.model import BoundImplementation, BoundTensor, Case
from tirbench.values import Code, CScalar, Dtype, Phase, TensorRef

HEAD = 'schema = 1\ndescription = "y = x"\n'
BODY = """
[tensors]
x = { shape = ["n"], dtype = "float16", init = "normal" }
y = { role = "out", like = "x" }

[kernels.ours]
target = "torch.clone"
args = ["x"]
returns = "y"

[check.oracle]
target = "torch.clone"
args = ["x"]
returns = "y"
"""


@pytest.fixture
def cases_of(tmp_path: Path) -> Any:
    """A function from the text of a workload to its cases."""

    def cases(text: str) -> tuple[Case, ...]:
        path = tmp_path / "w.toml"
        path.write_text(text)
        return expand(load(path))

    return cases


def messages(cases_of: Any, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        cases_of(text)
    return [diagnostic.message for diagnostic in caught.value.diagnostics]  # type: ignore[attr-defined]


def example(project: Path, name: str, identity: str) -> Case:
    return next(case for case in expand(load(project / f"{name}.toml")) if case.id == identity)


def tensor(case: Case, name: str) -> BoundTensor:
    return next(tensor for tensor in case.tensors if tensor.name == name)


def implementation(case: Case, name: str) -> BoundImplementation:
    return next(item for item in case.implementations if item.name == name)


# --- cases and ids


def test_the_last_axis_varies_fastest_and_extra_cases_follow(cases_of: Any) -> None:
    text = HEAD + "[matrix]\nn = [1, 2]\nm = [3, 4]\n[[case]]\nm = 9\nn = 8\n" + BODY
    assert [case.id for case in cases_of(text)] == [
        "n_1_m_3", "n_1_m_4", "n_2_m_3", "n_2_m_4", "n_8_m_9",
    ]  # fmt: skip


def test_a_row_axis_binds_its_columns_and_not_its_name(cases_of: Any) -> None:
    text = (
        HEAD + 'id = "{tag}_{n}"\n[matrix]\nsize = [{ n = 1, tag = "a" }, { n = 2, tag = "b" }]\n'
    )
    assert [case.id for case in cases_of(text + BODY)] == ["a_1", "b_2"]


def test_a_workload_without_axes_has_one_case(cases_of: Any) -> None:
    (case,) = cases_of(HEAD + "[params]\nn = 4\n" + BODY)
    assert case.key == "w/base"


def test_cases_without_axes_name_their_own(cases_of: Any) -> None:
    cases = cases_of(HEAD + "[[case]]\nn = 4\n[[case]]\nn = 5\n" + BODY)
    assert [case.id for case in cases] == ["n_4", "n_5"]


def test_values_in_an_id_are_written_one_way(cases_of: Any) -> None:
    text = (
        HEAD + 'id = "{flag}_{lens}_{p}_{t}"\n[params]\nn = 4\n[matrix]\nflag = [true]\n'
        'lens = [[5, 33]]\np = [0.5]\nt = ["bfloat16"]\n' + BODY
    )
    assert [case.id for case in cases_of(text)] == ["true_5x33_0.5_bfloat16"]


def test_cases_are_counted_without_being_built(example_project: Path) -> None:
    for path in sorted(example_project.glob("*.toml")):
        workload = load(path)
        assert count(workload) == len(expand(workload))


def test_selections_have_defaults(cases_of: Any) -> None:
    text = HEAD + '[matrix]\nn = [1, 2]\n[select]\nsmoke = ["n_1"]\n' + BODY
    first, second = cases_of(text)
    assert first.selected_by == {"default", "smoke", "cpu"}
    assert second.selected_by == {"default"}


# --- skips and assertions


def test_a_skipped_case_names_its_implementations_and_binds_nothing(cases_of: Any) -> None:
    text = HEAD + '[matrix]\nn = [0, 2]\n[[skip]]\nwhen = "n == 0"\nreason = "empty"\n' + BODY
    skipped, case = cases_of(text)
    assert skipped.skipped == "empty"
    assert skipped.tensors == ()
    assert [item.skipped for item in skipped.implementations] == ["empty"]
    assert case.skipped is None


def test_an_assertion_of_a_skipped_case_need_not_hold(cases_of: Any) -> None:
    text = 'assert = ["n > 0"]\n[matrix]\nn = [0, 2]\n[[skip]]\nwhen = "n == 0"\nreason = "e"\n'
    assert len(cases_of(HEAD + text + BODY)) == 2


def test_a_skip_of_an_implementation_skips_only_it(cases_of: Any) -> None:
    text = (
        HEAD
        + '[params]\nn = 4\n[[skip]]\nwhen = "n == 4"\nimplementations = ["other"]\nreason = "r"\n'
    )
    text += BODY + '[references.other]\ntarget = "torch.clone"\nargs = ["x"]\nreturns = "y"\n'
    (case,) = cases_of(text)
    assert [(item.name, item.skipped) for item in case.implementations] == [
        ("ours", None),
        ("other", "r"),
    ]
    assert implementation(case, "other").steps == ()


def test_a_derived_name_of_a_skipped_case_need_not_have_a_value(cases_of: Any) -> None:
    text = (
        HEAD + '[matrix]\nn = [0, 2]\n[derive]\nper = "8 // n"\n'
        '[[skip]]\nwhen = "n == 0"\nreason = "empty"\n' + BODY
    )
    assert [case.skipped for case in cases_of(text)] == ["empty", None]
    broken = text.replace("n == 0", "n == 2")
    assert messages(cases_of, broken) == ["division by zero"]


def test_one_problem_of_many_cases_is_one_message(cases_of: Any) -> None:
    text = HEAD + "[matrix]\nn = [-1, -2, -3]\n" + BODY
    with pytest.raises(InputError, match="in case n_-1 and 2 more"):
        cases_of(text)


# --- tensors


def test_only_tensors_that_the_case_uses_are_in_it(example_project: Path) -> None:
    plain = example(example_project, "f8_state_update", "b4_h8_d64_n128_plain")
    gated = example(example_project, "f8_state_update", "b4_h8_d64_n128_z")
    assert {t.name for t in gated.tensors} - {t.name for t in plain.tensors} == {"z"}
    assert [t.name for t in plain.tensors][:2] == ["state_cache", "x"]


def test_what_makes_a_used_tensor_is_used(example_project: Path) -> None:
    case = example(example_project, "f4_paged_mqa_logits", "b2_n1_h32_d128")
    assert {"q_full", "kv_full", "kv"} <= {t.name for t in case.tensors}
    assert [init.returns for init in case.inits] == [
        ("q",),
        ("kv_value", "kv_scale"),
        ("row_lens",),
    ]


def test_inout_and_inited_scratch_are_restored(example_project: Path) -> None:
    case = example(example_project, "matmul", "m64_n64_k128_float16")
    assert {t.name: t.reset for t in case.tensors} == {
        "a": "none", "b": "none", "c": "none", "acc": "restore",
    }  # fmt: skip
    case = example(example_project, "f8_state_update", "b4_h8_d64_n128_plain")
    assert tensor(case, "state_cache").reset == "restore"


def test_a_view_has_its_bases_memory_in_its_own_shape(example_project: Path) -> None:
    case = example(example_project, "f4_paged_mqa_logits", "b2_n1_h32_d128")
    scale = tensor(case, "kv_scale")
    assert (scale.view, scale.dtype, scale.shape) == ("kv", "float32", (256, 64))
    assert (scale.strides, scale.offset) == ((64 * 132 // 4, 1), 64 * 128 // 4)


def test_a_permuted_view_takes_shape_and_strides_from_its_base(cases_of: Any) -> None:
    text = HEAD + BODY.replace('shape = ["n"]', "shape = [2, 3, 5]").replace(
        "[kernels.ours]", 'z = { view = "x", permute = [2, 0, 1] }\n[kernels.ours]'
    ).replace('args = ["x"]', 'args = ["x", "z", "stride(z, 0)", "size(z, 0)"]', 1)
    (case,) = cases_of(text)
    assert tensor(case, "z").shape == (5, 2, 3)
    assert tensor(case, "z").strides == (1, 15, 5)
    assert implementation(case, "ours").steps[0].args.positional[2:] == (1, 5)


def test_the_device_may_decide_the_shape_of_scratch_only(cases_of: Any) -> None:
    text = (
        HEAD
        + "[params]\nn = 4\n"
        + BODY.replace(
            "[kernels.ours]",
            's = { role = "scratch", shape = ["sm_count", 4], dtype = "float32" }\n[kernels.ours]',
        ).replace('args = ["x"]', 'args = ["x", "s", "numel(s)"]', 1)
    )
    (case,) = cases_of(text)
    sm_count = Code(text="device.sm_count", phase=Phase.DEVICE)
    assert tensor(case, "s").shape == (sm_count, 4)
    size = implementation(case, "ours").steps[0].args.positional[2]
    assert size == Code(text="device.sm_count * 4", phase=Phase.DEVICE)
    (message,) = messages(cases_of, text.replace('role = "scratch", ', 'init = "normal", '))
    assert message == "a shape reads only what the case knows, but 'sm_count' reads the device"


def test_a_shape_that_depends_on_itself_is_refused(cases_of: Any) -> None:
    text = HEAD + BODY.replace('shape = ["n"]', 'shape = ["numel(y)"]')
    assert messages(cases_of, text) == ["the shape of 'y' depends on itself"]


# --- launches, checks, work


def test_omitted_arguments_are_not_passed(example_project: Path) -> None:
    compact = example(example_project, "fused_add_rmsnorm", "compact_h256_m128_float16")
    strided = example(example_project, "fused_add_rmsnorm", "strided_h256_m128_float16")
    names = dict(implementation(compact, "triton").steps[0].args.named)
    assert "x_stride" not in names
    assert dict(implementation(strided, "triton").steps[0].args.named)["x_stride"] == 512


def test_options_are_plain_values_of_their_kind(example_project: Path) -> None:
    case = example(example_project, "rmsnorm_cuda", "hs4096_bs128_float16")
    (step,) = implementation(case, "cuda").steps
    assert dict(step.options) == {
        "grid": (Code(text="f.min(128, 4 * device.sm_count)", phase=Phase.DEVICE),),
        "block": (256,),
        "shared_bytes": 4096 * 2 + 256 // 32 * 4,
        "template": (Dtype("float16"), 256, 8, False),
        "flags": ("--use_fast_math", "-std=c++17"),
        "include": ("kernels/include",),
    }
    assert step.args.positional[2] is None
    assert step.args.positional[4] == CScalar(ctype="int32", value=128)


def test_a_grid_names_constants_that_a_tuner_sets(example_project: Path) -> None:
    case = example(example_project, "flash_attention_varlen", "tiny_h4x2_d64_float16")
    grid = dict(implementation(case, "triton").steps[0].options)["grid"]
    assert grid == (Code(text='f.cdiv(64, meta["BLOCK_M"])', phase=Phase.DEVICE), 4, 3)


def test_steps_keep_their_order(example_project: Path) -> None:
    case = example(example_project, "matmul", "m64_n64_k128_float16")
    steps = implementation(case, "triton").steps
    assert [step.target.rpartition(":")[2] for step in steps] == ["matmul_split_k", "cast_kernel"]
    assert steps[1].path == ("kernels", "triton", "steps", 1)


def test_every_tensor_that_the_oracle_returns_has_a_rule(example_project: Path) -> None:
    case = example(example_project, "dropout", "n65536")
    rules = {rule.tensor: rule for rule in case.check.outputs}
    assert list(rules) == ["rng", "keep", "y"]
    assert rules["rng"].exact
    assert rules["keep"].unchecked
    through = rules["y"].through
    assert through is not None
    assert through.args.positional[0] == TensorRef(name="x")


def test_ranks_are_bound_and_the_oracle_may_gather(example_project: Path) -> None:
    case = example(example_project, "allgather_gemm", "tp2_m256_n256_k128")
    assert case.world_size == 2
    assert case.check.oracle is not None
    gathered = Code(text="f.gathered(a)", phase=Phase.DATA, tensors=("a",))
    assert case.check.oracle.args.positional[0] == gathered
    rank = implementation(case, "overlapped").steps[0].args.positional[5]
    assert rank == Code(text="device.rank", phase=Phase.DEVICE)


def test_work_may_read_data(example_project: Path) -> None:
    case = example(example_project, "f4_paged_mqa_logits", "b2_n1_h32_d128")
    text = "8192 * f.sum(row_lens)"
    assert case.work.flops == Code(text=text, phase=Phase.DATA, tensors=("row_lens",))
    assert case.work.roof == "float8_e4m3fn"


def test_requirements_of_workload_and_implementation_are_joined(cases_of: Any) -> None:
    text = HEAD + "[params]\nn = 4\n" + BODY
    text += '[requires]\ncapability = ">=8.0"\npackages = ["a"]\nmemory = "n * 1024"\n'
    text += '[kernels.ours.requires]\ncapability = "<10.0"\npackages = ["b", "a"]\n'
    (case,) = cases_of(text)
    requires = implementation(case, "ours").requires
    assert requires.capability == ">=8.0,<10.0"
    assert requires.packages == ("a", "b")
    assert requires.memory == 4096


def test_a_gradient_names_what_it_is_of_and_its_seed(cases_of: Any) -> None:
    text = (
        HEAD
        + "[params]\nn = 4\n"
        + BODY.replace(
            "[kernels.ours]",
            'dy = { like = "x", init = "normal" }\n[kernels.ours]\ngrad = { of = ["x"], seed = "dy" }',
        ).replace("[check.oracle]", '[check.oracle]\ngrad = { of = ["x"], seed = "dy" }')
    )
    (case,) = cases_of(text)
    gradient = (("of", ("x",)), ("seed", TensorRef(name="dy")))
    assert dict(implementation(case, "ours").steps[0].options)["grad"] == gradient
    assert case.check.grad == ("x",)
    assert case.check.grad_seed == TensorRef(name="dy")


def test_a_tolerance_may_be_a_case_expression_and_is_held_against_the_dtype(cases_of: Any) -> None:
    rule = "[check.outputs.y]\nrtol = \"8e-3 if dtype == 'bfloat16' else 1e-3\"\n"
    axis = '[params]\nn = 4\n[matrix]\ndtype = ["float16", "bfloat16"]\n'
    body = BODY.replace('"float16"', '"dtype"')
    cases = cases_of(HEAD + axis + body + rule)
    assert [case.check.outputs[0].rtol for case in cases] == [1e-3, 8e-3]
    loose = rule.replace("1e-3", "8e-3")
    assert messages(cases_of, HEAD + axis + body + loose) == [
        "'rtol' 0.008 is looser than the default of float16, 0.001"
    ]


def test_derived_names_are_resolved_by_dependency(cases_of: Any) -> None:
    text = HEAD + '[params]\nk = 2\n[derive]\nn = "m * 2"\nm = "k + 1"\n' + BODY
    (case,) = cases_of(text)
    assert tensor(case, "x").shape == (6,)


def test_a_derived_name_takes_the_phase_of_what_it_reads(cases_of: Any) -> None:
    text = (
        HEAD
        + '[params]\nn = 4\n[derive]\ntwice = "total * 2"\ntotal = "sum(lens)"\n'
        + BODY.replace(
            "[kernels.ours]",
            'lens = { shape = [3], dtype = "int32", init = "ones" }\n[kernels.ours]',
        )
        + '[work]\nflops = "twice"\n'
    )
    (case,) = cases_of(text)
    assert case.work.flops == Code(text="f.sum(lens) * 2", phase=Phase.DATA, tensors=("lens",))
    assert "lens" in {t.name for t in case.tensors}
