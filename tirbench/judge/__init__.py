"""Judge: verdicts of pairs and decisions of the gate, as pure functions of what was measured."""
