"""The lab's own routes: files out, a record in, one run as a stream, and one clear sentence for everything else."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
from web_server import Lab, measured_once, real_run

from pages._parts.api import MAX_IMPORT_BYTES, PLOTLY_PATH


@pytest.fixture(scope="module")
def record(lab: Lab, demo_home: Path) -> dict[str, Any]:
    """A real run, handed to this server as a file; the answer to that is part of what is tested."""
    measured_once(demo_home)
    run: dict[str, Any] = json.loads(real_run(demo_home).read_bytes())
    assert _post(lab, json.dumps(run).encode()) == (201, {"id": run["id"]})
    return run


def _post(lab: Lab, body: bytes, content_type: str = "application/json", query: str = "") -> tuple[int, Any]:
    request = urllib.request.Request(f"{lab.url}/api/runs{query}", body, {"Content-Type": content_type})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_record_comes_out_as_it_went_in_and_says_that_it_was_imported(lab: Lab, record: dict[str, Any]) -> None:
    status, body = lab.get(f"/api/runs/{record['id']}.json")
    out = json.loads(body)
    assert status == 200
    assert out.pop("imported_at")
    for kept, given in zip(out["steps"], record["steps"], strict=True):
        assert {name: kept[name] for name in given} == given  # a later version may add fields, and change none
    assert {name: out["summary"][name] for name in record["summary"]} == record["summary"]


def test_taking_in_the_same_run_twice_is_no_fault_and_another_under_its_id_is(lab: Lab, record: dict[str, Any]) -> None:
    assert _post(lab, json.dumps(record).encode())[0] == 201
    changed = json.loads(json.dumps(record))
    changed["prompt"]["text"] = "something else"
    status, answer = _post(lab, json.dumps(changed).encode())
    assert status == 422
    assert "Another run is already kept" in answer["error"]


def test_the_steps_come_out_as_csv(lab: Lab, record: dict[str, Any]) -> None:
    status, body = lab.get(f"/api/runs/{record['id']}.csv")
    assert status == 200
    lines = body.decode("utf-8-sig").splitlines()
    assert len(lines) == 1 + len(record["steps"]) + len(record["warm_up_steps"])


@pytest.mark.parametrize(
    ("body", "content_type", "status", "sentence"),
    [
        (b"{", "application/json", 422, "not JSON"),
        (b"[]", "application/json", 422, "not a record"),
        (b'{"schema": 1}', "application/json", 422, "is wrong"),
        (b'{"schema": 99}', "application/json", 422, "schema"),
        (b"\xff\xfe\x00", "application/json", 422, "not JSON"),
        (b"{}", "text/plain", 415, "comes as JSON"),
        (b"a" * (MAX_IMPORT_BYTES + 1), "application/json", 413, "larger than"),
    ],
)
def test_what_is_no_run_is_refused_in_one_sentence(
    lab: Lab, body: bytes, content_type: str, status: int, sentence: str
) -> None:
    answered, answer = _post(lab, body, content_type)
    assert answered == status
    assert sentence in answer["error"]
    assert "Traceback" not in answer["error"]


def test_a_refusal_names_half_a_character(lab: Lab, record: dict[str, Any]) -> None:
    status, answer = _post(lab, json.dumps(record | {"id": "halfhalfhalf", "created_at": "\ud800"}).encode())
    assert status == 422
    assert "created_at" in answer["error"]
    assert "U+D800" in answer["error"]


def test_a_refusal_is_said_in_the_readers_language(lab: Lab) -> None:
    assert "文件" in _post(lab, b"{", query="?lang=zh")[1]["error"]


@pytest.mark.parametrize("run", ["AAAAAAAAAAAA", "..%2f..%2fetc", "x", "%00%00%00%00%00%00"])
@pytest.mark.parametrize("ending", [".json", ".csv"])
def test_a_run_that_is_not_there_is_refused(lab: Lab, run: str, ending: str) -> None:
    status, body = lab.get(f"/api/runs/{run}{ending}")
    assert status in (400, 404)  # Streamlit itself turns down what looks like an escape from a folder
    assert body
    assert b"Traceback" not in body


def test_a_finished_run_streams_its_prompt_its_steps_and_its_end(lab: Lab, record: dict[str, Any]) -> None:
    status, body = lab.get(f"/api/runs/{record['id']}/stream?lang=zh")
    events = [
        json.loads(part.removeprefix("data: ")) for part in body.decode().split("\n\n") if part.startswith("data: ")
    ]
    assert status == 200
    assert [event["type"] for event in events] == ["prompt", "steps", "end"]
    assert events[1]["time_ns"] == [step["time_ns"] for step in record["steps"]]
    assert events[2] == {"type": "end", "kind": "done", "text": "完成。"}


def test_the_stream_of_a_run_that_is_not_there_ends_with_a_sentence(lab: Lab) -> None:
    status, body = lab.get("/api/runs/AAAAAAAAAAAA/stream")
    assert status == 200
    assert b"There is no run AAAAAAAAAAAA here" in body
    assert lab.get("/api/runs/short/stream")[0] == 404


def test_plotly_comes_from_the_installed_package_packed_and_for_good(lab: Lab) -> None:
    request = urllib.request.Request(lab.url + PLOTLY_PATH, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert "immutable" in answer.headers["Cache-Control"]
        assert len(answer.read()) < 2_000_000


def test_each_browser_gets_a_secret_of_its_own(lab: Lab) -> None:
    cookies = []
    for _ in range(2):
        with urllib.request.urlopen(lab.url, timeout=30) as answer:
            cookie = SimpleCookie(answer.headers["Set-Cookie"])["roofline_lab_owner"]
        assert cookie["httponly"]
        assert cookie["samesite"] == "Lax"
        cookies.append(cookie.value)
    assert cookies[0] != cookies[1]
    again = urllib.request.Request(lab.url, headers={"Cookie": f"roofline_lab_owner={cookies[0]}"})
    with urllib.request.urlopen(again, timeout=30) as answer:
        assert answer.headers["Set-Cookie"] is None


def test_ready_says_whether_the_engine_is(lab: Lab) -> None:
    lab.wait_ready()
    status, body = lab.get("/api/ready")
    assert (status, json.loads(body)["worker"] in ("ready", "busy")) == (200, True)


@pytest.mark.parametrize("path", ["/", "/roofline", "/%3Cscript%3E?q=</script>"])
def test_a_page_names_its_server_and_carries_no_script_of_its_address(lab: Lab, path: str) -> None:
    request = urllib.request.Request(lab.url + path, headers={"Accept": "text/html", "Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        page = answer.read().decode()
        assert int(answer.headers["Content-Length"]) == len(page.encode())
    assert page.count("BACKEND_BASE_URL") == 1
    assert "</script>" not in page.split("BACKEND_BASE_URL")[0].split("<script>")[-1]
    assert page.rstrip().endswith("</html>")
