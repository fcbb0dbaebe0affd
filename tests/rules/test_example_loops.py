"""What examples use behind a loop over `state.batches` is in the state, or made behind the loop.

A process that is restored at the last batch of a pass goes on behind the loop, and has never run
its body: a variable of the body does not exist then, and the job would end with a NameError.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from conftest import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BAD = """
while state.epoch < 3:
    for x, y in state.batches(loader):
        loss = step(x, y)
    print(loss)
"""


def names(nodes: Sequence[ast.AST], context: type[ast.expr_context]) -> set[str]:
    found = [n for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)]
    return {name.id for name in found if isinstance(name.ctx, context)}


def loops(tree: ast.AST) -> Iterator[tuple[ast.For, list[ast.stmt]]]:
    """Yields each loop over batches, and the statements behind it."""
    for block in ast.walk(tree):
        body = getattr(block, "body", None)
        for at, each in enumerate(body if isinstance(body, list) else []):
            if isinstance(each, ast.For) and ".batches(" in ast.unparse(each.iter):
                yield each, body[at + 1 :]


def of_the_body(source: str) -> set[str]:
    """Returns the variables of loops' bodies that are used behind the loops."""
    found = set()
    for loop, behind in loops(ast.parse(source)):
        made = names([loop.target, *loop.body], ast.Store)
        found |= made & names(behind, ast.Load) - names(behind, ast.Store)
    return found


def test_a_variable_of_the_body_is_found() -> None:
    assert of_the_body(BAD) == {"loss"}
    assert of_the_body(BAD.replace("loss", "state.loss")) == set()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_no_example_needs_the_body_behind_it(example: Path) -> None:
    assert of_the_body(example.read_text()) == set()
