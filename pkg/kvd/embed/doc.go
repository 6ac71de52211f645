// Package embed opens a kvd store in this process, without a server:
//
//	db, err := embed.Open("data")
//	defer db.Close()
//	err = db.Put(ctx, []byte("hello"), []byte("world"))
//
// A [Store] has every call of a kvd.Client, with the same options, promises and errors:
// reads, writes, batches, transactions, snapshots, scans, pipelines. It is a kvd.Store, and
// so is a client of a server. The directory is that of kvd serve: what was written here can
// be served later, and the other way round, by one process at a time.
//
// # What is different
//
//   - A call has no timeout of its own: it ends when its work or its context does.
//   - Nothing is sent twice, so there are no attempts to wait for. ErrOverloaded comes at
//     once where a client of a server first tries again.
//   - ErrUncertain means that the context ended, or the disk failed, while the log was
//     written.
//   - Timed fills in the stages of the store. ClientQueue, Network, Gate, Reply, Return and
//     FrameOps stay 0.
//   - SlowRequests is ErrInvalid: a store in this process keeps no slow log.
//   - Cluster, TransferLeadership, AddNode, RemoveNode and MoveNode are ErrInvalid: a store in
//     this process is no node of a cluster.
//   - SetSetting is ErrInvalid: the options of Open are those of the store until Close.
//   - A panic of the engine, which is a bug, ends the process even if a caller recovers:
//     what the engine's locks guard may be half changed.
//
// # Which one
//
// Embed a store that one program owns. Run a server if several processes use it, if it has
// to stay up while programs are replaced, or if its memory should be apart from theirs.
// The service also has what this package leaves out: metrics, the slow log, health checks,
// admission of many clients by turns, and a bound of the process's memory as a whole.
package embed
