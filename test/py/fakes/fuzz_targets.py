"""All targets of `fakes.fuzz`, with their shares of the messages in percent."""

from fakes import fuzz, fuzz_expressions, fuzz_inputs, hostile_values

#: A message of the last ones costs most.
TARGETS = (
    (fuzz_inputs.Bodies, 22),
    (hostile_values.Values, 20),
    (fuzz_inputs.Datagrams, 15),
    (fuzz_inputs.NodeFiles, 15),
    (fuzz.Answers, 12),
    (fuzz.StoreWire, 5.8),
    (fuzz.Luxi, 5),
    (fuzz_expressions.Expressions, 4),
    (fuzz.Noded, 1),
    (fuzz.StoreFiles, 0.2),
)
