"""What `tirbench explain CODE` says: a paragraph for each code, and an example with its mending.

Examples are lines of a workload; a test puts each into a whole one and holds it against the checks, so what
is called wrong here is wrong for that reason, and what is called right is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tirbench.diagnostics.codes import CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One code for people; `wrong` and `right` are lines of a workload, empty where lines cannot show it."""

    text: str
    wrong: str = ""
    right: str = ""


def explain(code: str) -> str:
    """The code, what it is about, why it is an error, and an example with its mending.

    Args:
        code: one of `CODES`.
    """
    explanation = EXPLANATIONS[code]
    parts = [f"{code}: {CODES[code]}", explanation.text]
    for head, example in (("Wrong:", explanation.wrong), ("Right:", explanation.right)):
        if example:
            parts.append(head + "\n\n" + "\n".join(f"    {line}" for line in example.splitlines()))
    return "\n\n".join(parts) + "\n"


def _of(text: str, wrong: str = "", right: str = "") -> Explanation:
    return Explanation(text=" ".join(text.split()), wrong=wrong, right=right)


EXPLANATIONS: Final[dict[str, Explanation]] = {
    # The file
    "TB001": _of(
        """The file is not there, may not be read, or is larger than 1 MiB. A workload is written by a
        person; something larger is another file under a wrong name."""
    ),
    "TB002": _of(
        """A TOML file is UTF-8 text without a byte order mark and without control characters, which editors
        hide and terminals obey. Save it as UTF-8; in strings write such characters as escapes."""
    ),
    "TB003": _of(
        """The TOML parser cannot read the file. The place is where it gave up: the mistake is there or
        shortly before. Common ones are text without quotes, a missing comma in a list or an inline table,
        and a key or [table] that is written twice.""",
        wrong='[tensors]\nx = { shape = ["n"] dtype = "float32" init = "normal" }',
        right='[tensors]\nx = { shape = ["n"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }',
    ),
    "TB004": _of(
        """Workloads are TOML 1.0, which every editor and every version of Python reads. TOML 1.1 also
        allows line breaks and a trailing comma in inline tables, the escapes \\x and \\e, and times without
        seconds; none of them is needed.""",
        wrong='[gate]\nreference = "torch\\x2deager"',
        right='[gate]\nreference = "torch"',
    ),
    "TB005": _of(
        """Every file says which version of the language it is written in, so that a later tirbench can tell
        an old file from a wrong one. It is read before anything else is judged.""",
        wrong="schema = 2",
        right="schema = 1",
    ),
    "TB006": _of(
        """The file's name without .toml is the name of the workload, and stands in ids, in the names of
        results and on the command line: letters, digits, dots, dashes and underscores, and no two files of
        one name."""
    ),
    "TB007": _of(
        """The first line of a workload may name its schema, `#:schema PATH`, so that editors complete keys,
        explain them and underline mistakes, also offline. The file at the path is missing, outside the
        project, or of another tirbench, so that editors judge by other rules than `check`. `tirbench schema`
        prints the right one. This is a warning; the workload runs all the same.""",
    ),
    # The schema
    "TB010": _of(
        """Unknown keys are errors, since an ignored key is a setting that silently does not hold. If the key
        is nearly that of another, the message names it; otherwise it lists the keys that can stand here.""",
        wrong='[tensors]\nx = { shape = ["n"], dtyp = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }',
        right='[tensors]\nx = { shape = ["n"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }',
    ),
    "TB011": _of(
        "A table lacks a key that has no default. The caret stands below the table's header or name.",
        wrong="[work]\n\n[[skip]]\nwhen = 'n == 64'",
        right="[work]\n\n[[skip]]\nwhen = 'n == 64'\nreason = 'needs a full block'",
    ),
    "TB012": _of(
        """A value is of another type than the key takes: a number in quotes, a list where one value stands.
        Where the language takes an expression both are fine: 128 and "2 * 64".""",
        wrong='seed = "0"',
        right="seed = 0",
    ),
    "TB013": _of(
        "The key takes one word of a fixed list, and this is none of them.",
        wrong='[timer]\nname = "cuda_event"',
        right='[timer]\nname = "event"',
    ),
    "TB014": _of(
        "A number lies outside of what the key can mean.",
        wrong='[work]\nbytes = "-nbytes(x)"',
        right='[work]\nbytes = "nbytes(x)"',
    ),
    "TB015": _of(
        "A list or table is too short or too long: an axis without values makes no case.",
        wrong="[matrix]\nn = []",
        right="[matrix]\nn = [64, 128]",
    ),
    "TB016": _of(
        """A text or a name is not of the form that is read here. Names of tensors, axes, params, kernels and
        references are letters, digits and underscores, a letter first, because they are variables of the
        harness.""",
        wrong="[params]\nblock-size = 64",
        right="[params]\nblock_size = 64",
    ),
    "TB017": _of(
        """Two keys contradict each other, so that one of them would silently not hold. Keep the one that is
        meant.""",
        wrong="[check.outputs.y]\nexact = true\nrtol = 1e-3",
        right="[check.outputs.y]\nexact = true",
    ),
    # Names and expressions
    "TB020": _of(
        """A text in this place is an expression: numbers, names, arithmetic, comparisons, `and`, `or`,
        `not`, `a if b else c`, and a fixed list of functions (cdiv, align, next_pow2, min, max, size, nbytes
        and others). Nothing else of Python exists here, so that checking a file cannot run code.""",
        wrong='[work]\nbytes = "x.nbytes + y.nbytes"',
        right='[work]\nbytes = "nbytes(x) + nbytes(y)"',
    ),
    "TB021": _of(
        """An expression reads a name that nothing defines. Names come from [params], [matrix], [derive],
        [tensors], the dtypes, and a few of the device. Literal text is quoted once more: "'text'".""",
        wrong='[work]\nbytes = "2 * nbytes(xs)"',
        right='[work]\nbytes = "2 * nbytes(x)"',
    ),
    "TB022": _of(
        """An expression cannot be computed in some case: a division by zero, a dimension that the tensor
        does not have, a number that leaves 64 bits, or a value that is not known yet where it is needed. The
        message shows the case and the values that the expression read.""",
        wrong='[derive]\nper_group = "n // groups"\n\n[params]\ngroups = 0\n\n'
        '[work]\nflops = "per_group"',
        right='[derive]\nper_group = "n // groups"\n\n[params]\ngroups = 4\n\n[work]\nflops = "per_group"',
    ),
    "TB023": _of(
        """A value is of a kind that cannot stand here: a fraction where a whole number is needed (divide
        with //), a number where a dtype is needed, a C width for a kernel that is not C.""",
        wrong='[tensors]\nx = { shape = ["n / 2"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }',
        right='[tensors]\nx = { shape = ["n // 2"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }',
    ),
    "TB024": _of(
        """All names of a workload share one space, since all are variables of the harness. A name cannot be
        defined twice, be a keyword of Python, a dtype or a function of the language.""",
        wrong="[params]\nx = 3",
        right="[params]\nshift = 3",
    ),
    "TB025": _of(
        "Derived names or shapes are defined by each other, so that none of them has a value.",
        wrong='[derive]\nrows = "cols * 2"\ncols = "rows // 2"',
        right='[derive]\nrows = "cols * 2"\ncols = "n // 2"',
    ),
    # Cases
    "TB030": _of(
        """An axis lists values of one kind, each once; points that bind several names all bind the same
        ones.""",
        wrong="[matrix]\nn = [64, 128, 64]",
        right="[matrix]\nn = [64, 128]",
    ),
    "TB031": _of(
        """[[case]] adds one case to those of the matrix. It gives every name that the axes give and no
        other; it never changes a case that is there.""",
        wrong="[[case]]\nm = 4096",
        right="[[case]]\nn = 4096",
    ),
    "TB032": _of(
        """The id of a case names it in results, in baselines, on the command line and as a file. Its template
        names values of the case in braces; what comes out is letters, digits and _ . , = + @ % - only.""",
        wrong='id = "n {n}"',
        right='id = "n{n}"',
    ),
    "TB033": _of(
        """Two cases have one id, so that their results could not be told apart. Put the axis that tells them
        apart into the id, or remove the case that is there already.""",
        wrong='id = "small"',
        right='id = "small_{n}"',
    ),
    "TB034": _of(
        """A glob of [select] matches no case, or a [[skip]] never holds. Either was probably meant to match
        and no longer does, after an axis or the id changed.""",
        wrong='[select]\nsmoke = ["n32"]',
        right='[select]\nsmoke = ["n64"]',
    ),
    "TB035": _of(
        """An assertion of the file does not hold in some case: the author's own condition on what the kernel
        can do. Change the case, or skip it with a reason.""",
        wrong='assert = ["n % 128 == 0"]',
        right='assert = ["n % 64 == 0"]',
    ),
    "TB036": _of(
        """The axes multiply to more cases than a workload can have. They are counted before any is built.
        List the points that matter in [[case]], or bind several names in one axis.""",
        wrong="[matrix]\nn = [64]\np = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n"
        "q = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\nr = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n"
        "s = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\nt = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\nu = [1, 2]",
        right='id = "n{n}_p{p}_q{q}"\n\n[matrix]\nn = [64]\nsizes = [{ p = 1, q = 1 }, { p = 10, q = 2 }]',
    ),
    # Tensors
    "TB040": _of(
        """No implementation, oracle or expression uses the tensor. It would only cost memory and mislead a
        reader.""",
        wrong='[tensors]\nx = { shape = ["n"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }\nspare = { shape = ["n"], dtype = "float32", init = "zeros" }',
        right='[tensors]\nx = { shape = ["n"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }',
    ),
    "TB041": _of(
        """A tensor needs a shape and a dtype (its own, or through `like` or `view`), and an input needs
        contents: one `init`, or one [[init]] that returns it.""",
        wrong='[tensors]\nx = { shape = ["n"], dtype = "float32" }\ny = { role = "out", like = "x" }',
        right='[tensors]\nx = { shape = ["n"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }',
    ),
    "TB042": _of(
        """A shape or stride is not a whole number, is below 1 (a stride below 0), or lets two elements of one
        tensor share memory, so that writing one changes the other.""",
        wrong='[tensors]\nx = { shape = ["n - 64"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }',
        right='[tensors]\nx = { shape = ["n"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }',
    ),
    "TB043": _of(
        """A view shows the memory of another tensor under another shape, stride or dtype. It must end where
        its base ends, and has no contents of its own.""",
        wrong='[tensors]\nx = { shape = ["n"], dtype = "float32", init = "normal" }\n'
        'tail = { view = "x", shape = ["n"], offset = 1 }\ny = { role = "out", like = "x" }\n\n'
        '[kernels.ours]\ntarget = "ops.py:double"\nargs = ["tail", "y"]',
        right='[tensors]\nx = { shape = ["n"], dtype = "float32", init = "normal" }\n'
        'tail = { view = "x", shape = ["n - 1"], offset = 1 }\ny = { role = "out", like = "x" }\n\n'
        '[kernels.ours]\ntarget = "ops.py:double"\nargs = ["tail", "y"]',
    ),
    "TB044": _of(
        """An initialiser cannot fill this tensor: `normal` draws floating-point numbers, `randint` integers,
        `cu_seqlens` of k lengths has k + 1 entries, and ranges are not empty.""",
        wrong='[tensors]\nx = { shape = ["n"], dtype = "int32", init = "normal" }\n'
        'y = { role = "out", like = "x" }',
        right='[tensors]\nx = { shape = ["n"], dtype = "int32", '
        'init = { kind = "randint", low = 0, high = 9 } }\n'
        'y = { role = "out", like = "x" }',
    ),
    "TB045": _of(
        """`reset` says whether a tensor gets its first contents back before every call. Only what has
        contents and is changed by a call can be restored.""",
        wrong='[tensors]\nx = { shape = ["n"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }\nz = { role = "scratch", like = "x", reset = "restore" }\n\n'
        '[kernels.ours]\ntarget = "ops.py:double"\nargs = ["x", "y", "z"]',
        right='[tensors]\nx = { shape = ["n"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }\n'
        'z = { role = "scratch", like = "x", init = "zeros", reset = "restore" }\n\n'
        '[kernels.ours]\ntarget = "ops.py:double"\nargs = ["x", "y", "z"]',
    ),
    "TB046": _of(
        """The role of a tensor and what is done with it contradict each other: an `out` tensor has no
        contents before the call, an `in` tensor is not written, compared or returned.""",
        wrong='[check.oracle]\ntarget = "ops.py:doubled"\nargs = ["x"]\nreturns = ["x", "y"]',
        right='[check.oracle]\ntarget = "ops.py:doubled"\nargs = ["x"]\nreturns = ["y"]',
    ),
    # Implementations
    "TB050": _of(
        """A target is `file.py:function` with a path relative to the workload file, or a dotted path that
        Python can import. It lies inside the project: no absolute path, no `..` out of it, no link out of
        it. A stranger's file can then name nothing else on this machine.""",
        wrong='[kernels.ours]\ntarget = "/opt/ops.py:double"\nargs = ["x", "y"]',
        right='[kernels.ours]\ntarget = "ops.py:double"\nargs = ["x", "y"]',
    ),
    "TB051": _of(
        """The file of a target does not exist or cannot be parsed, or defines no such function. Files are
        looked up from the folder of the workload, and are read, never imported.""",
        wrong='[kernels.ours]\ntarget = "ops.py:dubble"\nargs = ["x", "y"]',
        right='[kernels.ours]\ntarget = "ops.py:double"\nargs = ["x", "y"]',
    ),
    "TB052": _of(
        """The function does not take an argument that it is given: a misspelt parameter, or one too many.
        The parameters are read from the source of the function.""",
        wrong='[kernels.ours]\ntarget = "ops.py:double"\nargs = { x = "x", y = "y", n = "n" }',
        right='[kernels.ours]\ntarget = "ops.py:double"\nargs = { x = "x", y = "y" }',
    ),
    "TB053": _of(
        """The function needs an argument that it is not given. Of a Triton kernel these are its constexprs
        too, unless a tuner sets them.""",
        wrong='[kernels.ours]\ntarget = "ops.py:double"\nargs = ["x"]\nreturns = "y"',
        right='[kernels.ours]\ntarget = "ops.py:double"\nargs = ["x", "y"]',
    ),
    "TB054": _of(
        """A key belongs to another kind of launch or initialiser, so that it would have no effect here. The
        message names the kind that has it.""",
        wrong='[kernels.ours]\ntarget = "ops.py:double"\nargs = ["x", "y"]\nnum_warps = 4',
        right='[kernels.ours]\ntarget = "ops.py:double"\nargs = ["x", "y"]',
    ),
    "TB055": _of(
        """The hardware cannot have such a launch: a grid has 1 to 3 dimensions of at most 2147483647, 65535
        and 65535, a block at most 1024 threads, `num_warps` is a power of two.""",
        wrong='[kernels.ours]\nkind = "triton"\ntarget = "ops.py:double_kernel"\ngrid = [1]\n'
        'num_warps = 3\nargs = { x_ptr = "x", y_ptr = "y", N = "n" }',
        right='[kernels.ours]\nkind = "triton"\ntarget = "ops.py:double_kernel"\ngrid = [1]\n'
        'num_warps = 4\nargs = { x_ptr = "x", y_ptr = "y", N = "n" }',
    ),
    "TB056": _of(
        "A [[skip]], the gate or a rule names a kernel or reference that the file does not have.",
        wrong='[gate]\nreference = "troch"',
        right='[gate]\nreference = "torch"',
    ),
    # Checks
    "TB060": _of(
        """Something that is timed is compared with nothing. A number without a check is not a measurement, so
        every tensor that is written is returned by the oracle, or says why it cannot be: `unchecked`.""",
        wrong='[tensors]\nx = { shape = ["n"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }\nz = { role = "out", like = "x" }\n\n'
        '[kernels.ours]\ntarget = "ops.py:double"\nargs = ["x", "y", "z"]',
        right='[tensors]\nx = { shape = ["n"], dtype = "float32", init = "normal" }\n'
        'y = { role = "out", like = "x" }\nz = { role = "out", like = "x" }\n\n'
        '[kernels.ours]\ntarget = "ops.py:double"\nargs = ["x", "y", "z"]\n\n'
        '[check.outputs.z]\nunchecked = "holds the random state"',
    ),
    "TB061": _of(
        "A tolerance is finite and not negative; shares such as `matched` and `cosine` are at most 1.",
        wrong='[check.outputs.y]\nrtol = -1e-3\nreason = "the sum is short"',
        right='[check.outputs.y]\nrtol = 1e-3\nreason = "the sum is short"',
    ),
    "TB062": _of(
        """A check is weaker than the default, or a tensor is not restored. That may be right, and then a
        reviewer must be able to read why.""",
        wrong="[check.outputs.y]\nrtol = 0.05",
        right='[check.outputs.y]\nrtol = 0.05\nreason = "the scales are rounded to powers of two"',
    ),
    # Baselines
    "TB070": _of(
        """A row is pinned for a problem and for a way of measuring. One of them has changed since, so that
        the number is not that of the workload any more: `gate` fails on it. Measure it again on its
        hardware with `exec --pin`, or take the change back. This is a warning of `check`.""",
    ),
    "TB071": _of(
        """A case or an implementation is gone and its pinned number is still there. `gate` fails on it;
        `tirbench pin --prune` drops it. A renamed case keeps its history if the rename is a commit of its
        own. This is a warning of `check`.""",
    ),
    "TB072": _of(
        """A baseline file holds the conflict markers of a merge, is not TOML, or is not as `tirbench pin`
        writes it. Baselines are written by `pin` alone: take one side of the merge and measure again.""",
    ),
    # The rest
    "TB099": _of(
        """Twenty problems of a file are shown; this one counts the rest. Later ones often follow from the
        first."""
    ),
}
