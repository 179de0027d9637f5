"""Creating topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.connectors.kafka.failures import creation_failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ANSWER_SECONDS: Final = 10.0


def create_topics(
    kafka: Any,
    admin: Any,
    names: Iterable[str],
    size: tuple[int, int],
    settings: Mapping[str, str],
) -> None:
    """Create topics; ``size`` is the number of partitions and of replicas, -1 for the default.

    A topic that exists is left unchanged.

    Raises:
        HeadraceError: ``invalid`` or ``unavailable`` if the brokers refuse or do not answer.
    """
    from confluent_kafka.admin import NewTopic  # noqa: PLC0415

    made = [NewTopic(name, *size, config=dict(settings)) for name in names]
    for name, created in admin.create_topics(made).items():
        try:
            created.result(_ANSWER_SECONDS)
        except kafka.KafkaException as error:
            if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise creation_failure(name, error.args[0]) from error
