package embed

import (
	"context"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// What one call of the engine has of a pipeline: as much as a batch may have by default.
// More would hold up the writes of others.
const (
	callOps   = 4096
	callBytes = 8 << 20
)

// OperateAll implements backend.Backend. Reads are performed before writes, each kind in as
// few calls of the engine as it takes.
func (l *local) OperateAll(ctx context.Context, ops []*backend.Operation) {
	writes := ops
	if slices.ContainsFunc(ops, isRead) {
		reads := make(map[backend.ReadVersion][]*backend.Operation)
		writes = nil
		for _, o := range ops {
			if isRead(o) {
				reads[o.Op.At] = append(reads[o.Op.At], o)
			} else {
				writes = append(writes, o)
			}
		}
		for at, ops := range reads {
			inCalls(ops, func(ops []*backend.Operation) { l.getAll(ctx, at, ops) })
		}
	}
	inCalls(writes, func(ops []*backend.Operation) { l.writeAll(ctx, ops) })
}

func isRead(o *backend.Operation) bool { return o.Op.Kind == backend.Get }

// inCalls calls f with some of the operations at a time.
func inCalls(ops []*backend.Operation, f func([]*backend.Operation)) {
	first, bytes := 0, 0
	for i, o := range ops {
		size := len(o.Op.Key) + len(o.Op.Value)
		if i-first == callOps || i > first && bytes+size > callBytes {
			f(ops[first:i])
			first, bytes = i, 0
		}
		bytes += size
	}
	if first < len(ops) {
		f(ops[first:])
	}
}

// getAll performs independent reads at one version or, if that is none, each of the newest
// state.
func (l *local) getAll(ctx context.Context, at backend.ReadVersion, ops []*backend.Operation) {
	version, err := l.version(at)
	lookups := make([]kv.Lookup, len(ops))
	reads := make([]*kv.Lookup, 0, len(ops))
	var stages trace.Stages
	timed := false
	for i, o := range ops {
		if keyErr := l.limits.CheckKey(o.Op.Key); keyErr != nil {
			o.Err = failure(keyErr)
			continue
		}
		lookups[i].Key = o.Op.Key
		timed = timed || o.Timings != nil
		reads = append(reads, &lookups[i])
	}
	if err == nil && len(reads) > 0 {
		if timed {
			reads[0].Stages = &stages
		}
		if version == 0 {
			err = l.engine.Lookup(ctx, reads)
		} else {
			_, err = l.engine.LookupAt(ctx, reads, version)
		}
		err = failure(err)
	}
	for i, o := range ops {
		switch {
		case o.Err != nil:
		case err != nil:
			o.Err = err
		default:
			o.Answer.Version = uint64(lookups[i].ReadVersion)
			o.Answer.Value, o.Err = l.value(&lookups[i], nil)
			o.Answer.Found = o.Err == nil
			tell(o.Timings, &stages)
		}
	}
}
