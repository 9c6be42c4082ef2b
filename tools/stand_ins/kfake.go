// Package kfake stands in for franz-go's fake cluster when its ported Kafka tests run for tools/report_card.py: it has
// the functions that those tests call, and a "cluster" is the broker at $KAFKA_ADDRESS, with the topics of the test
// made anew. What only a fake can do (to answer in the broker's place) is left out, and so are the tests that need it.
package kfake

import (
	"context"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const patience = 30 * time.Second

type topics struct {
	partitions int32
	names      []string
}

type Cluster struct {
	address string
	client  *kgo.Client
	seeds   []topics
}

type Opt func(*Cluster)

func NumBrokers(int) Opt                  { return func(*Cluster) {} }
func BrokerConfigs(map[string]string) Opt { return func(*Cluster) {} }
func SeedTopics(n int32, names ...string) Opt {
	return func(c *Cluster) { c.seeds = append(c.seeds, topics{n, names}) }
}

func NewCluster(opts ...Opt) (*Cluster, error) {
	c := &Cluster{address: os.Getenv("KAFKA_ADDRESS")}
	for _, opt := range opts {
		opt(c)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.address), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return nil, err
	}
	c.client = client
	for _, seed := range c.seeds {
		if err := c.renew(seed); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// renew makes topics that are there and empty.
func (c *Cluster) renew(seed topics) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	admin := kadm.NewClient(c.client)
	if _, err := admin.DeleteTopics(ctx, seed.names...); err != nil {
		return err
	}
	for {
		made, err := admin.CreateTopics(ctx, seed.partitions, 1, nil, seed.names...)
		if err != nil {
			return err
		}
		if err = made.Error(); err == nil {
			break
		} else if ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the old one is still going
	}
	for ctx.Err() == nil { // a moment after it was made, a topic may have no leader
		ends, err := admin.ListEndOffsets(ctx, seed.names...)
		if err == nil && ends.Error() == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("topics %v have no leaders", seed.names)
}

func (c *Cluster) Close()                { c.client.Close() }
func (c *Cluster) ListenAddrs() []string { return []string{c.address} }

// The tests that call these two don't run.

type Fault struct {
	Keys []kmsg.Key
	Err  *kerr.Error
	When func(kmsg.Request) bool
}
type FaultHandle struct{}

func (c *Cluster) Fault(...Fault) *FaultHandle { panic("only a fake cluster can do that") }
func (c *Cluster) ControlKey(int16, func(kmsg.Request) (kmsg.Response, error, bool)) {
	panic("only a fake cluster can do that")
}

// --- groups, as the broker describes them ---

type GroupCommit struct {
	Offset      int64
	LeaderEpoch int32
	Metadata    string
	At          time.Time
}

type GroupMember struct {
	MemberID   string
	InstanceID *string
	ClientID   string
	Assignment map[string][]int32
}

type GroupInfo struct {
	Group   string
	State   string
	Epoch   int32
	Members []GroupMember
	Commits map[string]map[int32]GroupCommit
}

func (m *GroupMember) NumAssigned() (n int) {
	for _, partitions := range m.Assignment {
		n += len(partitions)
	}
	return n
}

func (g *GroupInfo) NumAssigned() (n int) {
	for i := range g.Members {
		n += g.Members[i].NumAssigned()
	}
	return n
}

func (c *Cluster) GroupInfo(group string) *GroupInfo {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	info, err := c.describe(ctx, group)
	if err != nil || info == nil {
		return nil
	}
	info.Commits = map[string]map[int32]GroupCommit{}
	offsets, err := kadm.NewClient(c.client).FetchOffsets(ctx, group)
	if err != nil {
		return nil
	}
	offsets.Each(func(o kadm.OffsetResponse) {
		if info.Commits[o.Topic] == nil {
			info.Commits[o.Topic] = map[int32]GroupCommit{}
		}
		info.Commits[o.Topic][o.Partition] = GroupCommit{Offset: o.At, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata}
	})
	return info
}

// WaitGroupStable returns when the group is stable with so many members, each of which has what it should have.
func (c *Cluster) WaitGroupStable(ctx context.Context, group string, members int) (*GroupInfo, error) {
	for {
		info, err := c.describe(ctx, group)
		if err == nil && info != nil && info.State == "Stable" && len(info.Members) == members {
			return info, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the group is %+v (%v)", info, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// describe asks for the group by the newer protocol, and by the classic one if it isn't of that kind.
func (c *Cluster) describe(ctx context.Context, group string) (*GroupInfo, error) {
	request := kmsg.NewPtrConsumerGroupDescribeRequest()
	request.Groups = []string{group}
	response, err := request.RequestWith(ctx, c.client)
	if err != nil {
		return nil, err
	}
	g := response.Groups[0]
	if g.ErrorCode == kerr.GroupIDNotFound.Code {
		return c.describeClassic(ctx, group)
	}
	if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
		return nil, err
	}
	info := &GroupInfo{Group: group, State: g.State, Epoch: g.Epoch}
	for _, m := range g.Members {
		member := GroupMember{MemberID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID,
			Assignment: map[string][]int32{}}
		for _, t := range m.Assignment.TopicPartitions {
			member.Assignment[t.Topic] = t.Partitions
		}
		info.Members = append(info.Members, member)
	}
	sort.Slice(info.Members, func(i, j int) bool { return info.Members[i].MemberID < info.Members[j].MemberID })
	return info, nil
}

func (c *Cluster) describeClassic(ctx context.Context, group string) (*GroupInfo, error) {
	groups, err := kadm.NewClient(c.client).DescribeGroups(ctx, group)
	if err != nil {
		return nil, err
	}
	g := groups[group]
	if g.Err != nil || g.State == "Dead" {
		return nil, g.Err
	}
	info := &GroupInfo{Group: group, State: g.State}
	for _, m := range g.Members {
		member := GroupMember{MemberID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID,
			Assignment: map[string][]int32{}}
		if assigned, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range assigned.Topics {
				member.Assignment[t.Topic] = t.Partitions
			}
		}
		info.Members = append(info.Members, member)
	}
	return info, nil
}
