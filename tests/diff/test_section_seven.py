"""MEASURING, section 7, item by item: each way to weaken a workload, written into one that was fine."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from tests.diff.conftest import Project
from tirbench import reviewing

RICH = """\
schema = 1
description = "Everything that can be made easier"
id = "n{n}"
assert = ["n % 256 == 0"]

[params]
tolerance = 1e-4

[matrix]
n = [1024, 2048, 4096]

[select]
default = ["*"]
smoke = ["n1024"]

[tensors]
x = { shape = ["n"], dtype = "float32", init = { kind = "uniform", low = -2.0, high = 2.0 } }
lens = { shape = [4], dtype = "int32", init = { kind = "lengths", total = "n", min = 1, max = "n // 2" } }
cu = { shape = [4], dtype = "int32", init = { kind = "cu_seqlens", lengths = [100, 200, 300] } }
m = { shape = ["n"], dtype = "bool", init = "ones" }
y = { role = "out", like = "x" }
exact = { role = "out", like = "x" }
angle = { role = "out", like = "x" }
acc = { role = "inout", like = "x", init = "normal", reset = "restore" }

[kernels.fast]
target = "kernels/ops.py:fast"
args = ["x", "y", "exact", "angle", "acc", "cu", "lens"]

[[kernels.two.steps]]
kind = "call"
target = "kernels/ops.py:clear"
args = ["y"]

[[kernels.two.steps]]
kind = "call"
target = "kernels/ops.py:fast"
args = ["x", "y", "exact", "angle", "acc", "cu", "lens"]

[references.torch]
target = "kernels/ops.py:whole"
args = ["x", "acc"]
returns = ["y", "exact", "angle", "acc"]
compile = "max-autotune-no-cudagraphs"

[references.other]
target = "kernels/ops.py:fast"
args = ["x", "y", "exact", "angle", "acc", "cu", "lens"]
requires = { packages = ["torch>=2.6"] }

[check.oracle]
target = "kernels/right.py:right"
args = ["x", "acc"]
returns = ["y", "exact", "angle", "acc"]

[check.outputs.y]
rtol = "tolerance"
not_worse_than = "torch"
reason = "halves on the way"

[check.outputs.exact]
exact = true
reason = "only copied"

[check.outputs.angle]
cosine = 0.999
relative_l2 = 0.001

[check.outputs.acc]
mask = "m"

[work]
flops = "2 * n"
bytes = "nbytes(x) + nbytes(y)"
roof = "bfloat16"

[timer]
regime = "sustained"
warmup = 25
repeat = 100
cooldown_s = 1.0

[gate]
reference = "torch"
"""

OPS = '''\
"""Nothing that is ever run."""


def fast(x, y, exact, angle, acc, cu, lens):
    pass


def clear(y):
    pass


def whole(x, acc):
    return x, x, x, acc


def within():
    return None


def shorter(y):
    return y


def built(x, y, exact, angle, acc, cu, lens):
    return lambda: None
'''

RIGHT = """\
def right(x, acc):
    return x, x, x, acc
