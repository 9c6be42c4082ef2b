// The driver of franz-go; contract.py says what each job does and prints.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	options    = map[string]string{}
	ctx        = context.Background()
	codecs     = map[string]kgo.CompressionCodec{"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	isolations = map[string]kgo.IsolationLevel{"": kgo.ReadUncommitted(), "read_uncommitted": kgo.ReadUncommitted(), "read_committed": kgo.ReadCommitted()}
)

type line map[string]any

func say(what line) {
	text, err := json.Marshal(what)
	check(err)
	fmt.Println(string(text))
}

func sayRecord(record *kgo.Record) {
	say(line{"partition": record.Partition, "offset": record.Offset, "key": string(record.Key), "value": string(record.Value)})
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(name string) int {
	value, _ := strconv.Atoi(options[name])
	return value
}

func newClient(settings ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(options["bootstrap"])}, settings...)...)
	check(err)
	return client
}

func newAdmin() *kadm.Client { return kadm.NewClient(newClient()) }

func record(topic string, n int) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: []byte(fmt.Sprintf("key-%d", n)), Value: []byte(fmt.Sprintf("value-%d ", n) + strings.Repeat("abcdefghij", 20))}
}

func send(client *kgo.Client, first, count int) {
	records := []*kgo.Record{}
	for n := first; n < first+count; n++ {
		records = append(records, record(options["topic"], n))
	}
	check(client.ProduceSync(ctx, records...).FirstErr())
}

func create() {
	admin := newAdmin()
	defer admin.Close()
	_, err := admin.CreateTopic(ctx, int32(number("partitions")), 1, nil, options["topic"])
	check(err)
	say(line{"created": options["topic"]})
}

func list() {
	admin := newAdmin()
	defer admin.Close()
	topics, err := admin.ListTopics(ctx)
	check(err)
	say(line{"topics": topics.Names()})
}

func describe() {
	admin := newAdmin()
	defer admin.Close()
	topics, err := admin.ListTopics(ctx, options["topic"])
	check(err)
	check(topics.Error())
	for _, partition := range topics[options["topic"]].Partitions.Sorted() {
		say(line{"partition": partition.Partition, "leader": partition.Leader})
	}
}

func grow() {
	admin := newAdmin()
	defer admin.Close()
	answers, err := admin.UpdatePartitions(ctx, number("partitions"), options["topic"])
	check(err)
	check(answers.Error())
	say(line{"partitions": number("partitions")})
}

func configure() {
	admin := newAdmin()
	defer admin.Close()
	name, value, _ := strings.Cut(options["config"], "=")
	answers, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, options["topic"])
	check(err)
	for _, answer := range answers {
		check(answer.Err)
	}
	described, err := admin.DescribeTopicConfigs(ctx, options["topic"])
	check(err)
	for _, config := range described[0].Configs {
		if config.Key == name {
			say(line{"name": name, "value": config.MaybeValue()})
		}
	}
}

func remove() {
	admin := newAdmin()
	defer admin.Close()
	_, err := admin.DeleteTopic(ctx, options["topic"])
	check(err)
	say(line{"deleted": options["topic"]})
}

func produce() {
	settings := []kgo.Opt{kgo.ProducerBatchCompression(codecs[options["codec"]]), kgo.ProducerLinger(20 * time.Millisecond), kgo.AllowAutoTopicCreation()}
	if options["idempotent"] == "" {
		settings = append(settings, kgo.DisableIdempotentWrite())
	}
	client := newClient(settings...)
	defer client.Close()
	send(client, number("first"), number("count"))
	say(line{"produced": number("count")})
}

func transact() {
	client := newClient(kgo.TransactionalID(options["id"]), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer client.Close()
	results := map[kgo.TransactionEndTry][]int{}
	for first := 0; first < 50; first += 10 {
		end := kgo.TransactionEndTry(first%20 == 0)
		check(client.BeginTransaction())
		send(client, first, 10)
		check(client.EndTransaction(ctx, end))
		for n := first; n < first+10; n++ {
			results[end] = append(results[end], n)
		}
	}
	say(line{"committed": results[kgo.TryCommit], "aborted": results[kgo.TryAbort]})
}

// After an abort, the session reads from where it was before.
func copyAll() {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(options["bootstrap"]), kgo.TransactionalID(options["id"]), kgo.ConsumerGroup(options["group"]),
		kgo.ConsumeTopics(options["topic"]), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets())
	check(err)
	defer session.Close()
	copied := 0
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		records := []*kgo.Record{}
		for len(records) < number("count") {
			session.PollFetches(ctx).EachRecord(func(read *kgo.Record) {
				records = append(records, &kgo.Record{Topic: options["to"], Key: read.Key, Value: read.Value})
			})
		}
		check(session.Begin())
		check(session.ProduceSync(ctx, records...).FirstErr())
		ended, err := session.End(ctx, end)
		check(err)
		if ended != bool(end) {
			check(fmt.Errorf("the transaction should have ended with commit=%v", end))
		}
		copied = len(records)
	}
	say(line{"copied": copied})
}

