"""Requests about quotas, in few words."""
from kafka_scratch.apis.fetch_messages import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kafka_scratch.cluster.records import EntityData
from kafka_scratch.security.alter_quotas import AlterEntryData, OpData
from kafka_scratch.security.quotas import ComponentData


def parts_of(entity) -> list[EntityData]:
    "`{'user': 'u1'}`, or a list of pairs if a kind comes twice."
    pairs = entity.items() if isinstance(entity, dict) else entity
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in pairs]


def alteration(entity, limits) -> AlterEntryData:
    "`limits`: key → value, or None to remove it; or a list of pairs."
    pairs = limits.items() if isinstance(limits, dict) else limits
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in pairs]
    return AlterEntryData(entity=parts_of(entity), ops=ops)


def components(*parts) -> list[ComponentData]:
    "Of a filter: (kind, match type, name)."
    return [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in parts]


def fetch_of(topic: str, partitions: list[int], forgotten: list[int] = (), **options) -> FetchRequest:
    "These partitions, from their beginning, at once."
    wanted = [FetchPartition(partition=number, partition_max_bytes=1000) for number in partitions]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=10_000, **options,
                        topics=[FetchTopic(topic=topic, partitions=wanted)] if wanted else [],
                        forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=forgotten)] if forgotten else [])