"""

FAST = '[kernels.fast]\ntarget = "kernels/ops.py:fast"\n'
TWO_OF_TWO = (
    '[[kernels.two.steps]]\nkind = "call"\ntarget = "kernels/ops.py:clear"\nargs = ["y"]\n\n'
    '[[kernels.two.steps]]\nkind = "call"\ntarget = "kernels/ops.py:fast"\n'
    'args = ["x", "y", "exact", "angle", "acc", "cu", "lens"]\n'
)
TWO_OF_ONE = (
    '[kernels.two]\ntarget = "kernels/ops.py:fast"\n'
    'args = ["x", "y", "exact", "angle", "acc", "cu", "lens"]\n'
)
CLEARED = (
    '[[init]]\ntarget = "kernels/ops.py:clear"\nargs = ["x"]\nreturns = "m"\n\n[kernels.fast]\n'
)

M_LINE = 'm = { shape = ["n"], dtype = "bool", init = "ones" }\n'

Edits: TypeAlias = "tuple[tuple[str, str], ...]"


def one(old: str, new: str) -> Edits:
    return ((old, new),)


WEAKENED: dict[str, tuple[Edits, str]] = {
    # what is compared
    "tolerance up, through a parameter": (
        one("tolerance = 1e-4", "tolerance = 1e-3"),
        "output y: rtol 0.0001 → 0.001",
    ),
    "matched down": (
        one('rtol = "tolerance"', 'rtol = "tolerance"\nmatched = 0.9'),
        "output y: matched all → 0.9",
    ),
    "cosine down": (
        one("cosine = 0.999", "cosine = 0.99"),
        "output angle: cosine 0.999 → 0.99",
    ),
    "relative error of the whole up": (
        one("relative_l2 = 0.001", "relative_l2 = 0.01"),
        "output angle: relative_l2 0.001 → 0.01",
    ),
    "one of two conditions dropped": (
        one("cosine = 0.999\n", ""),
        "output angle: cosine 0.999 → none",
    ),
    "exact to allclose": (
        one("exact = true", "rtol = 1e-6"),
        "output exact: exact → within a tolerance",
    ),
    "exact to a ratio": (
        one("exact = true", "rtol = 1e-6\nmatched = 0.9"),
        "output exact: exact → 0.9 of the elements within a tolerance",
    ),
    "allclose to a ratio": (
        one('rtol = "tolerance"', "relative_l2 = 0.001"),
        "output y: every element → relative_l2 only",
    ),
    "an output dropped": (
        one("exact = true", 'unchecked = "r"'),
        "output exact: no longer checked",
    ),
    "an output out of the oracle": (
        (
            (
                'args = ["x", "acc"]\nreturns = ["y", "exact", "angle", "acc"]\n\n[check.outputs.y]',
                'args = ["x", "acc"]\nreturns = ["y", "exact", "acc"]\n\n[check.outputs.y]',
            ),
            ("cosine = 0.999\nrelative_l2 = 0.001", 'unchecked = "r"'),
        ),
        "output angle: no longer checked",
    ),
    "everything dropped": (
        (
            (
                RICH[RICH.index("[check.oracle]") : RICH.index("[work]")],
                '[check]\ndisabled = "r"\n\n',
            ),
            (M_LINE, ""),
        ),
        "check: nothing is checked now",
    ),
    "a region dropped": (
        (('mask = "m"', "rtol = 1e-5"), (M_LINE, "")),
        "output acc: what is outside of mask m need not stay as it was",
    ),
    "another region": (
        one('not_worse_than = "torch"', 'not_worse_than = "torch"\nmask = "m"'),
        "output y: only the elements of mask m are compared",
    ),
    "a mask enlarged": (
        one('dtype = "bool", init = "ones"', 'dtype = "bool", init = "zeros"'),
        "output acc: other elements are compared: mask m has other contents",
    ),
    "not-worse dropped": (
        one('not_worse_than = "torch"\n', ""),
        "output y: may be worse than torch now",
    ),
    "a function of it is compared": (
        one(
            'not_worse_than = "torch"',
            'not_worse_than = "torch"\nthrough = { target = "kernels/ops.py:shorter", args = ["y"] }',
        ),
        "output y: compared through kernels/ops.py:shorter",
    ),
    "NaN allowed": (
        one('rtol = "tolerance"', 'rtol = "tolerance"\nallow_nan = true'),
        "output y: NaN is allowed now",
    ),
    "infinities allowed": (
        one('rtol = "tolerance"', 'rtol = "tolerance"\nallow_inf = true'),
        "output y: infinities are allowed now",
    ),
    "a reason deleted": (
        one('reason = "only copied"\n', ""),
        "output exact: its reason was deleted",
    ),
    # what is right
    "oracle in less precision": (
        one("[check.oracle]\n", '[check.oracle]\ndtype = "float32"\n'),
        "oracle: computes in float32 instead of float64",
    ),
    "oracle in the precision of the kernel": (
        one("[check.oracle]\n", '[check.oracle]\ndtype = "same"\n'),
        "oracle: computes in the dtype of the tensors instead of float64",
    ),
    "oracle retargeted": (
        one("kernels/right.py:right", "kernels/ops.py:whole"),
        "oracle: kernels/right.py:right → kernels/ops.py:whole",
    ),
    "oracle called otherwise": (
        one('right.py:right"\nargs = ["x", "acc"]', 'right.py:right"\nargs = ["x", "x"]'),
        "oracle: is called with other arguments",
    ),
    # which cases
    "a case removed": (one("[1024, 2048, 4096]", "[1024, 2048]"), "case n4096: removed"),
    "a case skipped": (
        one("[tensors]", '[[skip]]\nwhen = "n == 4096"\nreason = "r"\n\n[tensors]'),
        "case: skipped now",
    ),
    "a case out of the default": (
        one('default = ["*"]', 'default = ["n1024"]'),
        "case: out of `default`",
    ),
    "a case out of smoke": (one('smoke = ["n1024"]', 'smoke = ["n2048"]'), "case: out of `smoke`"),
    "an assertion removed": (
        one('assert = ["n % 256 == 0"]\n', ""),
        "assert: n % 256 == 0 removed",
    ),
    # what it is compared with
    "a reference removed": (
        one(RICH[RICH.index("[references.other]") : RICH.index("[check.oracle]")], ""),
        "reference other: removed",
    ),
    "a reference retargeted": (
        one(
            '[references.other]\ntarget = "kernels/ops.py:fast"',
            '[references.other]\ntarget = "kernels/ops.py:built"',
        ),
        "reference other: target kernels/ops.py:fast → kernels/ops.py:built",
    ),
    "a reference uncompiled": (
        one('compile = "max-autotune-no-cudagraphs"\n', ""),
        "reference torch: compile max-autotune-no-cudagraphs → none",
    ),
    "a reference compiled less": (
        one('compile = "max-autotune-no-cudagraphs"', 'compile = "default"'),
        "reference torch: compile max-autotune-no-cudagraphs → default",
    ),
    "an older version will do": (
        one("torch>=2.6", "torch>=2.4"),
        "reference other: requires torch >=2.6 → >=2.4: an older version will do",
    ),
    "any version will do": (
        one('requires = { packages = ["torch>=2.6"] }', 'requires = { packages = ["torch"] }'),
        "reference other: requires torch >=2.6 → ",
    ),
    "no version is asked for": (
        one('requires = { packages = ["torch>=2.6"] }\n', ""),
        "reference other: requires torch >=2.6 removed",
    ),
    "left out where something is not installed": (
        one('["torch>=2.6"]', '["torch>=2.6", "nowhere>=1"]'),
        "reference other: requires nowhere: left out where it is not installed",
    ),
    "fewer devices": (
        one("[check.oracle]\n", '[requires]\ncapability = ">=10.0"\n\n[check.oracle]\n'),
        "workload: requires capability none → >=10.0: fewer machines measure it",
    ),
    "a reference is unchecked": (
        one("[references.other]\n", '[references.other]\nunchecked = "r"\n'),
        "reference other: is no longer checked",
    ),
    "a reference may be further off": (
        one("[references.other]\n", '[references.other]\nlooser = 4\nreason = "r"\n'),
        "reference other: tolerance times 1 → 4",
    ),
    # easier input under the same id
    "the same value everywhere": (
        one('{ kind = "uniform", low = -2.0, high = 2.0 }', '"zeros"'),
        "tensor x: contents uniform → zeros: the same value everywhere",
    ),
    "a narrower range": (
        one("low = -2.0, high = 2.0", "low = -1.0, high = 1.0"),
        "tensor x: uniform over a narrower range: 4 → 2",
    ),
    "clamped": (
        one("high = 2.0 }", "high = 2.0, clamp = [-1.0, 1.0] }"),
        "tensor x: uniform clamped: none → [-1.0, 1.0]",
    ),
    "ragged to uniform offsets": (
        one("lengths = [100, 200, 300]", "lengths = [200, 200, 200]"),
        "tensor cu: lengths ragged → uniform",
    ),
    "ragged to constant lengths": (
        one(
            '{ kind = "lengths", total = "n", min = 1, max = "n // 2" }',
            '{ kind = "full", value = "n // 4" }',
        ),
        "tensor lens: contents lengths → full",
    ),
    "a smaller shape": (
        one('x = { shape = ["n"]', 'x = { shape = ["n // 2"]'),
        "tensor x: smaller under the same id: 1024 → 512",
    ),
    "a smaller dtype": (
        one('x = { shape = ["n"], dtype = "float32"', 'x = { shape = ["n"], dtype = "bfloat16"'),
        "tensor x: dtype float32 → bfloat16 under the same id",
    ),
    # how it is timed
    "warm": (
        one('regime = "sustained"', 'regime = "sustained"\nl2 = "warm"'),
        "timer: l2 cold-dirty → warm",
    ),
    "cold-clean": (
        one('regime = "sustained"', 'regime = "sustained"\nl2 = "cold-clean"'),
        "timer: l2 cold-dirty → cold-clean",
    ),
    "burst": (one('regime = "sustained"\n', ""), "timer: regime sustained → burst"),
    "less warming": (one("warmup = 25", "warmup = 5"), "timer: warmup 25 → 5"),
    "fewer calls": (one("repeat = 100", "repeat = 10"), "timer: repeat 100 → 10"),
    "a budget left to the default": (one("repeat = 100\n", ""), "timer: repeat 100 → the default"),
    "less rest": (one("cooldown_s = 1.0", "cooldown_s = 0.1"), "timer: cooldown_s 1 → 0.1"),
    "nothing is restored": (
        one('reset = "restore" }', 'reset = "none", reason = "r" }'),
        "tensor acc: reset restore → none",
    ),
    "a launch moved into build": (
        one(FAST, FAST + 'kind = "build"\n'),
        "kernel fast: kernels/ops.py:fast is now built once and no longer launched whole",
    ),
    "a step is gone": (
        one(TWO_OF_TWO, TWO_OF_ONE),
        "kernel two: step kernels/ops.py:clear no longer timed",
    ),
    "a step moved into what is drawn": (
        (
            (TWO_OF_TWO, TWO_OF_ONE),
            ('dtype = "bool", init = "ones"', 'dtype = "bool"'),
            ("[kernels.fast]\n", CLEARED),
        ),
        "kernel two: step kernels/ops.py:clear moved out of what is timed",
    ),
    "a context that is not timed": (
        one(FAST, FAST + 'context = { target = "kernels/ops.py:within" }\n'),
        "kernel fast: runs within kernels/ops.py:within now, which is not timed",
    ),
    "a reference computes less": (
        one(
            'args = ["x", "acc"]\nreturns = ["y", "exact", "angle", "acc"]\ncompile',
            'args = ["x", "acc"]\nreturns = ["y", "exact", "acc"]\ncompile',
        ),
        "reference torch: no longer computes angle",
    ),
    # what it is held to
    "a wider gate": (
        one('reference = "torch"\n', 'reference = "torch"\nslower_than = 0.1\n'),
        "gate: slower_than 0.01 → 0.1",
    ),
    "another reference of the gate": (
        one('[gate]\nreference = "torch"', '[gate]\nreference = "other"'),
        "gate: the gate's reference torch → other",
    ),
    "the gate off": (
        one('\n[gate]\nreference = "torch"\n', ""),
        "gate: the gate's reference torch → none",
    ),
    "more flops for the same problem": (
        one('flops = "2 * n"', 'flops = "4 * n"'),
        "work: flops 2,048 → 4,096 for the same problem",
    ),
    "more bytes for the same problem": (
        one("nbytes(x) + nbytes(y)", "2 * nbytes(x) + nbytes(y)"),
        "work: bytes 8,192 → 12,288 for the same problem",
    ),
    "a lower roof": (
        one('roof = "bfloat16"', 'roof = "float32"'),
        "work: roof bfloat16 → float32: a lower ceiling",
    ),
    "a kernel removed": (one(TWO_OF_TWO, ""), "kernel two: removed"),
    "a kernel renamed without a map": (
        one("[kernels.fast]", "[kernels.quick]"),
        "kernel fast: renamed to quick: its pinned rows are lost",
    ),
    "a kernel skipped": (
        one(
            "[tensors]",
            '[[skip]]\nwhen = "n == 4096"\nimplementations = ["fast"]\nreason = "r"\n\n[tensors]',
        ),
        "kernel fast: skipped now",
    ),
}


@pytest.fixture
def rich(project: Project) -> Project:
    """The repository with the workload, not pinned."""
    project.write("workloads/rich.toml", RICH)
    project.write("workloads/kernels/ops.py", OPS)
    project.write("workloads/kernels/right.py", RIGHT)
    (project.root / "workloads/double.toml").unlink()
    (project.root / "workloads/baselines/nvidia-h200/double.toml").unlink()
    project.commit("one workload")
    found = reviewing.diff(project.root, "main")
    assert (found.invalid, found.rows) == ((), 12)
    return project


def weakenings(project: Project) -> list[str]:
    found = reviewing.diff(project.root, "main")
    assert not found.invalid, found.invalid
    return [f"{one.subject}: {one.text}" for one in found.weakenings]


@pytest.mark.parametrize("name", WEAKENED)
def test_each_item_is_found_and_named(rich: Project, name: str) -> None:
    edits, text = WEAKENED[name]
    for old, new in edits:
        rich.replace(old, new, "workloads/rich.toml")
    found = weakenings(rich)
    assert any(said.startswith(text) for said in found), found


def test_the_workload_deleted(rich: Project) -> None:
    (rich.root / "workloads/rich.toml").unlink()
    assert weakenings(rich) == ["workload: deleted, with 3 cases"]


def test_the_same_edits_backwards_weaken_nothing_that_was_strengthened(rich: Project) -> None:
    rich.replace("tolerance = 1e-4", "tolerance = 1e-5", "workloads/rich.toml")
    rich.replace("cosine = 0.999", "cosine = 0.9999", "workloads/rich.toml")
    rich.replace("warmup = 25", "warmup = 50", "workloads/rich.toml")
    rich.replace("low = -2.0", "low = -4.0", "workloads/rich.toml")
    assert weakenings(rich) == []


RANKS = """\
schema = 1
description = "A sum over ranks"