func consume() {
	offsets := map[int32]kgo.Offset{}
	for partition := 0; partition < number("partitions"); partition++ {
		offsets[int32(partition)] = kgo.NewOffset().AtStart()
	}
	client := newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{options["topic"]: offsets}), kgo.FetchMaxWait(100*time.Millisecond), kgo.FetchIsolationLevel(isolations[options["isolation"]]))
	defer client.Close()
	for seen := 0; seen < number("count"); {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			sayRecord(record)
			seen++
		})
	}
}

func offsets() {
	admin := newAdmin()
	defer admin.Close()
	earliest, err := admin.ListStartOffsets(ctx, options["topic"])
	check(err)
	latest, err := admin.ListEndOffsets(ctx, options["topic"])
	check(err)
	for partition := 0; partition < number("partitions"); partition++ {
		first, _ := earliest.Lookup(options["topic"], int32(partition))
		last, _ := latest.Lookup(options["topic"], int32(partition))
		check(first.Err)
		check(last.Err)
		say(line{"partition": partition, "earliest": first.Offset, "latest": last.Offset})
	}
}

func member() {
	leave, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	held := map[int32]bool{} // its changes come one by one
	tell := func(changed map[string][]int32, holds bool) {
		for _, partition := range changed[options["topic"]] {
			if held[partition] = holds; !holds {
				delete(held, partition)
			}
		}
		assigned := []int{}
		for partition := range held {
			assigned = append(assigned, int(partition))
		}
		sort.Ints(assigned)
		say(line{"assigned": assigned})
	}
	change := func(holds bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) { tell(changed, holds) }
	}
	settings := []kgo.Opt{kgo.ConsumerGroup(options["group"]), kgo.ConsumeTopics(options["topic"]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond), kgo.FetchMaxWait(100 * time.Millisecond), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false))}
	if options["protocol"] == "consumer" {
		settings = append(settings, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	}
	client := newClient(settings...)
	for leave.Err() == nil {
		fetches := client.PollFetches(leave)
		fetches.EachError(func(_ string, _ int32, err error) {
			if leave.Err() == nil && !kerr.IsRetriable(err) {
				fmt.Fprintln(os.Stderr, err) // a broker that is away: it tries again by itself
			}
		})
		fetches.EachRecord(sayRecord)
		if !fetches.Empty() {
			check(client.CommitUncommittedOffsets(ctx))
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	say(line{"left": true})
}

func groups() {
	admin := newAdmin()
	defer admin.Close()
	listed, err := admin.ListGroups(ctx)
	check(err)
	if _, there := listed[options["group"]]; there {
		described, err := admin.DescribeGroups(ctx, options["group"])
		check(err)
		group := described[options["group"]]
		check(group.Err)
		say(line{"group": group.Group, "state": group.State, "members": len(group.Members)})
	}
	committed, err := admin.FetchOffsets(ctx, options["group"])
	check(err)
	for _, offset := range committed.Sorted() {
		say(line{"partition": offset.Partition, "committed": offset.At})
	}
}

func forget() {
	admin := newAdmin()
	defer admin.Close()
	_, err := admin.DeleteGroup(ctx, options["group"])
	check(err)
	say(line{"forgotten": options["group"]})
}

func truncate() {
	admin := newAdmin()
	defer admin.Close()
	wanted := kadm.Offsets{}
	for partition := 0; partition < number("partitions"); partition++ {
		wanted.AddOffset(options["topic"], int32(partition), int64(number("before")), -1)
	}
	answers, err := admin.DeleteRecords(ctx, wanted)
	check(err)
	check(answers.Error())
	for _, answer := range answers.Sorted() {
		say(line{"partition": answer.Partition, "earliest": answer.LowWatermark})
	}
}

func allPartitions() kadm.TopicsSet {
	set := kadm.TopicsSet{}
	for partition := 0; partition < number("partitions"); partition++ {
		set.Add(options["topic"], int32(partition))
	}
	return set
}

func logDirs() {
	admin := newAdmin()
	defer admin.Close()
	described, err := admin.DescribeBrokerLogDirs(ctx, 1, allPartitions())
	check(err)
	check(described.Error())
	for _, partition := range described.SortedPartitions() {
		say(line{"partition": partition.Partition, "dir": partition.Dir, "size": partition.Size})
	}
}

func move() {
	admin := newAdmin()
	defer admin.Close()
	answers, err := admin.AlterBrokerReplicaLogDirs(ctx, 1, kadm.AlterReplicaLogDirsReq{options["to"]: allPartitions()})
	check(err)
	for _, answer := range answers.Sorted() {
		check(answer.Err)
	}
	say(line{"moved": number("partitions")})
}

func elect() {
	admin := newAdmin()
	defer admin.Close()
	answers, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, allPartitions())
	check(err)
	for partition, answer := range answers[options["topic"]] {
		if !errors.Is(answer.Err, kerr.ElectionNotNeeded) {
			check(answer.Err)
		}
		say(line{"partition": partition, "elected": answer.Err == nil})
	}
}

func reassign() {
	admin := newAdmin()
	defer admin.Close()
	wanted := kadm.AlterPartitionAssignmentsReq{}
	for partition := 0; partition < number("partitions"); partition++ {
		wanted.Assign(options["topic"], int32(partition), []int32{int32(number("to"))})
	}
	answers, err := admin.AlterPartitionAssignments(ctx, wanted)
	check(err)
	check(answers.Error())
	listed, err := admin.ListPartitionReassignments(ctx, nil)
	check(err)
	moving := []int32{}
	for _, each := range listed.Sorted() {
		moving = append(moving, each.Partition)
	}
	say(line{"moving": moving})
}

// kadm has no call for it; the request itself is one of kmsg's.
func quorum() {
	client := newClient()
	defer client.Close()
	request := kmsg.NewPtrDescribeQuorumRequest()
	request.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}}}
	answer, err := request.RequestWith(ctx, client)
	check(err)
	check(kerr.ErrorForCode(answer.ErrorCode))
	partition := answer.Topics[0].Partitions[0]
	check(kerr.ErrorForCode(partition.ErrorCode))
	voters := []int32{}
	for _, voter := range partition.CurrentVoters {
		voters = append(voters, voter.ReplicaID)
	}
	say(line{"leader": partition.LeaderID, "voters": voters})
}

