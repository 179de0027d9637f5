"""Translation of errors of Kafka's client: codes, messages and hints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Mapping


def unreachable(kafka: Any) -> frozenset[int]:
    """Return the client's error codes for connections that it cannot restore by itself."""
    error = kafka.KafkaError
    return frozenset({error._ALL_BROKERS_DOWN, error._AUTHENTICATION, error._SSL})  # noqa: SLF001


def failure(
    kafka: Any, topic: str, error: Any, trouble: Any = None, use: str = "read"
) -> HeadraceError:
    """Translate an error of the client.

    ``trouble`` is its last report about its connections, often the cause. ``use`` is ``read`` or
    ``written``: what failed.
    """
    said = error.str()
    if trouble is not None and trouble is not error:
        said += f": {trouble.str()}"
    codes = {error.code(), None if trouble is None else trouble.code()}
    code, what, hint = _meaning(kafka.KafkaError, codes, said, use)
    return HeadraceError(code, f'topic "{topic}" {what}', f"The client says: {said}.", hint)


def _meaning(kafka: Any, codes: set[int | None], said: str, use: str) -> tuple[Code, str, str]:
    """Return an error's code, the end of its message after the topic, and a hint."""
    if codes & {kafka.OFFSET_OUT_OF_RANGE, kafka._AUTO_OFFSET_RESET}:  # noqa: SLF001
        what = "has lost messages: some were deleted before they were read"
        hint = "Keep them longer in the topic. CREATE OR REPLACE the stream to read the others."
        return Code.CONFLICT, what, hint
    what = f"cannot be {use}"
    allowed = {
        kafka.TOPIC_AUTHORIZATION_FAILED: "Allow the user to describe it, and to read or write it.",
        kafka.GROUP_AUTHORIZATION_FAILED: 'Allow the user to read as "properties.group.id".',
        kafka.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Allow the user to use transactional"
        " ids that begin with headrace-sink-.",
        kafka.CLUSTER_AUTHORIZATION_FAILED: "Allow the user to describe the cluster.",
    }
    for code, hint in allowed.items():
        if code in codes:
            return Code.INVALID, what, hint
    if codes & {kafka._SSL} or "certificate verify failed" in said:  # noqa: SLF001
        hint = (
            "Give the certificate of the authority that signed the brokers', as"
            " 'properties.ssl.ca.location' = '/path', or use the name that it is for."
        )
        return Code.INVALID, what, hint
    if codes & {kafka._AUTHENTICATION, kafka.SASL_AUTHENTICATION_FAILED}:  # noqa: SLF001
        hint = (
            "Correct 'properties.sasl.username', the secret of the password, or"
            " 'properties.sasl.mechanism'."
        )
        return Code.INVALID, what, hint
    if codes & {kafka.UNKNOWN_TOPIC_OR_PART, kafka._UNKNOWN_TOPIC, kafka._UNKNOWN_PARTITION}:  # noqa: SLF001
        hint = "Create the topic, or correct its name."
        if use == "written":
            hint += " CREATE SINK creates it if its options give the number of partitions."
        return Code.UNAVAILABLE, what, hint
    down = {
        kafka._ALL_BROKERS_DOWN,  # noqa: SLF001
        kafka._RESOLVE,  # noqa: SLF001
        kafka._TIMED_OUT,  # noqa: SLF001
        kafka._TRANSPORT,  # noqa: SLF001
    }
    if codes & down:
        hint = "Start the brokers, or correct their addresses and 'properties.security.protocol'."
        return Code.UNAVAILABLE, what, hint
    return Code.UNAVAILABLE, what, "It is tried again; look into the brokers' logs if it stays."


_CREATION: Mapping[str, str] = {
    "INVALID_REPLICATION_FACTOR": "Give at most as many replicas as there are brokers, or leave the"
    ' option "replicas" out.',
    "INVALID_PARTITIONS": "Give a number of partitions that the brokers accept.",
    "TOPIC_AUTHORIZATION_FAILED": "Allow the user to create it, or create it with Kafka's tools.",
    "CLUSTER_AUTHORIZATION_FAILED": "Allow the user to create it, or create it with Kafka's tools.",
    "POLICY_VIOLATION": "Create it with Kafka's tools as the brokers' policy asks.",
}


def creation_failure(topic: str, error: Any) -> HeadraceError:
    """Return the error for a topic that could not be created."""
    hint = _CREATION.get(error.name(), 'Create it with Kafka\'s tools, and leave "partitions" out.')
    code = Code.UNAVAILABLE if error.retriable() else Code.INVALID
    said = f"The broker says: {error.str()}."
    return HeadraceError(code, f'topic "{topic}" cannot be created', said, hint)
