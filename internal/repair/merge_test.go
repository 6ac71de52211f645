package repair

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/vfs"
)

var update = flag.Bool("update", false, "write the golden file of the report anew")

// newTablesHistory makes a store whose tables begin at different keys, with range deletes over
// all of them.
func newTablesHistory(t testing.TB) *history {
	h := &history{t: t, disk: vfs.NewMem()}
	h.open()
	h.files = map[string][]byte{}
	for from := 0; from < 180; from += 60 {
		for i := from; i < from+60; i++ {
			h.put(i, "first")
		}
		if from == 120 {
			h.delRange(20, 150)
			h.delRange(40, 100)
			h.put(70, "second")
		}
		require.NoError(t, h.e.Flush(t.Context()))
	}
	h.put(90, "in the log")
	h.delRange(160, 170)
	h.close()
	h.closed()
	return h
}

// Many small tables are made, also where range tombstones are cut, and the writes of the log
// do not fit into memory at once. Nothing is missing, since all tables are there.
func TestAMergeOfManyTables(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]*history{"all kinds": newHistory(t), "range deletes": newTablesHistory(t)} {
		disk := h.disk.KillImage()
		for _, name := range h.named("MANIFEST-") {
			replace(t, disk, name, nil)
		}
		r := h.judge(disk, Options{MemoryBytes: 1, tableBytes: 1})
		require.Len(t, r.Losses, partitions, "which tables counted is not known")
		tables, deletes := 0, 0
		for id := range partitions {
			v, err := manifest.Load(disk, descriptor.PartitionDir(repairedDir, id), uint32(id))
			require.NoError(t, err)
			require.Len(t, v.Deltas, 1)
			tables += len(v.Deltas[0])
			for i := range v.Deltas[0] {
				deletes += int(v.Deltas[0][i].Deletes)
			}
		}
		require.Greater(t, tables, partitions, name)
		require.Greater(t, deletes, 3*partitions, "%s: range deletes are cut", name)
		r.Losses = nil
		h.requireRepaired(disk, r)
	}
}

// The log still has what a lost table had.
func TestTheLogReplacesALostTable(t *testing.T) {
	h := &history{t: t, disk: vfs.NewMem()}
	h.open()
	for i := range 40 {
		h.put(i, "first")
	}
	h.delRange(5, 8)
	unflushed := h.disk.KillImage()
	require.NoError(t, h.e.Flush(t.Context()))
	h.close()
	h.closed()
	disk := h.disk.KillImage()
	for _, name := range append(h.named(".sst"), h.named(".val")...) {
		replace(t, disk, name, nil)
	}
	for _, name := range h.named(".wal") { // perhaps the log was trimmed after the flush
		replace(t, disk, name, nil)
	}
	for name, content := range filesOf(t, unflushed, descriptor.LogDir(damagedDir)) {
		replace(t, disk, name, content)
	}
	r := h.judge(disk, Options{})
	require.NotEmpty(t, r.Losses, "that the log had everything is not known")
	r.Losses = nil
	h.requireRepaired(disk, r)
}

// A merge dropped a put with the delete that hid it. The log still has the put, but its delete
// is in a damaged frame: the put stays away, in the new store and in one that is made of that.
// A put that a table has counts, also if only the log has its value, and a put that a lost
// part of a table may have had counts, too.
func TestTheLogDoesNotBringBackWhatAMergeDropped(t *testing.T) {
	h := &history{t: t, disk: vfs.NewMem()}
	h.open()
	for i := range 150 {
		h.put(i, "first")
	}
	for i := 0; i < 150; i += 3 {
		h.del(i)
	}
	unflushed := h.disk.KillImage()
	require.NoError(t, h.e.CompactAll(t.Context()))
	h.close()
	h.closed()
	damaged := h.disk.KillImage()
	for _, name := range h.named(".wal") {
		replace(t, damaged, name, nil)
	}
	log := filesOf(t, unflushed, descriptor.LogDir(damagedDir))
	segments := slices.Sorted(maps.Keys(log))
	for i := 0; i < 100; i += 6 { // each partition flushed later writes, too
		for _, name := range slices.Backward(segments) {
			if at := bytes.LastIndex(log[name], []byte(keyOf(i))); at >= 0 {
				log[name][at] ^= 1 // the delete
				break
			}
		}
	}
	for name, content := range log {
		replace(t, damaged, name, content)
	}
	damage := func(disk *vfs.Mem, dir, suffix string) {
		for name, content := range filesOf(t, disk, dir) {
			if strings.HasSuffix(name, suffix) {
				content = bytes.Clone(content)
				content[len(content)/3] ^= 1
				replace(t, disk, name, content)
			}
		}
	}
	for _, kind := range []string{".sst", ".val"} {
		disk := damaged.KillImage()
		damage(disk, damagedDir, kind)
		r := h.judge(disk, Options{})
		if kind == ".val" {
			require.Empty(t, r.Losses, "the log has the values")
		}

		// A second repair knows nothing of the damage of the log.
		damage(disk, repairedDir, ".sst")
		second, err := Run(t.Context(), disk, repairedDir, "again", Options{})
		require.NoError(t, err)
		second.Losses = append(second.Losses, r.Losses...)
		require.NotEmpty(t, second.Losses)
		again := disk.KillImage()
		for name := range filesOf(t, again, repairedDir) {
			replace(t, again, name, nil)
		}
		for name, content := range filesOf(t, disk, "again") {
			replace(t, again, repairedDir+strings.TrimPrefix(name, "again"), content)
		}
		h.requireRepaired(again, second)
	}
}

