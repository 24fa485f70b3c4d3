"""Changes of one statement, argument, text or operator.

Cosmic Ray supplies most of them. Those defined here are breaks that happen at the edges of
a program: a call or a guard that is missing, an option that is not passed, a wrong name.
"""

import copy

from cosmic_ray import plugins
from cosmic_ray.exceptions import CosmicRayTestingException
from cosmic_ray.operators import exception_replacer
from cosmic_ray.operators.operator import Example, Operator
from parso.python import tree

#: Of the comparisons: the opposite and the neighbour, since both change the result.
COMPARISONS = [
    "Eq_NotEq",
    "NotEq_Eq",
    "Lt_LtE",
    "Lt_GtE",
    "LtE_Lt",
    "LtE_Gt",
    "Gt_GtE",
    "Gt_LtE",
    "GtE_Gt",
    "GtE_Lt",
    "Is_IsNot",
    "IsNot_Is",
]
ARITHMETIC = [
    "Add_Sub",
    "Sub_Add",
    "Mul_FloorDiv",
    "Div_Mul",
    "FloorDiv_Mul",
    "Mod_Mul",
    "Pow_Mul",
    "BitOr_BitAnd",
    "BitAnd_BitOr",
    "BitXor_BitAnd",
    "LShift_RShift",
    "RShift_LShift",
]
SINGLE = [
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ZeroIterationForLoop",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
]


class RemoveStatement(Operator):
    """Remove a call, a raise, a deletion, or an assignment to a part of an object."""

    def mutation_positions(self, node):
        if node.type == "simple_stmt" and self._is_removable(node.children[0]):
            yield (node.children[0].start_pos, node.children[0].end_pos)

    @staticmethod
    def _is_removable(node):
        if node.type in ("raise_stmt", "del_stmt") or node == "raise":
            return True
        if node.type == "expr_stmt":
            return node.children[0].type in ("atom_expr", "power")
        if node.type in ("atom_expr", "power"):
            last = node.children[-1]
            return last.type == "trailer" and last.children[0] == "("
        return False

    def mutate(self, node, index):
        first = node.children[0]
        prefix = first.get_first_leaf().prefix
        node.children[0] = tree.Keyword("pass", first.start_pos, prefix)
        return node

    @classmethod
    def examples(cls):
        return (
            Example("os.fsync(fd)\n", "pass\n"),
            Example("if a:\n    raise E(a)\n", "if a:\n    pass\n"),
            Example("self.a = 1\n", "pass\n"),
        )


class RemoveArgument(Operator):
    """Leave out an argument that is passed by name."""

    def mutation_positions(self, node):
        for argument in self._arguments(node):
            yield (argument.start_pos, argument.end_pos)

    @staticmethod
    def _arguments(node):
        if node.type not in ("trailer", "arglist"):
            return []
        return [
            child
            for child in node.children
            if child.type == "argument" and child.children[1] == "="
        ]

    def mutate(self, node, index):
        place = node.children.index(self._arguments(node)[index])
        rest = list(node.children)
        del rest[place]
        # One comma goes with it: the one behind it, or the one before the last argument.
        if place < len(rest) and rest[place] == ",":
            del rest[place]
        elif place and rest[place - 1] == ",":
            del rest[place - 1]
        node.children = rest
        return node

    @classmethod
    def examples(cls):
        return (
            Example("f(a, b=1)", "f(a)"),
            Example("f(b=1, c=2)", "f( c=2)"),
            Example("f(b=1)", "f()"),
        )


class ReplaceText(Operator):
    """Add a letter to a text."""

    def mutation_positions(self, node):
        if node.type == "string" and node.parent.type != "strings":
            yield (node.start_pos, node.end_pos)

    def mutate(self, node, index):
        changed = copy.copy(node)
        quotes = 3 if node.value.endswith(('"""', "'''")) else 1
        changed.value = node.value[:-quotes] + "X" + node.value[-quotes:]
        return changed

    @classmethod
    def examples(cls):
        return (Example("a = 'b'", "a = 'bX'"), Example('a = b""', 'a = b"X"'))


class ReplaceException(exception_replacer.ExceptionReplacer):
    """Catch another exception; unlike the inherited method, also in place of ``a.B``."""

    def mutate(self, node, index):
        name = self._name_nodes(node)[index]
        other = CosmicRayTestingException.__name__
        if isinstance(name, tree.PythonNode):
            place = name.parent.children.index(name)
            prefix = name.get_first_leaf().prefix
            name.parent.children[place] = tree.Name(other, name.start_pos, prefix)
            return node
        return super().mutate(node, index)

    @classmethod
    def examples(cls):
        other = CosmicRayTestingException.__name__
        return (
            Example(
                "try: f()\nexcept (a.B, OSError): pass",
                f"try: f()\nexcept ({other}, OSError): pass",
            ),
            Example(
                "try: f()\nexcept (OSError, a.B): pass",
                f"try: f()\nexcept (OSError, {other}): pass",
                occurrence=1,
            ),
        )


OWN = (RemoveStatement, RemoveArgument, ReplaceText)


def all_operators():
    """Return the operators by name."""
    names = [f"ReplaceComparisonOperator_{pair}" for pair in COMPARISONS]
    names += [f"ReplaceBinaryOperator_{pair}" for pair in ARITHMETIC]
    actual = {name: plugins.get_operator(f"core/{name}")() for name in names + SINGLE}
    actual["ExceptionReplacer"] = ReplaceException()
    return actual | {operator.__name__: operator() for operator in OWN}
