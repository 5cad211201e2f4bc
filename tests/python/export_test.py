"""The recipes of docs/export.md, word for word, against `seqfuse recommend`."""

import json
import pathlib
import re

import numpy
import pytest

from trained_runs import USERS, recommend, run_seqfuse

ROOT = pathlib.Path(__file__).parents[2]
parquet = pytest.importorskip("pyarrow.parquet", reason="the recipes read Parquet with pyarrow")


CALLS = {"faiss": "faiss.IndexFlatIP(", "hnswlib": "hnswlib.Index(", "numpy": "np.argsort("}


def recipe(library: str) -> str:
    """The Python block of docs/export.md that searches with the library."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/export.md").read_text(), flags=re.DOTALL)
    found = [block for block in blocks if CALLS[library] in block]
    assert len(found) == 1, f"{len(found)} blocks search with {library}"
    return found[0]


@pytest.fixture(scope="module", params=["hstu_research", "hstu"])
def exported(request, runs, tmp_path_factory):
    """(run, folder with items and users as .parquet and .npy)."""
    folder = tmp_path_factory.mktemp("vectors")
    for what in ("items", "users"):
        for ending in ("parquet", "npy"):
            run_seqfuse("export", runs[request.param], f"--{what}", "--output", folder / f"{what}.{ending}")
    return runs[request.param], folder


@pytest.mark.parametrize("library", CALLS)
def test_search_finds_what_recommend_does(exported, library, monkeypatch):
    pytest.importorskip(library, reason=f"{library} is not installed: pip install faiss-cpu hnswlib")
    run, folder = exported
    monkeypatch.chdir(folder)
    names = {}
    exec(recipe(library), names)
    found = names["recommended"]
    assert len(found) == USERS
    for user in ("u0", "u13", "u42", "u59"):
        expected = recommend(run, "--user", user, "--include-seen", "--top-k", 10)
        assert len(expected) == 10
        recall = len({item for item, _ in expected} & {item for item, _ in found[user]}) / 10
        assert recall == 1
        for (_, score), (_, wanted) in zip(found[user], expected):
            assert abs(score - wanted) < 1e-5


def test_npy_and_parquet_hold_the_same(exported):
    _, folder = exported
    for what in ("items", "users"):
        table = parquet.read_table(folder / f"{what}.parquet")
        vectors = numpy.load(folder / f"{what}.npy")
        about = json.loads((folder / f"{what}.npy.json").read_text())
        assert vectors.dtype == numpy.float32
        assert numpy.array_equal(numpy.stack(table["vector"].to_pylist()).astype(numpy.float32), vectors)
        assert about.pop("ids") == table["id"].to_pylist()
        assert about == json.loads(table.schema.metadata[b"seqfuse"])
        assert (about["vectors"], about["normalized"], about["width"]) == (what, "l2", 16)
        assert numpy.allclose(numpy.linalg.norm(vectors, axis=1), 1, atol=1e-5)
