"""Which Java Spark is started with."""

from __future__ import annotations

import subprocess

from headrace.engine.session import java_home


def test_the_bundled_java_takes_the_place_of_a_missing_one(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    home = java_home()
    assert home is not None
    started = subprocess.run(
        ["/bin/sh", home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 0, started.stderr
    assert "version" in started.stderr


def test_an_old_java_is_passed_over(monkeypatch, tmp_path):
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    home = java_home()
    assert home is not None
    assert home != tmp_path


def test_a_java_that_is_new_enough_is_used(monkeypatch, tmp_path):
    new = tmp_path / "bin" / "java"
    new.parent.mkdir()
    new.write_text("#!/bin/sh\necho 'openjdk version \"21\" 2023-09-19' >&2\n")
    new.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_home() is None
