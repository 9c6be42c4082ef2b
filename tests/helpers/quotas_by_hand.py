"""Requests about quotas, in few words."""
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
