package service_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// touch is a key or a range that an operation reads or writes.
type touch struct {
	write, isRange bool
	start, end     string
}

func readsKey(key string) touch           { return touch{start: key} }
func writesKey(key string) touch          { return touch{write: true, start: key} }
func readsRange(start, end string) touch  { return touch{isRange: true, start: start, end: end} }
func writesRange(start, end string) touch { return touch{true, true, start, end} }
func (c *client) may(t touch) bool {
	return c.covers(t, map[bool][]string{false: c.read, true: c.write}[t.write])
}
func (c *client) known() bool              { return c.token != "" && !c.unknown }
func (c *client) context() context.Context { return signedIn(context.Background(), c.token) }

func signedIn(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// client is an identity of the matrix. Its rights are judged here by other means than in
// package auth: all keys of a model that are within a range must have a prefix.
type client struct {
	name        string
	token       string
	unknown     bool // the token is revoked, expired or none
	read, write []string
	admin       bool
	quota       auth.Quota
}

// modelKeys lie within, at and around the prefixes of the matrix.
var modelKeys = []string{"\x00", "a", "user", "user.", "user/", "user/\x00", "user/a", "user/b", "user/\xff", "user/\xff\xff", "user0", "user0\x00", "v", "\xff\xff\xff\xff\xff"}

func (c *client) covers(t touch, prefixes []string) bool {
	for _, prefix := range prefixes {
		all := true
		for _, key := range modelKeys {
			in := key == t.start
			if t.isRange {
				in = key >= t.start && (t.end == "" || key < t.end)
			}
			all = all && (!in || strings.HasPrefix(key, prefix))
		}
		if all {
			return true
		}
	}
	return false
}

// operation is one way to touch keys over one transport.
type operation struct {
	transport, name string
	touches         func(at place) []touch
	call            func(f *fixture, c *client, at place) error
	admin, public   bool
}

// place is a key, and a range from it.
type place struct{ key, end string }

// own is what each batch of the matrix touches first.
const own = "user/a"

func mutatePut(key string) *kvdpb.Mutation {
	return &kvdpb.Mutation{Op: &kvdpb.Mutation_Put{Put: &kvdpb.Item{Key: []byte(key), Value: []byte("v")}}}
}

func mutatePutIf(key string) *kvdpb.Mutation {
	m := mutatePut(key)
	m.Precondition = mustExist
	return m
}

func mutateDelete(key string) *kvdpb.Mutation {
	return &kvdpb.Mutation{Op: &kvdpb.Mutation_Delete{Delete: []byte(key)}}
}

func mutateRange(at place) *kvdpb.Mutation {
	return &kvdpb.Mutation{Op: &kvdpb.Mutation_DeleteRange{DeleteRange: rangeAt(at)}}
}

func rangeAt(at place) *kvdpb.Range { return &kvdpb.Range{Start: []byte(at.key), End: []byte(at.end)} }

func drain(scan kvdpb.KVService_ScanClient, err error) error {
	for err == nil {
		_, err = scan.Recv()
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// unaryOperations are all methods of gRPC but the pipeline, with what they nest.
func unaryOperations() (all []operation) {
	add := func(name string, touches func(at place) []touch, call func(f *fixture, ctx context.Context, at place) error) {
		all = append(all, operation{transport: "gRPC", name: name, touches: touches, call: func(f *fixture, c *client, at place) error {
			return call(f, c.context(), at)
		}})
	}
	read := func(at place) []touch { return []touch{readsKey(at.key)} }
	write := func(at place) []touch { return []touch{writesKey(at.key)} }
	both := func(at place) []touch { return []touch{writesKey(at.key), readsKey(at.key)} }
	scanned := func(at place) []touch { return []touch{readsRange(at.key, at.end)} }
	erased := func(at place) []touch { return []touch{writesRange(at.key, at.end)} }
	with := func(first touch, more func(at place) []touch) func(at place) []touch {
		return func(at place) []touch { return append(more(at), first) }
	}
	add("Get", read, func(f *fixture, ctx context.Context, at place) error {
		_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte(at.key)})
		return err
	})
	add("BatchGet", with(readsKey(own), read), func(f *fixture, ctx context.Context, at place) error {
		_, err := f.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: [][]byte{[]byte(own), []byte(at.key)}})
		return err
	})
	for name, change := range map[string]func(*kvdpb.PutRequest){
		"Put": func(*kvdpb.PutRequest) {}, "Put if": func(r *kvdpb.PutRequest) { r.Precondition = mustExist },
		"Put previous": func(r *kvdpb.PutRequest) { r.ReturnPrevious = true },
	} {
		touches := both
		if name == "Put" {
			touches = write
		}
		add(name, touches, func(f *fixture, ctx context.Context, at place) error {
			r := &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte(at.key)}}
			change(r)
			_, err := f.kv.Put(ctx, r)
			return err
		})
	}
	add("Delete", write, func(f *fixture, ctx context.Context, at place) error {
		_, err := f.kv.Delete(ctx, &kvdpb.DeleteRequest{Key: []byte(at.key)})
		return err
	})
	add("Delete previous", both, func(f *fixture, ctx context.Context, at place) error {
		_, err := f.kv.Delete(ctx, &kvdpb.DeleteRequest{Key: []byte(at.key), ReturnPrevious: true})
		return err
	})
	add("DeleteRange", erased, func(f *fixture, ctx context.Context, at place) error {
		_, err := f.kv.DeleteRange(ctx, &kvdpb.DeleteRangeRequest{Range: rangeAt(at)})
		return err
	})
	for name, scan := range map[string]*kvdpb.ScanRequest{"Scan": {}, "Scan keys": {KeysOnly: true}, "Scan back": {Reverse: true}, "Scan one": {Limit: 1}} {
		add(name, scanned, func(f *fixture, ctx context.Context, at place) error {
			return drain(f.kv.Scan(ctx, &kvdpb.ScanRequest{Range: rangeAt(at), KeysOnly: scan.KeysOnly, Reverse: scan.Reverse, Limit: scan.Limit}))
		})
	}
	nested := map[string]struct {
		touches  func(at place) []touch
		mutation func(at place) *kvdpb.Mutation
	}{
		"put":    {write, func(at place) *kvdpb.Mutation { return mutatePut(at.key) }},
		"put if": {both, func(at place) *kvdpb.Mutation { return mutatePutIf(at.key) }},
		"delete": {write, func(at place) *kvdpb.Mutation { return mutateDelete(at.key) }},
		"range":  {erased, mutateRange},
	}
	for name, m := range nested {
		list := func(at place) []*kvdpb.Mutation { return []*kvdpb.Mutation{mutatePut(own), m.mutation(at)} }
		add("Write atomic "+name, with(writesKey(own), m.touches), func(f *fixture, ctx context.Context, at place) error {
			_, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: list(at)})
			return err
		})
		if name != "range" {
			add("Write each "+name, m.touches, func(f *fixture, ctx context.Context, at place) error {
				r, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Mutations: list(at)})
				if err == nil && len(r.Statuses) > 0 && r.Statuses[1].Code != 0 {
					return status.Error(codes.Code(r.Statuses[1].Code), r.Statuses[1].Message)
				}
				return err
			})
		}
		add("Commit "+name, with(writesKey(own), m.touches), func(f *fixture, ctx context.Context, at place) error {
			_, err := f.txn.Commit(ctx, &kvdpb.CommitRequest{ReadVersion: 1, Mutations: list(at)})
			return err
		})
		if name == "put if" {
			continue // Execute takes guards
		}
		add("Execute then "+name, with(writesKey(own), m.touches), func(f *fixture, ctx context.Context, at place) error {
			_, err := f.txn.Execute(ctx, &kvdpb.ExecuteRequest{ThenMutations: list(at)})
			return err
		})
		add("Execute else "+name, with(writesKey(own), m.touches), func(f *fixture, ctx context.Context, at place) error {
			_, err := f.txn.Execute(ctx, &kvdpb.ExecuteRequest{ElseMutations: list(at)})
			return err
		})
	}
	add("Execute guard", read, func(f *fixture, ctx context.Context, at place) error {
		_, err := f.txn.Execute(ctx, &kvdpb.ExecuteRequest{Guards: []*kvdpb.ExecuteRequest_Guard{{Key: []byte(at.key), Precondition: mustExist}}})
		return err
	})
	add("Commit read key", with(writesKey(own), read), func(f *fixture, ctx context.Context, at place) error {
		_, err := f.txn.Commit(ctx, &kvdpb.CommitRequest{ReadVersion: 1, ReadKeys: [][]byte{[]byte(at.key)}, Mutations: []*kvdpb.Mutation{mutatePut(own)}})
		return err
	})
	add("Commit expiring key", with(writesKey(own), read), func(f *fixture, ctx context.Context, at place) error {
		_, err := f.txn.Commit(ctx, &kvdpb.CommitRequest{ReadVersion: 1, ExpiringKeys: [][]byte{[]byte(at.key)}, Mutations: []*kvdpb.Mutation{mutatePut(own)}})
		return err
	})
	add("Commit read range", with(writesKey(own), scanned), func(f *fixture, ctx context.Context, at place) error {
		_, err := f.txn.Commit(ctx, &kvdpb.CommitRequest{ReadVersion: 1, ReadRanges: []*kvdpb.Range{rangeAt(at)}, Mutations: []*kvdpb.Mutation{mutatePut(own)}})
		return err
	})
	none := func(place) []touch { return nil }
	add("BeginSnapshot", none, func(f *fixture, ctx context.Context, _ place) error {
		r, err := f.txn.BeginSnapshot(ctx, &kvdpb.BeginSnapshotRequest{})
		if err == nil {
			_, err = f.txn.ReleaseSnapshot(ctx, &kvdpb.ReleaseSnapshotRequest{SnapshotId: r.SnapshotId})
		}
		return err
	})
	add("KeepSnapshot", none, func(f *fixture, ctx context.Context, _ place) error {
		_, err := f.txn.KeepSnapshot(ctx, &kvdpb.KeepSnapshotRequest{SnapshotId: 1})
		return err
	})
	add("ReleaseSnapshot", none, func(f *fixture, ctx context.Context, _ place) error {
		_, err := f.txn.ReleaseSnapshot(ctx, &kvdpb.ReleaseSnapshotRequest{SnapshotId: 1})
		return err
	})
	add("ListSlowRequests", none, func(f *fixture, ctx context.Context, _ place) error {
		_, err := kvdpb.NewAdminServiceClient(f.conn).ListSlowRequests(ctx, &kvdpb.ListSlowRequestsRequest{})
		return err
	})
	all[len(all)-1].admin = true
	add("ClearSlowRequests", none, func(f *fixture, ctx context.Context, _ place) error {
		_, err := kvdpb.NewAdminServiceClient(f.conn).ClearSlowRequests(ctx, &kvdpb.ClearSlowRequestsRequest{})
		return err
	})
	all[len(all)-1].admin = true
	add("Backup", none, func(f *fixture, ctx context.Context, _ place) error {
		// As a unary call, which ends its request at once: the client would reset a stream that is
		// refused before, and many of those end the connection.
		err := f.conn.Invoke(ctx, kvdpb.AdminService_Backup_FullMethodName, new(kvdpb.BackupRequest), new(kvdpb.BackupResponse))
		if status.Code(err) == codes.InvalidArgument {
			return nil // the store of the test cannot be backed up
		}
		return err
	})
	all[len(all)-1].admin = true
	add("SetSetting", none, func(f *fixture, ctx context.Context, _ place) error {
		_, err := kvdpb.NewAdminServiceClient(f.conn).SetSetting(ctx, &kvdpb.SetSettingRequest{Name: "log-level", Value: "debug"})
		if status.Code(err) == codes.InvalidArgument {
			return nil // the server of the test has no settings
		}
		return err
	})
	all[len(all)-1].admin = true
	// The server of the test is in no cluster.
	alone := func(err error) error {
		if status.Code(err) == codes.InvalidArgument {
			return nil
		}
		return err
	}
	add("GetCluster", none, func(f *fixture, ctx context.Context, _ place) error {
		_, err := kvdpb.NewAdminServiceClient(f.conn).GetCluster(ctx, &kvdpb.GetClusterRequest{})
		return alone(err)
	})
	all[len(all)-1].admin = true
	add("TransferLeadership", none, func(f *fixture, ctx context.Context, _ place) error {
		_, err := kvdpb.NewAdminServiceClient(f.conn).TransferLeadership(ctx, &kvdpb.TransferLeadershipRequest{})
		return alone(err)
	})
	all[len(all)-1].admin = true
	add("AddNode", none, func(f *fixture, ctx context.Context, _ place) error {
		_, err := kvdpb.NewAdminServiceClient(f.conn).AddNode(ctx, &kvdpb.AddNodeRequest{})
		return alone(err)
	})
	all[len(all)-1].admin = true
	add("RemoveNode", none, func(f *fixture, ctx context.Context, _ place) error {
		_, err := kvdpb.NewAdminServiceClient(f.conn).RemoveNode(ctx, &kvdpb.RemoveNodeRequest{})
		return alone(err)
	})
	all[len(all)-1].admin = true
	add("MoveNode", none, func(f *fixture, ctx context.Context, _ place) error {
		_, err := kvdpb.NewAdminServiceClient(f.conn).MoveNode(ctx, &kvdpb.MoveNodeRequest{})
		return alone(err)
	})
	all[len(all)-1].admin = true
	add("Scrub", none, func(f *fixture, ctx context.Context, _ place) error {
		// As a unary call, likewise. The first response comes before the store is asked.
		err := f.conn.Invoke(ctx, kvdpb.AdminService_Scrub_FullMethodName, new(kvdpb.ScrubRequest), new(kvdpb.ScrubResponse))
		if status.Code(err) == codes.InvalidArgument {
			return nil // the store of the test has no files
		}
		return err
	})
	all[len(all)-1].admin = true
	add("Health", none, func(f *fixture, ctx context.Context, _ place) error {
		_, err := healthpb.NewHealthClient(f.conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	})
	all[len(all)-1].public = true
	return all
}

