"""How many may connect: what clients saw at a real broker, they see at ours."""
import json

import pytest

from admin_by_hand import alter
from broker_process import Client
from knocking import crowd, knock, heard, protected, two
from player import RECORDED, framed
from quotas_by_hand import alteration
from kafka_scratch.broker.running import running_broker
from kafka_scratch.apis.configs import incremental_alter_configs
from kafka_scratch.security.alter_quotas import AlterClientQuotasRequest, alter_client_quotas

SEEN = json.loads((RECORDED/'connection-limits.json').read_text())
CROWDS = [story for story in SEEN if story['story'] == 'crowd']


def alone(story: str) -> dict: return next(each for each in SEEN if each['story'] == story)


@pytest.mark.parametrize('story', CROWDS, ids=lambda story: ' '.join(story['settings']))
def test_those_who_come_when_it_is_full(story):
    with running_broker(**story['settings']) as broker:
        assert crowd(broker.port, story['seen']) == story['seen']


def test_an_address_that_comes_too_often():
    story = alone('two')
    with running_broker(**story['settings']) as broker:
        change = AlterClientQuotasRequest(entries=[alteration({'ip': '127.0.0.1'}, {'connection_creation_rate': 1.0})])
        with Client(broker.port) as client: client.ask(framed(alter_client_quotas, 1, change))
        assert two(broker.port) == story['seen']


def test_the_listener_of_brokers_is_protected():
    story = alone('protected')
    listeners = 'PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0'
    with running_broker(**story['settings'], listeners=listeners) as broker:
        ports = [int(broker.addresses[name].rpartition(':')[2]) for name in ('CLIENTS', 'PLAINTEXT')]
        assert protected(*ports) == story['seen']


def test_a_limit_that_is_changed_while_somebody_waits():
    with running_broker(**{'max.connections': 2}) as broker, Client(broker.port) as first:
        second, third = knock(broker.port), knock(broker.port)
        assert heard(second, 10) == 'answered' and heard(third, 1) == 'silent'
        first.ask(framed(incremental_alter_configs, 1, alter((4, '', [('max.connections', 0, '4')]))))
        assert heard(third, 10) == 'answered'
        second.close()
        third.close()
