"""The register: the state is a function of the log, the queue is ordered by uncertainty, rows stay out of the log."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dubio.core.errors import UserError
from dubio.serving.log_file import Position
from dubio.serving.register import Register, State


def decision(name, uncertainty, referred):
    answer = {"id": name, "uncertainty": uncertainty, "decision": "refer" if referred else "retain"}
    return {"entry": "decision", "id": name, "content": "c" * 64, "at": "2026-01-01", "decision": answer}


def label(name, value):
    return {"entry": "label", "id": name, "at": "2026-01-01", "label": value}


def put(register, *entries):
    register.apply(entries, register.write(entries))


NAMES = st.sampled_from("abcdefgh")
ENTRIES = st.lists(
    st.one_of(
        st.builds(decision, NAMES, st.sampled_from([0.0, 0.1, 0.25, 0.5]), st.booleans()),
        st.builds(label, NAMES, st.sampled_from(["x", "y", None])),
    )
)


def valid(entries):
    """Entries as a server writes them: an id is decided once, and labelled after that."""
    decided = {}
    for entry in entries:
        if entry["entry"] == "decision" and entry["id"] not in decided:
            decided[entry["id"]] = entry
            yield entry
        elif entry["entry"] == "label" and entry["id"] in decided:
            yield entry


@given(ENTRIES)
@settings(max_examples=60, deadline=None)
def test_the_queue_is_what_sorting_all_entries_gives(entries):
    state, order, labels = State(), [], {}
    for number, entry in enumerate(valid(entries)):
        state.apply(entry, Position(number, 0))
        if entry["entry"] == "label":
            labels[entry["id"]] = entry["label"]
        else:
            order.append(entry["decision"])
    referred = [own for own in order if own["decision"] == "refer"]
    waiting = [own["id"] for own in sorted(referred, key=lambda own: -own["uncertainty"]) if not labels.get(own["id"])]
    assert [item[-1] for item in state.waiting] == waiting
    assert state.labels == {name: own for name, own in labels.items() if own is not None}
    assert state.labelled_referrals == len(referred) - len(waiting)
    assert sum(state.counts.values()) == len(order)


def test_a_register_that_is_opened_again_has_the_same_state(tmp_path):
    register = Register(tmp_path)
    put(register, decision("a", 0.1, True), decision("b", 0.4, True), decision("c", 0.01, False))
    register.apply_rows([{"id": "b", "row": {"t": 1}}], register.write_rows([{"id": "b", "row": {"t": 1}}]))
    put(register, label("a", "x"))
    put(register, label("a", None), label("c", "y"))
    before = asdict(register.state)
    register.close()
    again = Register(tmp_path)
    assert asdict(again.state) == before
    assert [entry["id"] for entry, _ in again.queue(10)] == ["b", "a"]
    assert [row for _, row in again.queue(10)] == [{"t": 1}, None]
    assert again.decision("c")["decision"]["decision"] == "retain"
    again.close()


def test_one_process_owns_a_folder(tmp_path):
    register = Register(tmp_path)
    with pytest.raises(UserError, match="belongs to a server that is running"):
        Register(tmp_path)
    register.close()
    Register(tmp_path).close()


def test_a_torn_tail_is_noted_for_the_user_and_in_the_log(tmp_path):
    register = Register(tmp_path)
    put(register, decision("a", 0.1, True))
    size = register.log.size
    register.close()
    with (tmp_path / "decisions.log").open("ab") as sink:
        sink.write(b"0123 [half")
    again = Register(tmp_path)
    (note,) = again.notes
    assert note.startswith(f"{tmp_path / 'decisions.log'}: the last write was interrupted before it was acknowledged")
    assert note.endswith(f"its 10 bytes were cut off and are in {tmp_path / f'decisions.log.torn-{size}'}.")
    again.close()
    assert b'"entry":"cut"' in (tmp_path / "decisions.log").read_bytes()
    assert list(Register(tmp_path).state.decisions) == ["a"]


def test_rows_may_be_deleted_while_the_decisions_stay(tmp_path):
    register = Register(tmp_path)
    put(register, decision("a", 0.1, True))
    register.apply_rows([{"id": "a", "row": {"t": 1}}], register.write_rows([{"id": "a", "row": {"t": 1}}]))
    register.close()
    (tmp_path / "rows.log").unlink()
    again = Register(tmp_path)
    assert [row for _, row in again.queue(10)] == [None]
    again.close()