// frameOperations are the operations of frames, over each way to carry them.
func frameOperations() (all []operation) {
	for transport, open := range map[string]func(ctx context.Context, f *fixture, c *client) (carrier, error){
		"stream": func(ctx context.Context, f *fixture, c *client) (carrier, error) {
			stream, err := f.kv.Pipeline(signedIn(ctx, c.token))
			return messages{stream}, err
		},
		"raw": func(ctx context.Context, f *fixture, c *client) (carrier, error) {
			conn, err := f.rawOf(c.token, frame.VersionPlain)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return conn, err
		},
	} {
		for name, o := range map[string]struct {
			kind       frame.FrameKind
			op         frame.Op
			reads      bool
			writes     bool
			oneVersion bool
		}{
			"get":             {kind: frame.ReadFrame, op: frame.Op{Kind: frame.Get}, reads: true},
			"get one version": {kind: frame.ReadFrame, op: frame.Op{Kind: frame.Get}, reads: true, oneVersion: true},
			"put":             {kind: frame.WriteFrame, op: frame.Op{Kind: frame.Put}, writes: true},
			"put if":          {kind: frame.WriteFrame, op: frame.Op{Kind: frame.Put, Condition: frame.Condition{Kind: frame.MustExist}}, reads: true, writes: true},
			"put previous":    {kind: frame.WriteFrame, op: frame.Op{Kind: frame.Put, ReturnPrevious: true}, reads: true, writes: true},
			"delete":          {kind: frame.WriteFrame, op: frame.Op{Kind: frame.Delete}, writes: true},
			"delete previous": {kind: frame.WriteFrame, op: frame.Op{Kind: frame.Delete, ReturnPrevious: true}, reads: true, writes: true},
		} {
			touches := func(at place) (all []touch) {
				if o.reads {
					all = append(all, readsKey(at.key))
				}
				if o.writes {
					all = append(all, writesKey(at.key))
				}
				return all
			}
			all = append(all, operation{transport: transport, name: name, touches: touches, call: func(f *fixture, c *client, at place) error {
				ctx, cancel := context.WithDeadline(context.Background(), testwait.Deadline())
				defer cancel()
				carrier, err := open(ctx, f, c)
				if err != nil {
					return err
				}
				op := o.op
				op.Key = []byte(at.key)
				// The operation is among others: each is judged by itself.
				first := frame.Op{Kind: o.op.Kind, Key: []byte(own)}
				if err := carrier.send(framed(o.kind, frame.Header{ID: 1, OneVersion: o.oneVersion}, first, op)); err != nil && err != io.EOF {
					return err
				}
				return resultOf(carrier, 1)
			}})
		}
	}
	return all
}

