"""Tables of parameters: types, values and defaults."""
