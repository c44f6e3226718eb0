"""What benchmarks measured is kept, and a run that is slower than those before it says so."""

import json

import history

MACHINE = {"torch": "2.13.0", "cores": 2}


def swept(steady: float, eager: float = 2.0):
    phases = {"cold": {"first_s": 3.0}, "warm": {"first_s": 1.0, "steady_ms": steady, "eager_ms": eager}}
    return {"mlp": {"opmill": phases}, "bert": {"opmill": {"cold": {"failed": "no result"}, "warm": {"failed": "no result"}}}}


def test_runs_are_added_and_failed_ones_left_out(tmp_path):
    file = tmp_path / "history.jsonl"
    assert history.append(file, MACHINE, swept(1.0)) == history.append(file, MACHINE, swept(0.99)) == []
    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["model"], first["speed"], second["speed"]) == ("mlp", 2.0, 2.0202)
    assert first["machine"] == MACHINE and first["commit"]


def test_what_was_lost_is_said_against_the_median_of_its_kind(tmp_path):
    file = tmp_path / "history.jsonl"
    for steady in (1.0, 1.0, 4.0):  # one bad run is none to compare with
        history.append(file, MACHINE, swept(steady))
    assert history.append(file, MACHINE, swept(1.02)) == []
    assert history.append(file, {**MACHINE, "cores": 8}, swept(3.0)) == []
    assert history.append(file, MACHINE, swept(1.1)) == ["mlp opmill: 1.82x of eager, 1.98x before"]


def test_a_slower_machine_is_no_loss(tmp_path):
    file = tmp_path / "history.jsonl"
    history.append(file, MACHINE, swept(1.0, 2.0))
    assert history.append(file, MACHINE, swept(3.0, 6.0)) == []