// callOperations are those of the unary operations that frames carry, too.
func callOperations(t *testing.T) (all []operation) {
	for _, o := range unaryOperations() {
		method, _, _ := strings.Cut(o.name, " ")
		if o.admin || o.public || !slices.Contains([]string{"Write", "Commit", "Execute", "BeginSnapshot", "KeepSnapshot", "ReleaseSnapshot"}, method) ||
			strings.HasPrefix(o.name, "Write each") { // which frames do not carry as calls
			continue
		}
		byGRPC := o.call
		o.transport = "frame"
		o.call = func(f *fixture, c *client, at place) error {
			conn, err := f.rawOf(c.token, frame.VersionCalls)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			carrier := &callConn{rawConn: conn, t: t}
			byFrame := *f
			byFrame.kv, byFrame.txn = kvdpb.NewKVServiceClient(carrier), kvdpb.NewTxnServiceClient(carrier)
			return byGRPC(&byFrame, c, at)
		}
		all = append(all, o)
	}
	return all
}

type carrier interface {
	send(data []byte) error
	receive(r *frame.Response) error
}

// resultOf returns the error of the operation at a position of a frame, or that of the whole.
func resultOf(c carrier, position uint64) error {
	for {
		var r frame.Response
		if err := c.receive(&r); err != nil {
			return err
		}
		for i := range r.Results {
			if result := &r.Results[i]; r.Refused || result.Tag == position {
				if result.Code == 0 {
					return nil
				}
				return status.Error(codes.Code(result.Code), result.Message)
			}
		}
	}
}

