"""The notebook of the docs runs, and what is stored in it is what it prints."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from endtoend import REPO

NOTEBOOK = REPO / "docs" / "notebook.ipynb"


def read() -> Any:
    nbformat = pytest.importorskip("nbformat")
    return nbformat.read(NOTEBOOK, as_version=4)


def texts(cells: list[Any]) -> list[list[str]]:
    """Return what each cell printed, as text."""
    return [
        [output.get("data", output)["text/plain"] for output in cell.get("outputs", ())]
        for cell in cells
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the clients of Jupyter
def test_the_notebook_prints_what_is_stored_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a change: `jupyter execute --inplace docs/notebook.ipynb`, and take out the times of execution."""
    nbclient = pytest.importorskip("nbclient")
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(REPO / "src"))
    stored = read()
    run = copy.deepcopy(stored)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(run, timeout=200, resources=where).execute()
    assert texts(run.cells) == texts(stored.cells)
    assert sum(map(len, texts(stored.cells))) == 7
    assert not [path for path in tmp_path.iterdir() if path.name == "runs"]
