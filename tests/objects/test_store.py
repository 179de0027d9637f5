"""Stores of objects: in memory, in a directory, in S3 by moto's server, in Azure by Azurite."""

from __future__ import annotations

import pytest

from headrace.errors import Code, HeadraceError
from headrace.files import ObjectStore, StoreAddress
from servers.azurite import azurite
from servers.machine import Unavailable
from servers.s3 import served_bucket

KINDS = ("memory", "file", "s3", pytest.param("az", marks=pytest.mark.long))


@pytest.fixture(scope="module")
def bucket():
    with served_bucket("kept") as options:
        yield options


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    try:
        with azurite(tmp_path_factory.mktemp("azurite"), "kept") as options:
            yield options
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=KINDS)
def store(request, tmp_path):
    if request.param == "memory":
        return ObjectStore.at(StoreAddress.of("memory:///"))
    if request.param == "file":
        return ObjectStore.at(StoreAddress.of(f"file://{tmp_path}/deep/store"))
    options = request.getfixturevalue("bucket" if request.param == "s3" else "container")
    return ObjectStore.at(StoreAddress.of(f"{request.param}://kept/{tmp_path.name}", options))


def test_a_file_is_stored_fetched_listed_and_deleted(store, tmp_path):
    file, small, copy = tmp_path / "file", tmp_path / "small", tmp_path / "copy"
    file.write_bytes(b"some bytes" * 999)
    small.write_bytes(b"b")
    store.put("runs/a.arrow", file)
    store.put("log/b.arrow", small)
    store.fetch("runs/a.arrow", copy)
    assert copy.read_bytes() == file.read_bytes()
    store.fetch("log/b.arrow", copy)
    assert copy.read_bytes() == b"b"
    assert dict(store.names("runs/")) == {"runs/a.arrow": 9_990}
    assert {name for name, _ in store.names()} == {"runs/a.arrow", "log/b.arrow"}
    store.delete(["runs/none.arrow", "runs/a.arrow"])
    assert [name for name, _ in store.names()] == ["log/b.arrow"]
    assert (store.requests.puts, store.requests.bytes_put) == (2, 9_991)


def test_a_large_file_is_the_same_after_its_way(store, tmp_path):
    file, copy = tmp_path / "file", tmp_path / "copy"
    file.write_bytes(bytes(range(256)) * (12 << 12))  # several parts of an upload
    store.put("runs/large.arrow", file)
    store.fetch("runs/large.arrow", copy)
    assert copy.read_bytes() == file.read_bytes()


@pytest.mark.parametrize("sizes", [[], [3], [5 << 20] * 4], ids=["empty", "small", "large"])
def test_pieces_are_one_object_or_none(store, sizes):
    given = [bytes([at]) * size for at, size in enumerate(sizes)]

    def fails():
        yield from given
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  (the error of the pieces)
        store.put_pieces("runs/failed", fails())
    with pytest.raises(FileNotFoundError):
        list(store.pieces("runs/failed"))
    store.put_pieces("runs/pieces", iter(given))
    assert b"".join(store.pieces("runs/pieces")) == b"".join(given)
    assert dict(store.names()) == {"runs/pieces": sum(sizes)}
    assert store.requests.bytes_put == sum(sizes)
    store.put_pieces("runs/copy", store.pieces("runs/pieces"))
    assert b"".join(store.pieces("runs/copy")) == b"".join(given)


def test_what_is_missing_is_no_file(store, tmp_path):
    with pytest.raises(FileNotFoundError):
        store.fetch("runs/none.arrow", tmp_path / "copy")
    assert list(tmp_path.glob("copy*")) == []


def test_a_bucket_that_does_not_exist_is_named(bucket, tmp_path):
    store = ObjectStore.at(StoreAddress.of("s3://missing/prefix", bucket))
    file = tmp_path / "file"
    file.write_bytes(b"a")
    with pytest.raises(HeadraceError, match="no such bucket") as raised:
        store.put("runs/a", file)
    assert raised.value.code is Code.INVALID
    with pytest.raises(HeadraceError, match="no such bucket"):
        store.fetch("runs/a", tmp_path / "copy")


def test_a_store_that_does_not_answer_is_unavailable(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"a")
    monkeypatch.setattr("headrace.files.store._RETRIES", {"max_retries": 0})
    options = {"endpoint": "http://127.0.0.1:9", "region": "us-east-1"}
    options |= {"access_key_id": "known", "secret_access_key": "not shown"}
    store = ObjectStore.at(StoreAddress.of("s3://kept/prefix", options))
    with pytest.raises(HeadraceError, match="did not answer") as raised:
        store.put("runs/a", file)
    assert raised.value.code is Code.UNAVAILABLE
    assert "not shown" not in f"{raised.value.detail} {store!r} {store.address!r}"


@pytest.mark.parametrize("url", ["bucket/prefix", "ftp://bucket", "s3:///prefix", "s3:bucket", ""])
def test_what_is_no_url_of_a_store_is_refused(url):
    with pytest.raises(HeadraceError) as raised:
        StoreAddress.of(url)
    assert raised.value.code is Code.INVALID


def test_an_unknown_option_is_refused():
    with pytest.raises(HeadraceError, match="cannot be used"):
        ObjectStore.at(StoreAddress.of("s3://kept", {"no such option": "1"}))


def test_an_address_is_the_same_after_json():
    address = StoreAddress.of("s3a://kept/prefix/", {"region": "us-east-1"})
    assert address.url == "s3://kept/prefix"
    assert StoreAddress.of_json(address.to_json()) == address
    assert StoreAddress.is_store("s3://kept")
    assert not StoreAddress.is_store("http://kept")
    assert not StoreAddress.is_store("/kept")


def test_variables_complete_an_address_and_never_replace_what_it_says():
    address = StoreAddress.of("s3://kept?region=eu-west-1")
    variables = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "key", "AWS_ENDPOINT_URL": ""}
    assert address.completed(variables).options == {"region": "eu-west-1", "access_key_id": "key"}
    assert StoreAddress.of("gs://kept").completed(variables).options == {}


def test_a_url_has_no_credentials():
    with pytest.raises(HeadraceError, match='the option "secret_access_key"'):
        StoreAddress.of("s3://kept?secret_access_key=shown")