// rawOf opens a connection of raw frames of a version, or with a token of one that signs in. It
// has no deadline: the timer of one would hold the buffers of the connection until then, also
// after its end, and some tests open thousands.
func (f *fixture) rawOf(token string, version byte) (*rawConn, error) {
	conn, err := f.listener.Dial()
	if err != nil {
		return nil, err
	}
	if token != "" {
		version = max(version, frame.VersionSignIn)
	}
	if _, err := io.WriteString(conn, frame.PreambleOf(version)); err != nil {
		return nil, err
	}
	c := &rawConn{conn, bufio.NewReader(conn)}
	answer := make([]byte, frame.PreambleBytes)
	if _, err := io.ReadFull(c.in, answer); err != nil {
		return nil, err
	}
	if got := frame.Version([frame.PreambleBytes]byte(answer)); got != version {
		return nil, fmt.Errorf("version %d", got)
	}
	if version >= frame.VersionSignIn {
		_, err = conn.Write(frame.AppendSignIn(nil, token))
	}
	return c, err
}

// tokens writes the identities of clients, and gives them their tokens.
func tokens(t *testing.T, fsys vfs.FS, clients []*client) {
	t.Helper()
	var entries []auth.Entry
	for _, c := range clients {
		token, id, hash := auth.NewToken()
		e := auth.Entry{Identity: auth.Identity{Name: c.name, TokenID: id, Read: c.read, Write: c.write, Admin: c.admin, Quota: c.quota}, Hash: hash}
		switch c.name {
		case "nobody":
			continue
		case "unknown":
			c.token, c.unknown = token, true
			continue
		case "expired":
			c.unknown = true
			e.Expires = time.Now().Add(-time.Second)
		}
		c.token = token
		entries = append(entries, e)
	}
	text, err := auth.Encode(entries)
	require.NoError(t, err)
	require.NoError(t, vfs.WriteAtomic(fsys, "tokens", text))
}

// matrix starts a server with the clients.
func matrix(t *testing.T, clients []*client) (*fixture, *auth.Authority, vfs.FS) {
	t.Helper()
	fsys := vfs.NewMem()
	tokens(t, fsys, clients)
	authority, err := auth.Open(fsys, "tokens", func(error) {})
	require.NoError(t, err)
	store := servicetest.New(kv.DefaultLimits)
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{Auth: authority}, protocols...) })
	return f, authority, fsys
}

func TestEveryOperationIsJudgedByWhatItTouches(t *testing.T) {
	all, user := []string{""}, []string{"user/"}
	clients := []*client{
		{name: "nobody"}, {name: "unknown", read: all, write: all}, {name: "expired", read: all, write: all, admin: true},
		{name: "reader", read: user}, {name: "writer", write: user}, {name: "both", read: user, write: user},
		{name: "reads all, writes user", read: all, write: user}, {name: "everything", read: all, write: all},
		{name: "admin", admin: true}, {name: "all and admin", read: all, write: all, admin: true},
		{name: "two prefixes", read: []string{"a", "user/"}, write: []string{"user/a", "v"}},
		{name: "no right"},
	}
	places := []place{
		{"user/", "user0"}, {"user/", "user0\x00"}, {"user0", "v"}, // the first ones are the sample
		{"user/a", "user/b"}, {"user/\xff", "user0"}, {"user/", ""}, {"user", "user0"},
		{"a", "b"}, {"a", ""}, {"\x00", ""}, {"\xff\xff\xff\xff\xff", ""},
	}
	if testsize.Reduced() {
		places = places[:3] // all of a prefix, one key more, and none of it
	}
	f, _, _ := matrix(t, clients)
	operations := slices.Concat(unaryOperations(), frameOperations(), callOperations(t))
	counts := map[string]int{}
	for _, o := range operations {
		for _, c := range clients {
			for _, at := range places {
				want := codes.OK // or whatever the operation does
				switch {
				case o.public:
				case !c.known():
					want = codes.Unauthenticated
				case o.admin && !c.admin, !o.admin && len(c.read)+len(c.write) == 0:
					want = codes.PermissionDenied
				default:
					for _, touched := range o.touches(at) {
						if !c.may(touched) {
							want = codes.PermissionDenied
						}
					}
				}
				err := o.call(f, c, at)
				got := status.Code(err)
				refused := got == codes.PermissionDenied || got == codes.Unauthenticated || got == codes.Unavailable || got == codes.Internal || got == codes.Unknown
				if want == codes.OK && refused || want != codes.OK && got != want {
					t.Errorf("%s %s by %q at %q to %q: want %v: %v", o.transport, o.name, c.name, at.key, at.end, want, err)
				}
				counts[fmt.Sprintf("%s %v", o.transport, want)]++
				counts["all"]++
			}
		}
	}
	t.Logf("%d operations, %d identities, %d places: %v", len(operations), len(clients), len(places), counts)
	assert.Equal(t, len(operations)*len(clients)*len(places), counts["all"])
	for _, transport := range []string{"gRPC", "stream", "raw", "frame"} {
		for _, code := range []codes.Code{codes.OK, codes.PermissionDenied, codes.Unauthenticated} {
			assert.Positive(t, counts[fmt.Sprintf("%s %v", transport, code)], "%s %v", transport, code)
		}
	}
}

