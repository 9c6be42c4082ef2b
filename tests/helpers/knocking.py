"""Clients that connect to a broker with few places, and what they see."""
import socket
import time

from kafka_scratch.apis.api_versions import ApiVersionsRequest, api_versions
from player import framed

QUESTION = framed(api_versions, 0, ApiVersionsRequest())


def knock(port: int) -> socket.socket:
    "Connects, and asks something."
    client = socket.create_connection(('127.0.0.1', port), timeout=10)
    try: client.sendall(QUESTION)
    except OSError: pass
    return client


def heard(client: socket.socket, patience: float) -> str:
    "What comes: an answer, the end, or nothing."
    client.settimeout(patience)
    try: return 'answered' if client.recv(1 << 16) else 'closed'
    except TimeoutError: return 'silent'
    except OSError: return 'closed'


PATIENCE = {'answered': 10, 'closed': 10, 'silent': 1}   # seconds; only silence is waited for in vain


def crowd(port: int, expected: list[str] | None = None) -> list[str]:
    "Three clients come; the first one leaves; what the third sees then; and a fourth comes."
    seen, clients = [], []
    def look(client):
        patience = PATIENCE[expected[len(seen)]] if expected else 2
        seen.append(heard(client, patience))
    for _ in range(3):
        clients.append(knock(port))
        look(clients[-1])
    clients[0].close()
    if seen[2] == 'silent': look(clients[2])
    else:
        time.sleep(0.3)
        clients.append(knock(port))
        look(clients[-1])
    for client in clients: client.close()
    return seen


def two(port: int, expected: list[str] | None = None) -> list[str]:
    "Two clients come, one right after the other."
    clients = [knock(port), knock(port)]
    seen = [heard(client, 10) for client in clients]
    for client in clients: client.close()
    return seen


def protected(clients: int, brokers: int) -> list[str]:
    "Two clients take the places of one listener; somebody comes to the listener of brokers; what do the clients see?"
    there = [knock(clients), knock(clients)]
    seen = [heard(client, 10) for client in there]
    third = knock(brokers)
    seen.append(heard(third, 10))
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        now = sorted(heard(client, 0.2) for client in there)
        if 'closed' in now: break
    for client in (*there, third): client.close()
    return [*seen, *now]


STORIES = ({'max.connections': 2}, {'max.connections.per.ip': 2},
           {'max.connections.per.ip': 2, 'max.connections.per.ip.overrides': '127.0.0.1:3,10.0.0.1:1'},
           {'max.connections': 9, 'listener.name.plaintext.max.connections': 2})
BY_ADDRESS = {'quota.window.num': 2}   # and the quota: one connection a second
TWO_DOORS = {'max.connections': 2, 'listener.security.protocol.map':
             'PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT'}
