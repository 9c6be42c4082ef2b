"A consumer that speaks the classic protocol, as far as its group is concerned, on the stage of the newer one."
from kafka_scratch.apis.api import Later
from kafka_scratch.groups.classic_apis import heartbeat, join_group, leave_group, sync_group
from kafka_scratch.groups.classic_messages import *
from kafka_scratch.wire.codes import ErrorCode
from kafka_scratch.wire.primitives import Int16


class ClassicReader:
    "`step()` is one request. It lets go of everything before it joins, unless it is `cooperative`."
    epoch = property(lambda self: self.generation)
    def __init__(self, stage, name: str, *topics: str, cooperative=False, instance_id=None, session_ms=10_000):
        self.stage, self.name, self.topics, self.cooperative = stage, name, list(topics), cooperative
        self.instance_id, self.session_ms, self.id, self.waiting = instance_id, session_ms, '', None
        self.lose()

    def lose(self):
        "Everything but its id is gone."
        self.generation, self.has, self.next, self.members = -1, frozenset(), 'join', []

    def ask(self, api, request):
        self.stage.caller = self.stage.caller._replace(client_id=self.name)
        return self.stage.ask(api, request)

    def step(self) -> int:
        "The next request, if there is no answer to wait for. Returns the error, or -2: no answer yet."
        if self.waiting is None: answer = getattr(self, self.next)()
        else: answer, self.waiting = self.waiting, None
        if isinstance(answer, Later):
            if not answer.settled:
                self.waiting = answer
                return -2
            answer = answer.result
        return self.hear(answer)

    def join(self):
        if not self.cooperative: self.has = frozenset()
        owned = {}
        for topic, number in sorted(self.has): owned.setdefault(topic, []).append(number)
        said = ConsumerProtocolSubscription(topics=self.topics, owned_partitions=[
            ConsumerPartitions(topic=topic, partitions=numbers) for topic, numbers in owned.items()])
        return self.ask(join_group, JoinGroupRequest(
            group_id='g', session_timeout_ms=self.session_ms, rebalance_timeout_ms=30_000, member_id=self.id,
            group_instance_id=self.instance_id, protocol_type='consumer',
            protocols=[JoinGroupRequestProtocol(name='sticky', metadata=Int16.write(1) + said.encode(1))]))

    def sync(self):
        given = [SyncGroupRequestAssignment(member_id=id, assignment=assignment)
                 for id, assignment in self.divide().items()]
        return self.ask(sync_group, SyncGroupRequest(
            group_id='g', generation_id=self.generation, member_id=self.id, group_instance_id=self.instance_id,
            protocol_type='consumer', protocol_name='sticky', assignments=given))

    def divide(self) -> dict[str, bytes]:
        "As a leader: what a member has it keeps, and the rest goes round."
        wishes = {each.member_id: unwrap(ConsumerProtocolSubscription, each.metadata) for each in self.members}
        found = {id: {(each.topic, n) for each in said.owned_partitions for n in each.partitions}
                 for id, said in wishes.items()}
        taken = set().union(*found.values())
        for name in sorted({topic for said in wishes.values() for topic in said.topics}):
            takers = sorted(id for id, said in wishes.items() if name in said.topics)
            for number in sorted(self.stage.image.topics[name].states if name in self.stage.image.topics else ()):
                if (name, number) not in taken: found[min(takers, key=lambda id: len(found[id]))].add((name, number))
        return {id: write(partitions) for id, partitions in found.items()}

    def beat(self):
        return self.ask(heartbeat, HeartbeatRequest(group_id='g', generation_id=self.generation, member_id=self.id,
                                                    group_instance_id=self.instance_id))

    def leave(self):
        who = MemberIdentity(member_id=self.id, group_instance_id=self.instance_id)
        return self.ask(leave_group, LeaveGroupRequest(group_id='g', members=[who]))

    def hear(self, answer) -> int:
        error = answer.error_code
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID): self.id = ''
        if isinstance(answer, JoinGroupResponse) and error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.id = answer.member_id
        if error == ErrorCode.REBALANCE_IN_PROGRESS: self.next = 'join'
        elif error == ErrorCode.NOT_COORDINATOR: pass   # once more
        elif error: self.lose()
        elif isinstance(answer, JoinGroupResponse):
            self.generation, self.next, self.members = answer.generation_id, 'sync', answer.members
        elif isinstance(answer, SyncGroupResponse):
            given = unwrap(ConsumerProtocolAssignment, answer.assignment) if answer.assignment else None
            topics = given.assigned_partitions if given else []
            self.has, self.next = frozenset((each.topic, n) for each in topics for n in each.partitions), 'beat'
        return error


def write(partitions: set) -> bytes:
    topics = {}
    for topic, number in sorted(partitions): topics.setdefault(topic, []).append(number)
    given = [ConsumerPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    return Int16.write(1) + ConsumerProtocolAssignment(assigned_partitions=given).encode(1)