// What is refused is not done, and does not tell whether a key exists.
func TestARefusalTellsNothingAndDoesNothing(t *testing.T) {
	owner := &client{name: "owner", read: []string{""}, write: []string{""}}
	stranger := &client{name: "stranger", read: []string{"x"}, write: []string{"x"}}
	f, _, _ := matrix(t, []*client{owner, stranger})
	put := func(key string) {
		_, err := f.kv.Put(owner.context(), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte(key), Value: []byte("v")}})
		require.NoError(t, err)
	}
	put("here")
	for _, o := range slices.Concat(unaryOperations(), frameOperations(), callOperations(t)) {
		if len(o.touches(place{"here", "herf"})) == 0 {
			continue
		}
		there := o.call(f, stranger, place{"here", "herf"})
		absent := o.call(f, stranger, place{"gone", "gonf"})
		require.Equal(t, codes.PermissionDenied, status.Code(there), "%s %s", o.transport, o.name)
		assert.Equal(t, there.Error(), absent.Error(), "%s %s", o.transport, o.name)
		assert.NotContains(t, there.Error(), "here")
	}
	info, _ := requireFailure(t, func() error {
		_, err := f.kv.Get(stranger.context(), &kvdpb.GetRequest{Key: []byte("here")})
		return err
	}(), codes.PermissionDenied, "PERMISSION_DENIED")
	assert.Empty(t, info.Metadata)
	requireFailure(t, func() error {
		_, err := f.kv.Get(context.Background(), &kvdpb.GetRequest{Key: []byte("here")})
		return err
	}(), codes.Unauthenticated, "UNAUTHENTICATED")
	r, err := f.kv.Get(owner.context(), &kvdpb.GetRequest{Key: []byte("here")})
	require.NoError(t, err)
	assert.Equal(t, r.Item.Version, r.Meta.Version, "nothing was written since")
	assert.Positive(t, f.Stats().Denied)
	assert.EqualValues(t, 1, f.Stats().Unauthenticated)
}

// A token that is revoked ends what it began: on connections and streams that are open, and
// in the middle of a scan.
func TestARevokedTokenEndsOpenConnections(t *testing.T) {
	app := &client{name: "app", read: []string{""}, write: []string{""}}
	f, authority, fsys := matrix(t, []*client{app})
	var items []*kvdpb.Mutation
	for i := range 4000 {
		items = append(items, &kvdpb.Mutation{Op: &kvdpb.Mutation_Put{Put: &kvdpb.Item{Key: fmt.Appendf(nil, "k%04d", i), Value: make([]byte, 1000)}}})
	}
	_, err := f.kv.Write(app.context(), &kvdpb.WriteRequest{Atomic: true, Mutations: items})
	require.NoError(t, err)
	raw, err := f.rawOf(app.token, frame.VersionSignIn)
	require.NoError(t, err)
	defer func() { _ = raw.Close() }()
	stream, err := f.kv.Pipeline(app.context())
	require.NoError(t, err)
	carriers := map[string]carrier{"raw": raw, "stream": messages{stream}}
	for name, c := range carriers {
		require.NoError(t, c.send(reads(1, "k0000")), name)
		require.NoError(t, resultOf(c, 0), name)
	}
	scan, err := f.kv.Scan(app.context(), &kvdpb.ScanRequest{ChunkBytes: 1 << 10})
	require.NoError(t, err)
	_, err = scan.Recv()
	require.NoError(t, err)

	tokens(t, fsys, nil)
	authority.Reload()
	for name, c := range carriers {
		require.NoError(t, c.send(reads(2, "k0000")), name)
		require.Equal(t, codes.Unauthenticated, status.Code(resultOf(c, 0)), name)
		var r frame.Response
		for err = nil; err == nil; { // the connection ends
			err = c.receive(&r)
		}
	}
	require.Equal(t, codes.Unauthenticated, status.Code(drain(scan, nil)))
	_, err = f.kv.Get(app.context(), &kvdpb.GetRequest{Key: []byte("k0000")})
	require.Equal(t, codes.Unauthenticated, status.Code(err))
}

// saved is a store that can be backed up. Its one file is larger than what the transport
// takes while the client receives nothing.
type saved struct{ *servicetest.Store }

func (saved) Checkpoint(context.Context, int64) (service.Checkpoint, error) { return savedFiles{}, nil }

type savedFiles struct{}

const savedBytes = 64 << 20

func (savedFiles) Info() backup.Info {
	return backup.Info{Files: []backup.File{{Name: "table", Size: savedBytes}, {Name: "slow", Size: savedBytes}}}
}
func (savedFiles) Release() {}

