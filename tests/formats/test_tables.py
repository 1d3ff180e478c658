import json

import pytest

from dubio.core.errors import BadFile
from dubio.formats.tables import read_results

TEXTS = {
    ".csv": 'dataset,method,metric,value,seed,note\na,"m, n",nll,0.1,1,\na,"m, n",brier,,,x\n',
    ".tsv": "dataset\tmethod\tmetric\tvalue\tseed\tnote\na\tm, n\tnll\t0.1\t1\t\na\tm, n\tbrier\t\t\tx\n",
    ".json": '[{"dataset": "a", "method": "m, n", "metric": "nll", "value": 0.1, "seed": 1}, '
    '{"dataset": "a", "method": "m, n", "metric": "brier", "value": null, "note": "x"}]',
}


@pytest.mark.parametrize("suffix", TEXTS)
def test_results_come_back_as_text_and_a_missing_value_is_empty(tmp_path, suffix):
    path = tmp_path / f"r{suffix}"
    path.write_text(TEXTS[suffix])
    rows = read_results(path)
    assert rows[0]["value"] == "0.1"
    assert rows[0]["method"] == "m, n"
    assert rows[0]["seed"] == "1"
    assert rows[1]["value"] == ""
    assert rows[1]["note"] == "x"


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
