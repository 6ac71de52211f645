package engine

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/vfs"
)

// sourceOf is a checkpoint of another node, in which each partition says where it stands.
type sourceOf []Position

func (s sourceOf) contents() (names []string, contents map[string]string) {
	d := descriptor.Descriptor{StoreID: 9, Partitions: len(s)}
	names, contents = []string{descriptor.Name}, map[string]string{descriptor.Name: string(d.Encode())}
	for p := range s {
		v := manifest.Version{Num: 3, Partition: uint32(p), NextFile: 9, Position: s[p].Encode()}
		name, data, current := v.Encode()
		dir := path.Base(descriptor.PartitionDir("", p))
		for file, content := range map[string][]byte{name: data, manifest.CurrentName: current} {
			names = append(names, path.Join(dir, file))
			contents[path.Join(dir, file)] = string(content)
		}
	}
	return names, contents
}

func (s sourceOf) Info() (info backup.Info) {
	names, contents := s.contents()
	for _, name := range names {
		info.Files = append(info.Files, backup.File{Name: name, Size: int64(len(contents[name]))})
	}
	return info
}

func (s sourceOf) Fetch(_ context.Context, name string, _ []uint64) (uint64, io.Reader, error) {
	_, contents := s.contents()
	sum := backup.NewSum()
	_, _ = io.WriteString(sum, contents[name])
	return sum.Sum64(), strings.NewReader(contents[name]), nil
}

// What is received has to be of a store with as many partitions, all of which stand at the place
// that was offered.
func TestWhatIsReceivedIsChecked(t *testing.T) {
	at := Position{Index: 7, Term: 2, Seq: 5, Conf: []byte("nodes")}
	other := at
	other.Index++
	check := func(s sourceOf) error {
		fsys := vfs.NewMem()
		require.NoError(t, fsys.MkdirAll("data"))
		d := descriptor.Descriptor{StoreID: 1, Partitions: 2}
		require.NoError(t, vfs.WriteAtomic(fsys, descriptor.Path("data"), d.Encode()))
		require.ErrorIs(t, CheckReceived(fsys, "data", LogBegin{7, 2}), fs.ErrNotExist)
		_, err := backup.Receive(t.Context(), s, fsys, "data", time.Unix(1_790_000_000, 0), backup.Options{})
		require.NoError(t, err)
		return CheckReceived(fsys, "data", LogBegin{7, 2})
	}
	require.NoError(t, check(sourceOf{at, at}))
	err := check(sourceOf{at, at, at})
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.ErrorContains(t, err, "has 2 partitions, that of the other node has 3")
	require.ErrorIs(t, check(sourceOf{at, other}), kv.ErrCorrupt)
	err = check(sourceOf{other, other})
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, fmt.Sprint("of index ", other.Index))
}