// Fetch verifies the file slow until ctx ends.
func (savedFiles) Fetch(ctx context.Context, name string, _ []uint64) (uint64, io.Reader, error) {
	if name == "slow" {
		<-ctx.Done()
		return 0, nil, context.Cause(ctx)
	}
	return 1, io.LimitReader(zeros{}, savedBytes), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// An administrator that is no longer one gets no more of a backup that is under way, be it
// in the middle of a file or between two.
func TestARevokedTokenEndsABackup(t *testing.T) {
	for _, between := range []bool{false, true} {
		ops := &client{name: "ops", admin: true}
		fsys := vfs.NewMem()
		tokens(t, fsys, []*client{ops})
		authority, err := auth.Open(fsys, "tokens", func(error) {})
		require.NoError(t, err)
		store := servicetest.New(kv.DefaultLimits)
		f := start(t, store, func() *service.Server {
			return service.New(saved{store}, service.Options{Auth: authority}, protocols...)
		})
		stream, err := kvdpb.NewAdminServiceClient(f.conn).Backup(ops.context())
		require.NoError(t, err)
		ask := func(file string) {
			require.NoError(t, stream.Send(&kvdpb.BackupRequest{File: file}))
			_, err = stream.Recv()
			require.NoError(t, err)
		}
		ask("")
		if !between {
			ask("table")
		}
		tokens(t, fsys, nil)
		authority.Reload()
		if between {
			if err := stream.Send(&kvdpb.BackupRequest{File: "table"}); !errors.Is(err, io.EOF) { // the call may have ended already: Recv says why
				require.NoError(t, err)
			}
		}
		got := 0
		for err == nil && got < savedBytes {
			var r *kvdpb.BackupResponse
			if r, err = stream.Recv(); err == nil {
				got += len(r.GetData())
			}
		}
		assert.Equal(t, codes.Unauthenticated, status.Code(err), "between files: %v, %d bytes: %v", between, got, err)
	}
}

// receiveAll receives until that fails.
func receiveAll[T any](receive func() (T, error)) (err error) {
	for err == nil {
		_, err = receive()
	}
	return err
}

// demote takes all rights but one from the clients in the token file.
func demote(t *testing.T, fsys vfs.FS) {
	text, err := vfs.ReadSmall(fsys, "tokens", 1<<20)
	require.NoError(t, err)
	entries, err := auth.Decode(text)
	require.NoError(t, err)
	for i := range entries {
		entries[i].Admin, entries[i].Read, entries[i].Write = false, []string{"other"}, nil
	}
	text, err = auth.Encode(entries)
	require.NoError(t, err)
	require.NoError(t, vfs.WriteAtomic(fsys, "tokens", text))
}

// A stream whose client takes nothing ends when the token is revoked, long before the deadline of
// the client's silence. So does one that waits for a request. The client then reads why, and the
// audit log has one line for it. The clock is that of the bubble.
func TestARevokedTokenEndsStreamsOfASilentClient(t *testing.T) {
	backup := func(t *testing.T, conn *grpc.ClientConn, ctx context.Context, files ...string) func() error {
		stream, err := kvdpb.NewAdminServiceClient(conn).Backup(ctx)
		require.NoError(t, err)
		for _, file := range append([]string{""}, files...) {
			require.NoError(t, stream.Send(&kvdpb.BackupRequest{File: file}))
		}
		return func() error { return receiveAll(stream.Recv) }
	}
	for name, begin := range map[string]func(t *testing.T, conn *grpc.ClientConn, ctx context.Context) (receive func() error){
		"backup that sends": func(t *testing.T, conn *grpc.ClientConn, ctx context.Context) func() error {
			return backup(t, conn, ctx, "table")
		},
		"backup that verifies": func(t *testing.T, conn *grpc.ClientConn, ctx context.Context) func() error {
			return backup(t, conn, ctx, "slow")
		},
		"backup that receives": func(t *testing.T, conn *grpc.ClientConn, ctx context.Context) func() error {
			return backup(t, conn, ctx)
		},
		"scan": func(t *testing.T, conn *grpc.ClientConn, ctx context.Context) func() error {
			stream, err := kvdpb.NewKVServiceClient(conn).Scan(ctx, new(kvdpb.ScanRequest))
			require.NoError(t, err)
			return func() error { return receiveAll(stream.Recv) }
		},
	} {
		for _, demoted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, demoted %v", name, demoted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ops := &client{name: "ops", admin: true, read: []string{""}, write: []string{""}}
					fsys := vfs.NewMem()
					tokens(t, fsys, []*client{ops})
					authority, err := auth.Open(fsys, "tokens", func(error) {})
					require.NoError(t, err)
					var refused atomic.Int64
					audited := func(e audit.Event) {
						if e.Kind == audit.Refused {
							refused.Add(1)
						}
					}
					store := servicetest.New(kv.DefaultLimits)
					f := start(t, store, func() *service.Server {
						return service.New(saved{store}, service.Options{Auth: authority, Deadline: time.Hour, Audit: audited}, protocols...)
					})
					for _, key := range []string{"a", "b", "c"} {
						_, err := f.kv.Put(ops.context(), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte(key), Value: make([]byte, 1<<20)}})
						require.NoError(t, err)
					}
					receive := begin(t, f.conn, ops.context())
					synctest.Wait()
					time.Sleep(time.Minute)
					want, says := service.Unauthenticated, "it was revoked; the call was ended"
					counted := func() (n uint64) {
						for _, r := range f.Stats().Requests {
							if r.Code == want {
								n += r.Count
							}
						}
						return n
					}
					require.EqualValues(t, 1, f.Stats().Waiting, "a client with rights may be slow")
					if demoted {
						want, says = service.PermissionDenied, "the call was ended. Ask the operator"
						demote(t, fsys)
					} else {
						tokens(t, fsys, nil)
					}
					authority.Reload()
					time.Sleep(2 * time.Second)
					synctest.Wait()
					assert.EqualValues(t, 1, counted())
					assert.Zero(t, f.Stats().Waiting)
					err = receive()
					assert.Equal(t, codes.Code(want), status.Code(err), err)
					assert.ErrorContains(t, err, says)
					assert.EqualValues(t, 1, refused.Load(), "lines in the audit log")
				})
			})
		}
	}
}

// lateCodec encodes what a test sends, which it encoded itself, and drops what comes.
type lateCodec struct{}

func (lateCodec) Name() string                  { return "proto" }
func (lateCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (lateCodec) Unmarshal([]byte, any) error   { return nil }

// The request of a call may come long after its headers, by which the client was judged. A client
// that has lost the right meanwhile gets nothing of what it then asks for, and nothing is done.
func TestARequestThatComesLateIsJudgedThen(t *testing.T) {
	encoded := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		require.NoError(t, err)
		return b
	}
	put := encoded(&kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("late"), Value: []byte("v")}})
	for method, request := range map[string][]byte{
		kvdpb.KVService_Get_FullMethodName:            encoded(&kvdpb.GetRequest{Key: []byte("k")}),
		kvdpb.KVService_BatchGet_FullMethodName:       encoded(&kvdpb.BatchGetRequest{Keys: [][]byte{[]byte("k")}}),
		kvdpb.KVService_Put_FullMethodName:            put,
		kvdpb.KVService_Write_FullMethodName:          encoded(&kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{mutatePut("late")}}),
		kvdpb.TxnService_Execute_FullMethodName:       encoded(&kvdpb.ExecuteRequest{ThenMutations: []*kvdpb.Mutation{mutatePut("late")}}),
		kvdpb.TxnService_BeginSnapshot_FullMethodName: encoded(&kvdpb.BeginSnapshotRequest{}),
		kvdpb.KVService_Scan_FullMethodName:           encoded(&kvdpb.ScanRequest{}),
		kvdpb.AdminService_Backup_FullMethodName:      encoded(&kvdpb.BackupRequest{}),
		kvdpb.AdminService_SetSetting_FullMethodName:  encoded(&kvdpb.SetSettingRequest{Name: "n", Value: "v"}),
	} {
		t.Run(method, func(t *testing.T) {
			ops := &client{name: "ops", admin: true, read: []string{""}, write: []string{""}}
			fsys := vfs.NewMem()
			tokens(t, fsys, []*client{ops})
			authority, err := auth.Open(fsys, "tokens", func(error) {})
			require.NoError(t, err)
			store := servicetest.New(kv.DefaultLimits)
			var changed atomic.Bool
			set := func(string, string, string) (string, string, error) {
				changed.Store(true)
				return "", "", nil
			}
			f := start(t, store, func() *service.Server {
				return service.New(saved{store}, service.Options{Auth: authority, SetSetting: set}, protocols...)
			})
			stream, err := f.conn.NewStream(ops.context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodec(lateCodec{}))
			require.NoError(t, err)
			testwait.Until(t, func() bool { return f.Stats().Waiting == 1 }) // the headers have come
			tokens(t, fsys, nil)
			authority.Reload()
			if err := stream.SendMsg(request); err == nil { // else the call was ended before, which RecvMsg says
				require.NoError(t, stream.CloseSend())
			}
			require.Equal(t, codes.Unauthenticated, status.Code(stream.RecvMsg(new([]byte))))
			lookup := kv.Lookup{Key: []byte("late")}
			require.NoError(t, store.Lookup(t.Context(), []*kv.Lookup{&lookup}))
			require.False(t, lookup.Found, "nothing was written")
			require.False(t, changed.Load(), "nothing was set")
		})
	}
}

