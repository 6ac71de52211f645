package main

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/testwait"
)

func newTrial(t *testing.T, out *bytes.Buffer) *trial {
	return &trial{out: out, dir: t.TempDir(), bytes: 48 << 10, rounds: 1, diskMBs: 290}
}

func TestRunPrintsALinePerCorpusAndCodec(t *testing.T) {
	var out bytes.Buffer
	trial := newTrial(t, &out)
	require.NoError(t, trial.run())
	require.NoDirExists(t, trial.dir, "it cleans up")
	for _, k := range kinds {
		for _, d := range k.data {
			for _, size := range k.sizes {
				_, table, found := strings.Cut(out.String(), "\n\n"+k.title(size)+", "+d.name+": ")
				require.True(t, found, out.String())
				table, _, _ = strings.Cut(table, "\n\n")
				lines := strings.Split(strings.TrimSpace(table), "\n")[3:]
				names := []string{"none", "s2", "s2 better", "s2 dict", "zstd fastest", "zstd default", "zstd dict"}
				require.Len(t, lines, len(names), table)
				for i, name := range names {
					require.True(t, strings.HasPrefix(lines[i], name+" "), table)
					require.Len(t, strings.Fields(lines[i]), 8+len(strings.Fields(name)), table)
				}
			}
		}
	}
}

func TestEachCodecReturnsWhatItWasGiven(t *testing.T) {
	random := make([]byte, 5000)
	_, err := rand.NewChaCha8([32]byte{2}).Read(random)
	require.NoError(t, err)
	text := []byte(strings.Repeat(`{"id":1234,"name":"Ada Wang"}`, 500))
	all, err := newCodecs(text[:1000])
	require.NoError(t, err)
	defer func() { require.NoError(t, all.close()) }()
	for _, c := range all.all {
		for _, src := range [][]byte{{}, {7}, random, text, text[:100]} {
			stored, encoded := c.store(nil, src)
			if len(src) == len(text) {
				require.Equal(t, c.name != "none", encoded, c.name)
			}
			if !encoded {
				require.Equal(t, src, stored, c.name)
				continue
			}
			require.LessOrEqual(t, len(stored), len(src)*7/8, c.name)
			got, err := c.decode(nil, stored)
			require.NoError(t, err, c.name)
			require.Equal(t, src, got, c.name)
		}
	}
}

func TestAShelfNoticesDamage(t *testing.T) {
	s, err := newShelf(t.TempDir()+"/shelf", codec{name: "none"}, [][]byte{[]byte("piece")})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()
	_, err = s.file.WriteAt([]byte("x"), 0)
	require.NoError(t, err)
	s.read(0)
	require.ErrorContains(t, s.err, "checksum")
}

// TestBlocksAreThoseOfATable: each block begins with the number of its entries.
func TestBlocksAreThoseOfATable(t *testing.T) {
	trial := newTrial(t, nil)
	for _, d := range kinds[0].data {
		for _, size := range kinds[0].sizes {
			entries := d.entries(trial.bytes)
			c, err := blocks(trial, entries, size)
			require.NoError(t, err, d.name)
			sum := 0
			for _, p := range c.pieces {
				require.LessOrEqual(t, len(p)+blockTrailer, size)
				sum += int(binary.LittleEndian.Uint32(p))
			}
			require.Equal(t, len(entries), sum, d.name)
		}
	}
}

// TestGroupsAreThoseOfTheLog: each record has its length, 16 bytes in all, before it.
func TestGroupsAreThoseOfTheLog(t *testing.T) {
	const size = 16
	entries := counters.entries(10_000)
	var c corpus
	testwait.Until(t, func() bool { // a goroutine of the log may write a part of a group
		var err error
		c, err = groups(nil, entries, size)
		require.NoError(t, err)
		return len(c.pieces) == len(entries)/size
	})
	for _, rest := range c.pieces {
		for range size {
			end := 16 + binary.LittleEndian.Uint32(rest)
			require.NoError(t, record.Decode(rest[16:end], func(op *record.Op) error {
				require.Equal(t, entries[0].Key, op.Key)
				require.Equal(t, entries[0].Value, op.Value)
				return nil
			}))
			rest, entries = rest[end:], entries[1:]
		}
		require.Less(t, len(rest), 8, "padding")
	}
}
