import json

import pytest

from dubio.core.errors import BadFile, UserError
from dubio.formats.tables import read_results, write_results

ROWS = [
    {"dataset": "a", "method": "m, n", "metric": "nll", "value": 0.1, "seed": 1},
    {"dataset": "a", "method": "m, n", "metric": "brier", "value": float("nan"), "note": "x"},
]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json"])
def test_results_come_back_as_text_and_what_is_not_a_number_is_empty(tmp_path, suffix):
    path = tmp_path / f"r{suffix}"
    write_results(path, ROWS)
    found = read_results(path)
    assert found[0]["value"] == "0.1"
    assert found[0]["method"] == "m, n"
    assert found[0]["seed"] == "1"
    assert found[1]["value"] == ""
    assert found[1]["note"] == "x"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_values_keep_the_digits_they_were_written_with(tmp_path):
    path = tmp_path / "r.json"
    path.write_text('[{"dataset": "a", "method": "m", "metric": "nll", "value": 0.5000000000000000000001}]')
    assert read_results(path)[0]["value"] == "0.5000000000000000000001"


def test_refusals(tmp_path):
    path = tmp_path / "r.json"
    for content, words in [
        ("{", "not JSON"),
        ("{}", "list of objects"),
        (json.dumps([{"dataset": "a"}]), "has no 'method'"),
    ]:
        path.write_text(content)
        with pytest.raises(BadFile, match=words):
            read_results(path)
    with pytest.raises(BadFile, match="files ending in"):
        read_results(tmp_path / "r.xlsx")
    with pytest.raises(UserError, match="no results"):
        write_results(path, [])
    with pytest.raises(UserError, match=r"result 0 .from 0. has no 'dataset'"):
        write_results(path, [{"method": "m"}])
    with pytest.raises(UserError, match="files ending in"):
        write_results(tmp_path / "r.xlsx", ROWS)