// A read that has waited long in the store is answered only if its client may still have the answer.
func TestAReadThatWaitsLongIsJudgedAgain(t *testing.T) {
	for _, demoted := range []bool{false, true} {
		for name, read := range map[string]func(f *fixture, c *client) error{
			"Get": func(f *fixture, c *client) error {
				_, err := f.kv.Get(c.context(), &kvdpb.GetRequest{Key: []byte("k")})
				return err
			},
			"BatchGet": func(f *fixture, c *client) error {
				_, err := f.kv.BatchGet(c.context(), &kvdpb.BatchGetRequest{Keys: [][]byte{[]byte("k")}})
				return err
			},
			"frame": func(f *fixture, c *client) error {
				raw, err := f.rawOf(c.token, frame.VersionSignIn)
				if err != nil {
					return err
				}
				defer func() { _ = raw.Close() }()
				if err := raw.send(reads(1, "k")); err != nil {
					return err
				}
				return resultOf(raw, 0)
			},
		} {
			t.Run(fmt.Sprintf("%s, demoted %v", name, demoted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					app := &client{name: "app", read: []string{""}, write: []string{""}}
					f, authority, fsys := matrix(t, []*client{app})
					_, err := f.kv.Put(app.context(), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k")}})
					require.NoError(t, err)
					f.store.OnCached = func([]byte) bool { return false }
					f.store.OnLookup = func(context.Context, []*kv.Lookup) error {
						time.Sleep(2 * time.Second)
						return nil
					}
					require.NoError(t, read(f, app), "a client with rights may wait")
					want := codes.Unauthenticated
					f.store.OnLookup = func(context.Context, []*kv.Lookup) error {
						if demoted {
							demote(t, fsys)
						} else {
							tokens(t, fsys, nil)
						}
						authority.Reload()
						time.Sleep(2 * time.Second)
						return nil
					}
					if demoted {
						want = codes.PermissionDenied
					}
					err = read(f, app)
					require.Equal(t, want, status.Code(err), "%v", err)
				})
			})
		}
	}
}

// A read that memory has answered since the store is full waits for the others of its call, and is
// judged with them.
func TestAReadFromMemoryOfAFullStoreIsJudgedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := &client{name: "app", read: []string{""}, write: []string{""}}
		fsys := vfs.NewMem()
		tokens(t, fsys, []*client{app})
		authority, err := auth.Open(fsys, "tokens", func(error) {})
		require.NoError(t, err)
		store := servicetest.New(kv.DefaultLimits)
		leave := make(chan struct{})
		store.OnCached = func(key []byte) bool { return string(key) == "k1" }
		store.OnLookup = func(_ context.Context, reads []*kv.Lookup) error {
			switch string(reads[0].Key) {
			case "other":
				<-leave
			case "k2":
				demote(t, fsys)
				authority.Reload()
				time.Sleep(2 * time.Second)
			}
			return nil
		}
		f := start(t, store, func() *service.Server {
			return service.New(store, service.Options{Auth: authority, ReadOps: 1}, protocols...)
		})
		_, err = f.kv.Put(app.context(), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k1"), Value: []byte("v")}})
		require.NoError(t, err)
		other, err := f.rawOf(app.token, frame.VersionSignIn)
		require.NoError(t, err)
		raw, err := f.rawOf(app.token, frame.VersionSignIn)
		require.NoError(t, err)
		require.NoError(t, other.send(reads(1, "other")))
		synctest.Wait() // it is all that the store lets in
		require.NoError(t, raw.send(reads(1, "k1", "k2")))
		synctest.Wait() // k1 is answered, and k2 waits
		close(leave)
		var r frame.Response
		require.NoError(t, raw.receive(&r))
		require.Len(t, r.Results, 2)
		for i := range r.Results {
			assert.Equal(t, codes.PermissionDenied, codes.Code(r.Results[i].Code), "k%d", i+1)
		}
		require.NoError(t, raw.Close())
		require.NoError(t, other.Close())
	})
}

// A transaction that has waited long to begin brings the value of its first key only if the client
// may still have it.
func TestTheReadOfASnapshotThatWaitedIsJudgedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := &client{name: "app", read: []string{""}, write: []string{""}}
		f, authority, fsys := matrix(t, []*client{app})
		_, err := f.kv.Put(app.context(), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k")}})
		require.NoError(t, err)
		begin := func() *kvdpb.BeginSnapshotResponse {
			r, err := f.txn.BeginSnapshot(app.context(), &kvdpb.BeginSnapshotRequest{ReadKey: []byte("k")})
			require.NoError(t, err)
			return r
		}
		f.store.OnSnapshot = func(context.Context) error {
			time.Sleep(2 * time.Second)
			return nil
		}
		require.True(t, begin().GetRead().GetFound(), "a client with rights may wait")
		f.store.OnSnapshot = func(context.Context) error {
			demote(t, fsys)
			authority.Reload()
			time.Sleep(2 * time.Second)
			return nil
		}
		assert.Nil(t, begin().Read)
	})
}