func features() {
	admin := newAdmin()
	defer admin.Close()
	name, value, _ := strings.Cut(options["config"], "=")
	level, err := strconv.Atoi(value)
	check(err)
	answers, err := admin.UpdateFeatures(ctx, false, kadm.FeatureUpdate{Feature: name, MaxVersionLevel: int16(level), UpgradeType: 1})
	check(err)
	check(answers.Error())
	versions, err := admin.ApiVersions(ctx)
	check(err)
	for _, broker := range versions {
		for _, feature := range broker.Raw().FinalizedFeatures {
			if feature.Name == name {
				say(line{"name": name, "level": feature.MaxVersionLevel})
			}
		}
	}
}

func quotas() {
	admin := newAdmin()
	defer admin.Close()
	id := options["id"]
	if name, value, set := strings.Cut(options["config"], "="); set {
		setQuota(admin, id, name, value)
		return
	}
	described, err := admin.DescribeClientQuotas(ctx, false, []kadm.DescribeClientQuotaComponent{{Type: "client-id", MatchName: &id, MatchType: 0}})
	check(err)
	for _, entity := range described {
		for _, quota := range entity.Values {
			say(line{"name": quota.Key, "value": quota.Value})
		}
	}
}

func setQuota(admin *kadm.Client, id, name, value string) {
	rate, err := strconv.ParseFloat(value, 64)
	check(err)
	answers, err := admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &id}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: name, Value: rate}},
	}})
	check(err)
	for _, answer := range answers {
		check(answer.Err)
	}
	say(line{"set": name})
}

type waits struct{ longest atomic.Int64 }

func (w *waits) OnBrokerThrottle(_ kgo.BrokerMetadata, wait time.Duration, _ bool) {
	w.longest.Store(max(w.longest.Load(), int64(wait)))
}

func throttle() {
	seen := &waits{}
	client := newClient(kgo.ClientID(options["id"]), kgo.ProducerLinger(20*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.WithHooks(seen))
	send(client, 0, number("count"))
	say(line{"produced": number("count"), "throttled": seen.longest.Load() > 0})
}

func main() {
	words := os.Args[2:]
	for i := 0; i+1 < len(words); i += 2 {
		options[strings.TrimPrefix(words[i], "--")] = words[i+1]
	}
	jobs := map[string]func(){"create": create, "list": list, "describe": describe, "grow": grow, "configure": configure, "delete": remove, "produce": produce, "transact": transact,
		"copy": copyAll, "consume": consume, "offsets": offsets, "member": member, "groups": groups, "forget": forget, "truncate": truncate,
		"log_dirs": logDirs, "move": move, "elect": elect, "reassign": reassign, "quorum": quorum, "features": features, "quotas": quotas, "throttle": throttle}
	job, known := jobs[os.Args[1]]
	if !known {
		check(fmt.Errorf("this driver has no job %q", os.Args[1]))
	}
	job()
}