// A write that the client sends again is recognised by the new store.
func TestRequestIDsAreKept(t *testing.T) {
	h := &history{t: t, disk: vfs.NewMem()}
	h.open()
	named := buffered
	named.RequestID = kv.RequestID{ClientID: 7, Sequence: 1}
	version, err := h.e.Put(t.Context(), []byte(keyOf(1)), []byte("once"), named)
	require.NoError(t, err)
	h.note(version, err, kv.Op{Kind: kv.KindPut, Key: []byte(keyOf(1)), Value: []byte("once")})
	for i := 2; i < 40; i++ {
		h.put(i, "other")
	}
	h.close()
	h.closed()
	disk := h.disk.KillImage()
	name := h.named(".wal")[0]
	content := bytes.Clone(h.files[name])
	content[bytes.LastIndex(content, []byte("other 39"))] ^= 1
	replace(t, disk, name, content)
	r := h.judge(disk, Options{})
	require.NotEmpty(t, r.Losses)

	o := testOptions(disk)
	e, err := engine.Open(repairedDir, o)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	named.RequestID.Retried = true
	second, err := e.Put(t.Context(), []byte(keyOf(1)), []byte("once"), named)
	require.NoError(t, err)
	require.Equal(t, version, second, "it is answered with the version of the first attempt")
	later, err := e.Put(t.Context(), []byte(keyOf(2)), []byte("later"), buffered)
	require.NoError(t, err)
	require.Greater(t, later, h.writes[len(h.writes)-1].version, "no version is given out twice")
}

// Without STORE, the partition count follows from the places of the keys, also if the last
// directory is lost too.
func TestThePartitionCountIsDerived(t *testing.T) {
	h := newHistory(t)
	disk := h.disk.KillImage()
	replace(t, disk, descriptor.Path(damagedDir), nil)
	last := descriptor.PartitionDir(damagedDir, partitions-1)
	for name := range filesOf(t, disk, last) {
		require.NoError(t, disk.Remove(name))
	}
	require.NoError(t, disk.Remove(last))
	r := h.judge(disk, Options{})
	require.Equal(t, partitions, r.Partitions)

	_, err := Run(t.Context(), disk, damagedDir, "again", Options{Partitions: 1})
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.ErrorContains(t, err, "there is a directory of partition 1")
}

// The JSON form has a version, and is read back as it was written. Update the golden file
// with -update.
func TestTheJSONFormOfAReport(t *testing.T) {
	r := Report{
		Version: ReportVersion, Source: "a", Target: "b", StoreID: "00000000000000ff", Partitions: 16,
		Files: []File{
			{Path: "wal/000001.wal", Bytes: 4096, Action: Salvaged, Damage: []Damage{{Offset: 512, Bytes: 64, Reason: "frame fails its checksum"}}},
			{Path: "p-0000/000012.sst", Bytes: 999, Action: Salvaged, Entries: 10, Blocks: 2},
		},
		Losses: []Loss{
			{Partition: 3, FirstKey: Key("a\x00\\"), LastKey: Key("ä"), FirstVersion: 1, LastVersion: 7, Entries: 2, File: "p-0003/000012.sst", Reason: "r"},
			{Partition: 4, FirstVersion: 8, LastVersion: kv.MaxSeqNum, File: "wal", Reason: "r"},
		},
		Notes: []string{"n"}, Entries: 5, Records: 6, LastSeq: 7,
	}
	inPlace := r
	inPlace.Target, inPlace.BackupVersion, inPlace.Filled = r.Source, 6, 5
	inPlace.InPlace = &InPlaceReport{Done: true, Aside: "aside", Replaced: 4, Hidden: 3, Ranges: 2}
	for golden, c := range map[string]struct {
		report Report
		says   []string
	}{
		"report.json": {r, []string{"2 LOSSES", `'a\x00\\' to 'ä'`, "1 to 7", "at most 2", "from 8 on", "note: n", "1 of 2 files"}},
		"report-in-place.json": {inPlace, []string{
			"2 LOSSES", "replaced tables: 4", "restored keys from the backup of version 6: 5", "of 3 keys", "in 2 ranges", "are in aside",
		}},
	} {
		data, err := json.MarshalIndent(&c.report, "", "  ")
		require.NoError(t, err)
		golden = filepath.Join("testdata", "v1", golden)
		if *update {
			require.NoError(t, os.WriteFile(golden, append(data, '\n'), 0o600))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), string(data)+"\n")
		var back Report
		require.NoError(t, json.Unmarshal(want, &back))
		require.Equal(t, c.report, back)

		var text bytes.Buffer
		require.NoError(t, c.report.Write(&text))
		for _, says := range c.says {
			require.Contains(t, text.String(), says)
		}
	}
}
