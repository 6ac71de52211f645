package keyhash

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func put(key, value string) kv.Op {
	return kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value)}
}

// contents holds the hashes of writes that differ in their effect.
func contents() map[string]uint64 {
	expiring := put("k", "v")
	expiring.Expiry = 7
	one := []kv.Op{put("k", "v")}
	return map[string]uint64{
		"a put":               Content(one),
		"another value":       Content([]kv.Op{put("k", "w")}),
		"another key":         Content([]kv.Op{put("l", "v")}),
		"moved bytes":         Content([]kv.Op{put("kv", "")}),
		"a delete":            Content([]kv.Op{{Kind: kv.KindDelete, Key: []byte("k")}}),
		"a range delete":      Content([]kv.Op{{Kind: kv.KindRangeDelete, Key: []byte("k"), Value: []byte("v")}}),
		"one that expires":    Content([]kv.Op{expiring}),
		"two":                 Content([]kv.Op{put("k", "v"), put("l", "v")}),
		"the other way round": Content([]kv.Op{put("l", "v"), put("k", "v")}),
		"twice":               Content([]kv.Op{put("k", "v"), put("k", "v")}),
	}
}

func TestContentTellsWritesApart(t *testing.T) {
	seen := map[uint64]string{}
	for name, content := range contents() {
		require.NotZero(t, content, name)
		require.NotContains(t, seen, content, "%s and %s", name, seen[content])
		seen[content] = name
	}
}

// The hash excludes what a retry may change.
func TestContentIsThatOfARetry(t *testing.T) {
	first, again := put("k", "v"), put("k", "v")
	first.Expiry, again.Expiry = 1000, 2000
	require.Equal(t, Content([]kv.Op{first}), Content([]kv.Op{again}))
	require.Equal(t, Content([]kv.Op{first}), ContentOne(&again, Sum(again.Key)))
}

// The values are stored in logs.
func TestContentGolden(t *testing.T) {
	all := contents()
	for name, want := range map[string]uint64{
		"a put":          0x19217613f07359a3,
		"a range delete": 0x08377df5a760c39a,
		"two":            0xee6a6a428c5fc197,
	} {
		assert.Equal(t, want, all[name], "%s: %#x", name, all[name])
	}
}

func BenchmarkContentOne(b *testing.B) {
	op := put("key", string(make([]byte, 128)))
	hash := Sum(op.Key)
	for b.Loop() {
		ContentOne(&op, hash)
	}
}
