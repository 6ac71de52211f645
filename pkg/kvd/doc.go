// Package kvd is the Go client of a kvd server, a durable key/value store.
//
//	db, err := kvd.Open("127.0.0.1:7070")
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	if err := db.Put(ctx, []byte("user/1"), []byte("Ada"), kvd.Durable(kvd.Sync)); err != nil {
//		return err
//	}
//	value, err := db.Get(ctx, []byte("user/1")) // errors.Is(err, kvd.ErrNotFound) if absent
//	for item, err := range db.Scan(ctx, kvd.Prefix([]byte("user/"))) {
//		if err != nil {
//			return err
//		}
//		fmt.Printf("%s = %s\n", item.Key, item.Value)
//	}
//
// # Calls
//
//	read                     Get, GetItem, GetMany, Scan                (Reader)
//	write                    Put, Delete, DeleteRange                   (Writer)
//	write, and learn         PutItem, DeleteItem: version, previous item
//	options of writes        Durable, TTL, IfAbsent, IfPresent, IfVersion, IfValue
//	options of reads         AtVersion, Stale, MinVersion
//	many writes, all or none Batch with Apply
//	compare, then, else      Execute
//	many calls, one caller   Pipeline
//	many reads, one version  Snapshot, View
//	read, decide, write      Update, Transact, Begin
//	observe                  Timed, WithHook, SlowRequests, Ping
//	operate                  Client.Backup, Client.Scrub, Client.SetSetting, Client.Cluster
//
// A [Client], a [Snapshot] and a [Txn] are each a [Reader]; a Client and a Txn are each a
// [Writer]. A Client is a [Store]; package embed opens a Store in this process, and package
// kvdtest a server in memory for tests. Make one Client and share it: it puts the
// operations of concurrent callers into common frames, without a timer, and sends a lone
// operation at once.
//
// # Promises
//
//   - Time: a call returns when it has its answer, when its context ends, or, if the
//     context has no deadline, after the client's timeout (5 s; see [WithTimeout]).
//   - Slices: arguments may be changed as soon as a call returns; the caller owns results.
//   - Order: every operation takes effect atomically between its start and its end. Calls of
//     one goroutine take effect in order, concurrent calls in any order.
//   - Durability: a write that returned nil is as durable as it asked for. The default is
//     the server's, which is Sync unless set otherwise.
//   - Exactly once: such a write was applied once, however often it was sent. Each write
//     has a request id, which the server remembers, also across restarts.
//   - Errors: a write that returned an error was not applied and will not be, except after
//     [ErrUncertain]: it may have been applied, or may be a little later. To call again is
//     a new write, so read first, or write under a condition.
//   - Versions: each write has a version above those of all earlier writes.
//   - Transactions are strictly serializable. They take no locks: at commit one conflicts
//     if a key or range that it read was written since, and Update runs it again.
//   - Overload: the server refuses what it has no room for, with [ErrOverloaded], before it
//     does anything. The client retries after the time that the server asked for. Each
//     success earns a tenth of a retry, so that retries stay a small part of the load.
//
// # A cluster
//
// A client of several addresses finds the node that leads, and sends it all calls. A client of one
// address reads from that node, and sends it writes, which the node has the leader perform; such a
// write travels by itself. So do the writes of a client of several addresses while the node that leads
// has none of them, after each has refused them. While there is no leader a write waits for one: some
// five seconds, or until the deadline of the call, and then returns [ErrReadOnly]. Reads see all that was acknowledged before, on every node, unless [Stale]
// allows them less. A client keeps to one incarnation of the cluster: if a majority of the nodes was lost
// and the cluster recovered from what was left, its calls return [ErrRecovered].
//
// Every error is an [*Error] that matches one of the sentinels below with errors.Is, or
// context.Canceled or context.DeadlineExceeded. Messages are for people.
//
// # Transport
//
// Reads by key, Puts and Deletes travel in compact frames, on connections of their own or,
// where a proxy passes only gRPC, in a stream of gRPC. Large values and all other calls
// are calls of gRPC. Operations share a frame if their answers wait for the same thing: reads
// with reads, writes with writes of the same durability.
package kvd