[ranks]
world_size = 4

[tensors]
x = { shape = [1024], dtype = "float32", init = "normal" }
y = { role = "out", like = "x" }

[kernels.fast]
target = "kernels/ops.py:clear"
args = ["y"]

[references.torch]
target = "kernels/ops.py:shorter"
args = ["x"]
returns = "y"

[check.oracle]
target = "kernels/ops.py:shorter"
args = ["x"]
returns = "y"
"""

OF_RANKS: dict[str, tuple[str, str, str]] = {
    "fewer ranks": ("world_size = 4", "world_size = 2", "ranks: world_size 4 → 2"),
    "what runs before every launch": (
        "world_size = 4",
        'world_size = 4\nprepare = { target = "kernels/ops.py:clear", args = ["y"] }',
        "ranks: kernels/ops.py:clear now runs before every launch, untimed",
    ),
}


@pytest.mark.parametrize("name", OF_RANKS)
def test_each_item_of_ranks_is_found(rich: Project, name: str) -> None:
    old, new, text = OF_RANKS[name]
    rich.write("workloads/ranks.toml", RANKS)
    rich.commit("ranks")
    rich.replace(old, new, "workloads/ranks.toml")
    assert any(said.startswith(text) for said in weakenings(rich)), weakenings(rich)


def test_gradients_that_are_checked_no_more(rich: Project) -> None:
    backward = RANKS.replace("[ranks]\nworld_size = 4\n\n", "")
    head, _, tail = backward.partition("[check.oracle]")
    graded = tail + 'grad = { of = ["x"], seed = "x" }\n'
    rich.write("workloads/grads.toml", f"{head}[check.oracle]{graded}")
    rich.commit("gradients")
    rich.write("workloads/grads.toml", backward)
    assert any(said.startswith("check: gradients of x") for said in weakenings(rich)), weakenings(
        rich
    )
