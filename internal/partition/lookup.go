package partition

import (
	"bytes"
	"slices"
	"sync"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/sstable"
)

// queryPool holds the scratch of lookupTables.
var queryPool = sync.Pool{New: func() any { return new([]sstable.Query) }}

// lookupTables answers reads from the tables, run by run from new to old. It
// reorders reads.
func (p *Partition) lookupTables(l *levels, reads []*kv.Lookup, at kv.SeqNum) {
	// In the order of keys, the queries of one table of a run lie together.
	if len(reads) > 1 {
		slices.SortFunc(reads, func(a, b *kv.Lookup) int { return bytes.Compare(a.Key, b.Key) })
	}
	scratch := queryPool.Get().(*[]sstable.Query)
	queries := (*scratch)[:0]
	for _, r := range reads {
		queries = append(queries, sstable.Query{Key: r.Key, Hash: r.Hash, At: at, Budget: r.Budget, Value: r.Value})
	}
	l.runs(func(r *run) bool {
		r.lookup(queries)
		return slices.ContainsFunc(queries, func(q sstable.Query) bool { return !q.Done })
	})
	p.readApart(queries)
	for i, r := range reads {
		finish(r, &queries[i])
	}
	clear(queries) // the keys and values are the asker's
	*scratch = queries
	queryPool.Put(scratch)
}

// finish turns the state of a query after the walk into the read's answer.
func finish(r *kv.Lookup, q *sstable.Query) {
	switch {
	case q.Err != nil:
		r.Value, r.Err = nil, q.Err
	case q.Done && q.Kind == kv.KindPut:
		r.Found, r.Value, r.Version, r.Expiry = true, q.Value, q.Seq, q.Expiry
		if r.Value == nil {
			r.Value = []byte{} // an empty value is a value
		}
	default:
		r.Value = nil
	}
}

// lookup asks the tables of the run; queries are in the order of their keys.
func (r *run) lookup(queries []sstable.Query) {
	if len(queries) == 1 {
		if i := r.find(queries[0].Key); i >= 0 {
			r.readers[i].Get(&queries[0])
		}
		return
	}
	for first := 0; first < len(queries); {
		i := r.find(queries[first].Key)
		end := first + 1
		if i < 0 {
			first = end
			continue
		}
		for end < len(queries) && bytes.Compare(queries[end].Key, r.metas[i].Largest) <= 0 {
			end++
		}
		r.readers[i].GetBatch(queries[first:end])
		first = end
	}
}
