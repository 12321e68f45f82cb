"""Data flows one way: a module imports only from packages before its own."""

import ast
import graphlib
from pathlib import Path

import pytest

import piratenets

ROOT = Path(piratenets.__file__).parent
# `config` comes before the fields, which are made from it, and `presets` right after: the
# report compares a run's configuration with its preset.
ORDER = ("errors", "files", "problems", "config", "presets", "fields", "references", "residuals",
         "weighting", "optimisers", "training", "runs", "report", "api", "bench", "cli")

MODULES = {".".join(["piratenets", *path.relative_to(ROOT).with_suffix("").parts]): path
           for path in ROOT.rglob("*.py")}


def imported(module, tree):
    """The package's own modules that a module imports, wherever in it the statement stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative imports hide where a name is from"
            # `from package import module` imports the module, and nothing of the package's own.
            whole = [f"{node.module}.{a.name}" for a in node.names]
            names = [n for n in whole if n in MODULES]
            names += [node.module] if len(names) < len(whole) else []
        else:
            continue
        yield from (n for n in names if n.split(".")[0] == "piratenets")


IMPORTS = {module: set(imported(module, ast.parse(path.read_text())))
           for module, path in MODULES.items()}


def rank(module):
    return ORDER.index(module.split(".")[1])


@pytest.mark.parametrize("module", sorted(m for m in MODULES if m != "piratenets.__init__"))
def test_a_module_imports_only_from_packages_before_its_own(module):
    own = module.split(".")[1]
    assert own in ORDER, f"{own} has no place in the order yet"
    for other in IMPORTS[module]:
        assert other != "piratenets", f"{module} imports the whole package"
        same_package = other.split(".")[1] == own
        assert same_package or rank(other) < rank(module), f"{module} imports {other}"


def test_no_module_imports_itself_by_way_of_others():
    def name(module):
        return module if module in MODULES else f"{module}.__init__"

    graph = {module: {name(m) for m in others} - {module} for module, others in IMPORTS.items()}
    # A package's own __init__ gathers its modules; they do not ask it for anything.
    assert all(f"{m.rsplit('.', 1)[0]}.__init__" not in others for m, others in graph.items()
               if not m.endswith("__init__"))
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(MODULES)


def test_every_place_in_the_order_is_taken():
    assert {m.split(".")[1] for m in MODULES} - {"__init__"} == set(ORDER)


def test_only_the_outermost_modules_know_of_terminals_and_plots():
    """Training can be used without them."""
    heavy = {"rich", "tyro", "matplotlib"}
    for module, path in MODULES.items():
        if module == "piratenets.__init__" or rank(module) >= rank("piratenets.report"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else \
                [node.module] if isinstance(node, ast.ImportFrom) else []
            assert not heavy & {n.split(".")[0] for n in names}, module
