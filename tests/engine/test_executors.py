"""Executors that cannot work for a database are refused when it is opened, with what to do."""

from __future__ import annotations

import json
import pickle
import sys
import threading
from dataclasses import replace

import pytest
from py4j.protocol import Py4JError
from pyspark import cloudpickle

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs import executors, worker
from headrace.execution.runtime.step import Step
from headrace.files import StoreAddress
from headrace.files.mounts import Mounted

OWN = executors.own_versions()


class Conf:
    def get(self, _name, default=None):
        return default


class Context:
    """What is asked of Spark's context: ``registered`` is the number of executors."""

    applicationId = "app-1"  # noqa: N815

    def __init__(self, master="spark://h:7077", registered=0):
        self.master, self.registered = master, registered
        self.pythonExec = "python3"
        self.cancelled = threading.Event()

    def getConf(self):  # noqa: N802  (Spark's name)
        return Conf()

    def addJobTag(self, tag):  # noqa: N802
        self.tag = tag

    def removeJobTag(self, tag):  # noqa: N802
        assert tag == self.tag

    def cancelJobsWithTag(self, tag):  # noqa: N802
        assert tag == self.tag
        self.cancelled.set()


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    monkeypatch.setattr(executors, "executors", lambda context: context.registered)
    monkeypatch.setattr(executors, "_POLL_SECONDS", 0.001)


def refusal(call):
    with pytest.raises(HeadraceError) as refused:
        call()
    assert refused.value.code is Code.UNAVAILABLE
    return refused.value


@pytest.mark.parametrize(
    ("master", "before", "after"),
    [
        ("local[2]", "python3", sys.executable),
        ("local[2]", "/opt/python", "/opt/python"),
        ("local-cluster[2,1,1024]", "python3", "python3"),
        ("spark://h:7077", "python3", "python3"),
    ],
)
def test_a_session_of_the_user_runs_tasks_in_this_interpreter_unless_one_is_chosen(
    master, before, after
):
    context = Context(master)
    context.pythonExec = before
    executors.choose_interpreter(context)
    assert context.pythonExec == after


def test_an_application_without_executors_says_what_it_asks_for_after_a_while():
    error = refusal(lambda: executors.await_executor(Context(), 0.0))
    assert "has granted no executor" in error.primary
    assert "1g of memory" in error.detail
    assert "executor_memory" in error.hint
    executors.await_executor(Context(registered=1), 0.0)


def test_a_job_whose_executors_are_lost_is_cancelled_and_says_so():
    context = Context()

    def job():
        with executors.with_executors(context, 0.01):
            assert context.cancelled.wait(10)
            raise Py4JError("cancelled")

    assert "has granted no executor" in refusal(job).primary
    fine = Context(registered=1)
    with executors.with_executors(fine, 0.0):
        pass
    with pytest.raises(Py4JError), executors.with_executors(fine, 0.0):
        raise Py4JError("its own failure")
    assert not fine.cancelled.is_set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            (
                "Lost task 0.0 in stage 0.0 (TID 0) (10.0.0.7 executor 1): java.io.IOException: "
                'Cannot run program "/v/bin/python": error=2, No such file or directory'
            ),
            'interpreter "/v/bin/python" does not exist for executor 1 on host "10.0.0.7"',
        ),
        (
            (
                "Lost task 0.0 in stage 0.0 (TID 0) (10.0.0.7 executor 0): org.apache.spark."
                "SparkException: \nBad data in headrace.execution.engine.jobs.daemon's standard output."
            ),
            'package headrace cannot be imported by "python3" for executor 0 on host "10.0.0.7"',
        ),
        (
            (
                "Lost task 0.0 in stage 0.0 (TID 0) (h executor 0): PySparkRuntimeError: "
                "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.13 than that in"
                " driver: 3.11, PySpark cannot run with different minor versions."
            ),
            'Python has version 3.13 for executor 0 on host "h", and 3.11 for the driver',
        ),
        (
            "Lost task 0.0 in stage 0.0 (TID 0) (h executor 0): java.io.IOException: exited",
            'interpreter "python3" cannot run tasks for executor 0 on host "h"',
        ),
    ],
)
def test_what_an_executor_lacks_is_named_with_the_variable_to_set(text, said):
    error = executors._not_run(Context(), text)
    assert error.primary == said
    assert "PYSPARK_PYTHON" in error.hint
    archived = Context()
    archived.pythonExec = "./environment/bin/python"
    hint = executors._not_run(archived, text).hint
    assert "Pack the archive" in hint
    assert sys.base_prefix in hint


@pytest.mark.parametrize("where", ["directory", "store"])
def test_an_executor_with_another_package_or_other_files_is_refused(tmp_path, where):
    data = tmp_path / "data"
    stored = Mounted(StoreAddress.of(f"file://{tmp_path}/store"), 1 << 20)
    if where == "store":
        stored.mount(data)
    try:
        place = executors.place_for(data)
        place.leave(executors.DRIVER, "word")

        def probed(place, word):
            probe = executors._probe(OWN, place.to_json(), word)
            (found,) = pickle.loads(cloudpickle.dumps(probe))([3])  # noqa: S301
            return found

        def refused(found):
            return refusal(lambda: executors._require_fit(place, "word", found, "the hint"))

        found = probed(place, "word")
        executors._require_fit(place, "word", found, "the hint")
        name, host, interpreter, there, problem = found
        assert (there, problem) == (OWN, None)
        place.clear([name])
        unseen = refused(found)
        shown = f'directory "{data}"' if where == "directory" else f'store "{stored.store.url}"'
        assert f"{shown} of the driver is not that of" in unseen.primary
        assert "does not see a file" in unseen.detail
        assert "setting store" in unseen.hint or "headrace[objects]" in unseen.hint
        elsewhere = executors.place_for(data)
        elsewhere.leave(executors.DRIVER, "another word")
        assert "reads another file" in refused(probed(elsewhere, "word")).detail
        empty = executors.place_for(data)
        assert "No such file" in refused(probed(empty, "word")).detail
        for package, own in OWN.items():
            assert ("(" in own) == (package == "headrace"), (
                "a version does not say which code it is"
            )
            older = refused((name, host, interpreter, OWN | {package: "0.0.1"}, None))
            assert f"package {package} has version 0.0.1 for executor" in older.primary
            assert f"and {own} for the driver" in older.primary
            assert older.hint == "the hint"
        lacking = (name, host, interpreter, {}, "ModuleNotFoundError: No module named 'headrace'")
        error = refused(lacking)
        assert "cannot be imported by" in error.primary
        assert error.hint == "the hint"
    finally:
        Mounted.unmount(data)


def test_a_task_reads_a_store_through_a_cache_of_its_own_machine(tmp_path, monkeypatch):
    driver = tmp_path / "driver"
    step = Step("attempt", driver, 1, {}, {}).sent()
    stored = Mounted(StoreAddress.of(f"file://{tmp_path}/store"), 1 << 20)

    def directory(mounted, here=None):
        sent = json.dumps({"mounted": mounted.to_json(), "directory": here})
        found = worker._received(step, sent)
        assert Mounted.of(found.directory) == mounted
        Mounted.unmount(found.directory)
        return found.directory

    assert worker._received(step, None).directory == driver
    assert directory(stored, str(driver)) == driver
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/scratch,{tmp_path}/more")
    assert directory(stored).is_relative_to(tmp_path / "scratch")
    assert directory(replace(stored, elsewhere=f"{tmp_path}/kept")).is_relative_to(
        tmp_path / "kept"
    )