// A page of a scan that has waited for the quota of its client is sent only if the client may still
// have it.
func TestAPageThatWaitedForTheQuotaIsJudgedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writer := &client{name: "writer", write: []string{""}}
		app := &client{name: "app", read: []string{""}, quota: auth.Quota{Requests: auth.Rate{Count: 6, Per: time.Minute}, Burst: 10 * time.Second}}
		f, authority, fsys := matrix(t, []*client{writer, app})
		for _, key := range []string{"a", "b", "c"} {
			_, err := f.kv.Put(writer.context(), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte(key)}})
			require.NoError(t, err)
		}
		scan, err := f.kv.Scan(app.context(), &kvdpb.ScanRequest{ChunkBytes: 1})
		require.NoError(t, err)
		_, err = scan.Recv()
		require.NoError(t, err)
		synctest.Wait() // the second page waits
		tokens(t, fsys, nil)
		authority.Reload()
		_, err = scan.Recv()
		require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
	})
}

// Operations of a frame that come later than others, or than memory, are judged then.
func TestCallsOfAFrameAreJudgedOneByOne(t *testing.T) {
	app := &client{name: "app", read: []string{""}, write: []string{""}}
	f, authority, fsys := matrix(t, []*client{app})
	raw, err := f.rawOf(app.token, frame.VersionCalls)
	require.NoError(t, err)
	defer func() { _ = raw.Close() }()
	message, err := proto.Marshal(&kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{mutatePut("k")}})
	require.NoError(t, err)
	const calls = 300 // more than are performed at the same time
	entered, leave := make(chan struct{}, calls), make(chan struct{})
	f.store.OnApply = func(context.Context, *kv.WriteBatch) error {
		entered <- struct{}{}
		<-leave
		return nil
	}
	var b frame.Builder
	b.Reset(frame.CallFrame)
	for range calls {
		b.Add(&frame.Op{Kind: frame.Call, Method: frame.MethodWrite, Value: message})
	}
	_, err = raw.Write(b.Finish(frame.Header{ID: 1}))
	require.NoError(t, err)
	const together = 256
	for range together {
		<-entered
	}
	tokens(t, fsys, nil)
	authority.Reload()
	close(leave)
	outcomes := map[codes.Code]int{}
	for answered := 0; answered < calls; {
		var r frame.Response
		require.NoError(t, raw.receive(&r))
		for i := range r.Results {
			outcomes[codes.Code(r.Results[i].Code)]++
		}
		answered += len(r.Results)
	}
	require.Equal(t, map[codes.Code]int{codes.OK: together, codes.Unauthenticated: calls - together}, outcomes)
}

// A method without a rule is not served, and neither is any other.
func TestAMethodWithoutARuleKeepsTheServerFromStarting(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	careless := func(s *service.Server) service.Protocol {
		s.Method("Careless", service.Reads, 0)
		return newLines(s)
	}
	s := service.New(store, service.Options{}, careless)
	l := bufconn.Listen(1)
	require.ErrorContains(t, s.Serve(l), "method Careless has no rule")
	_, err := l.Dial()
	require.Error(t, err, "it does not listen")
	require.NoError(t, s.Shutdown(testContext(t)))
}

// Only one token in one header signs in, and what does not exist needs one too.
func TestOddTokensAndHeadersSignNobodyIn(t *testing.T) {
	app := &client{name: "app", read: []string{""}, write: []string{""}}
	f, _, _ := matrix(t, []*client{app})
	get := func(headers ...string) codes.Code {
		ctx := metadata.NewOutgoingContext(context.Background(), metadata.Pairs(headers...))
		_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("k")})
		return status.Code(err)
	}
	assert.Equal(t, codes.NotFound, get("authorization", "Bearer "+app.token))
	assert.Equal(t, codes.NotFound, get("authorization", "bearer  "+app.token+" "))
	for _, headers := range [][]string{
		{}, {"authorization", app.token}, {"authorization", "Basic " + app.token}, {"authorization", "Bearer"}, {"authorization", "Bearer "},
		{"authorization", "Bearer " + app.token, "authorization", "Bearer " + app.token}, {"x-authorization", "Bearer " + app.token},
	} {
		assert.Equal(t, codes.Unauthenticated, get(headers...), "%v", headers)
	}
	for _, name := range []string{"/kvd.v1.KVService/Nonsense", "/kvd.v1.Nonsense/Get", "/grpc.health.v2.Health/Check"} {
		err := f.conn.Invoke(context.Background(), name, &kvdpb.GetRequest{}, &kvdpb.GetResponse{})
		assert.Equal(t, codes.Unauthenticated, status.Code(err), name)
		err = f.conn.Invoke(app.context(), name, &kvdpb.GetRequest{}, &kvdpb.GetResponse{})
		assert.Equal(t, codes.Unimplemented, status.Code(err), name)
	}
}

// gRPC does not perform a method whose path lacks the first slash, whoever asks.
func TestAPathWithoutItsSlashIsNoMethod(t *testing.T) {
	admin := &client{name: "admin", read: []string{""}, admin: true}
	reader := &client{name: "reader", read: []string{""}}
	f, _, _ := matrix(t, []*client{admin, reader})
	for c, want := range map[*client]codes.Code{admin: codes.Unimplemented, reader: codes.PermissionDenied, {name: "nobody"}: codes.Unauthenticated} {
		conn, err := f.listener.Dial()
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(testwait.Deadline()))
		_, err = io.WriteString(conn, http2.ClientPreface)
		require.NoError(t, err)
		framer := http2.NewFramer(conn, conn)
		framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		require.NoError(t, framer.WriteSettings())
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		fields := []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "kvd"},
			{Name: ":path", Value: kvdpb.AdminService_ListSlowRequests_FullMethodName[1:]},
			{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
		}
		if c.token != "" {
			fields = append(fields, hpack.HeaderField{Name: "authorization", Value: "Bearer " + c.token})
		}
		for _, field := range fields {
			require.NoError(t, encoder.WriteField(field))
		}
		require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}))
		require.NoError(t, framer.WriteData(1, true, make([]byte, 5)))
		got := ""
		for got == "" {
			read, err := framer.ReadFrame()
			require.NoError(t, err)
			if headers, ok := read.(*http2.MetaHeadersFrame); ok {
				for _, field := range headers.Fields {
					if field.Name == "grpc-status" {
						got = field.Value
					}
				}
			}
		}
		assert.Equal(t, strconv.Itoa(int(want)), got, c.name)
		require.NoError(t, conn.Close())
	}
}
