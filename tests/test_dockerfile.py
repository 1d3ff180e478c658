"""The Dockerfile: its steps in a clean environment, and its server in it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
import typer

import dubio
from dubio.cli.app import app
from tests.clean_environment import ROOT, USER, of, steps
from tests.serving.helpers import capacity_policy


def test_the_server_runs_as_a_user_that_was_made_for_it():
    names = [name for name, _ in steps()]
    (made,) = [step for step in of("RUN") if "useradd" in step]
    assert f"--uid {USER} dubio" in made
    assert of("USER") == ["dubio"]
    assert names.index("USER") > max(index for index, name in enumerate(names) if name in ("RUN", "COPY"))
    assert names.index("USER") < names.index("CMD")


def test_the_command_is_one_that_dubio_has_and_needs_a_token():
    program, *words = json.loads(of("CMD")[0])
    assert program == "dubio"
    command = typer.main.get_command(app)
    context = command.commands["serve"].make_context("serve", words[1:])  # type: ignore[attr-defined]
    assert words[0] == "serve"
    assert context.params["address"] == "0.0.0.0"
    assert str(context.params["port"]) in of("EXPOSE")[0]
    with pytest.raises(dubio.UserError, match="set a token"):
        dubio.serve(policy=capacity_policy(), address=context.params["address"])


def test_what_is_copied_exists():
    names = {name for words in of("COPY") for name in words.split()[:-1]}
    assert {name for name in names if not (ROOT / name).exists()} == {"model"}


@pytest.mark.slow
def test_its_server_answers_in_a_clean_environment_as_a_user_without_privileges(texts_run, clean, tmp_path):
    from dubio.deployment.folder import export_model
    from dubio.deployment.run_models import RunModel
    from dubio.referral import fit_capacity_policy

    selected = RunModel.select(texts_run, "deterministic")
    model = selected.model()
    policy = fit_capacity_policy(selected.stored("cal", model), capacity=0.3)
    folder = export_model(selected, model.with_parts(policy=policy), tmp_path / "exported" / "model")
    shutil.copytree(folder, clean.app / "model")
    decisions = clean.writable("decisions")
    replaced = {"/decisions": str(decisions), "0.0.0.0": "127.0.0.1", "8000": "0"}
    words = [replaced.get(word, word) for word in json.loads(of("CMD")[0])]
    before = {path for path in clean.app.rglob("*") if "__pycache__" not in path.parts}
    token = {"DUBIO_SERVE_TOKEN": "0123456789abcdef"}
    process = clean.start(words, clean.app, stderr=subprocess.PIPE, variables=token)
    try:
        match = next(m for line in process.stderr if (m := re.match(r"dubio serve: (\S+)/$", line.strip())))
        if os.geteuid() == 0:
            (uid,) = re.findall(r"^Uid:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
            assert int(uid) == USER
        headers = {"authorization": "Bearer 0123456789abcdef"}
        rows = [{"id": "a", "row": {"review": "good fine film"}}]
        assert httpx.post(f"{match[1]}/decide", json={"rows": rows}).status_code == 401
        answer = httpx.post(f"{match[1]}/decide", json={"rows": rows}, headers=headers)
        expected = model.predict_proba(["good fine film"])[0].tolist()
        assert list(answer.json()["decisions"][0]["probabilities"].values()) == pytest.approx(expected, abs=1e-5)
        check = shlex.split(of("HEALTHCHECK")[0].partition("CMD ")[2].strip("[]").replace('", "', '" "'))
        assert check[0] == "python"
        probe = check[2].replace("http://127.0.0.1:8000", match[1])
        assert clean.start(["python", "-c", probe], clean.app).wait(60) == 0
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    # The user of the image owns the volume alone: nothing may be written beside it.
    assert {path for path in clean.app.rglob("*") if "__pycache__" not in path.parts} == before
    assert (decisions / "decisions.log").stat().st_size > 0
