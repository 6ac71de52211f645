package verify_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/verify"
)

// The reason that a table is another one goes to logs and to clients: it has no keys.
func TestATableThatIsAnotherIsDescribedWithoutKeys(t *testing.T) {
	want := kv.TableMeta{Num: 12, Size: 100, Entries: 3, Smallest: []byte("secret-a"), Largest: []byte("secret-b"), MinSeq: 1, MaxSeq: 9}
	for _, change := range []func(*kv.TableMeta){
		func(m *kv.TableMeta) { m.Largest = []byte("secret-c") },
		func(m *kv.TableMeta) { m.Smallest = []byte("secret-0") },
		func(m *kv.TableMeta) { m.Entries++ },
	} {
		got := want
		require.NoError(t, verify.MatchTable("000012.sst", &got, &want))
		change(&got)
		err := verify.MatchTable("000012.sst", &got, &want)
		require.ErrorIs(t, err, kv.ErrCorrupt)
		require.NotContains(t, err.Error(), "secret")
		require.Equal(t, got.Entries == want.Entries, strings.Contains(err.Error(), "its first or last key is another"))
	}
}
