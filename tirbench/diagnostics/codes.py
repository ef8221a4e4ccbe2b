"""The error codes: stable, so that a message can be reworded and still be looked up or counted."""

from __future__ import annotations

from typing import Final

CODES: Final[dict[str, str]] = {
    # The file
    "TB001": "the file cannot be read",
    "TB002": "the file is not UTF-8 text",
    "TB003": "the file is not TOML",
    "TB004": "the file uses TOML 1.1",
    "TB005": "the file is of another version of the language",
    "TB006": "the file's name cannot name a workload",
    "TB007": "the schema that the file names is not ours",
    # The schema
    "TB010": "unknown key",
    "TB011": "missing key",
    "TB012": "wrong type",
    "TB013": "not one of the allowed values",
    "TB014": "number out of range",
    "TB015": "wrong number of entries",
    "TB016": "badly formed text",
    "TB017": "keys that exclude each other",
    # Names and expressions
    "TB020": "not an expression",
    "TB021": "unknown name",
    "TB022": "an expression without a value",
    "TB023": "a value of the wrong kind",
    "TB024": "a name that is taken or reserved",
    "TB025": "names that define each other",
    # Cases
    "TB030": "an axis that cannot be",
    "TB031": "a case that is not complete",
    "TB032": "an id that cannot be",
    "TB033": "two cases of one id",
    "TB034": "a skip or select that matches nothing",
    "TB035": "an assertion that does not hold",
    "TB036": "too many cases",
    # Tensors
    "TB040": "an unused tensor",
    "TB041": "a tensor without contents, shape or dtype",
    "TB042": "a shape or stride that cannot be",
    "TB043": "a view that does not fit its base",
    "TB044": "an initialiser that does not fit its tensor",
    "TB045": "a reset that does not fit its tensor",
    "TB046": "a tensor of the wrong role",
    # Implementations
    "TB050": "a target that cannot be",
    "TB051": "a target that does not exist",
    "TB052": "an argument that the function does not take",
    "TB053": "an argument that is missing",
    "TB054": "an option that does not belong here",
    "TB055": "a grid that cannot be",
    "TB056": "an implementation that does not exist",
    # Checks
    "TB060": "nothing to compare with",
    "TB061": "a tolerance that cannot be",
    "TB062": "a weakening without a reason",
    # Baselines
    "TB070": "a pinned number that means something else by now",
    "TB071": "a pinned number of nothing that is there",
    "TB072": "a baseline that cannot be read",
    # The rest
    "TB099": "more problems than are shown",
}
