package backup

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

var sample = Manifest{
	Format: 1, ID: "20261123T120000.005Z", Store: 0x0123456789abcdef, Version: 4711,
	Files: []ManifestFile{
		{"STORE", 44, 0x0123456789abcdef}, {"p-0000/CURRENT", 55, 1}, {"p-0000/000012.sst", 33 << 20, 1<<64 - 1},
	},
}

func encoded(t testing.TB, m *Manifest) []byte {
	t.Helper()
	b, err := m.Encode()
	require.NoError(t, err)
	return b
}

func TestManifestIsWhatFormatOneWrote(t *testing.T) {
	golden, err := os.ReadFile("testdata/v1/sample.backup")
	require.NoError(t, err)
	require.Equal(t, string(golden), string(encoded(t, &sample)))
	m, err := Decode("sample", golden)
	require.NoError(t, err)
	require.Equal(t, &sample, m)
	require.Equal(t, noon, m.Time())
}

func TestManifestWithADigestIsWhatFormatTwoWrote(t *testing.T) {
	golden, err := os.ReadFile("testdata/v2/sample.backup")
	require.NoError(t, err)
	m := withDigest()
	require.Equal(t, string(golden), string(encoded(t, &m)))
	again, err := Decode("sample", golden)
	require.NoError(t, err)
	require.Equal(t, &m, again)
}

func withDigest() Manifest {
	m := sample
	m.Format, m.Digest = 2, "0123456789abcdef0123456789abcdef 42"
	return m
}

func TestOnlySensibleManifestsAreAccepted(t *testing.T) {
	for what, change := range map[string]func(*Manifest){
		"format 0":         func(m *Manifest) { m.Format = 0 },
		"another format":   func(m *Manifest) { m.Format = 2 },
		"no digest":        func(m *Manifest) { m.Format, m.Digest = 2, "\x1b[2J" },
		"digest of 1":      func(m *Manifest) { m.Digest = withDigest().Digest },
		"no time":          func(m *Manifest) { m.ID = "../../x" },
		"another spelling": func(m *Manifest) { m.ID = "20261123T120000.0050Z" },
		"foreign name":     func(m *Manifest) { m.Files[1].Name = "p-0000/../x" },
		"twice":            func(m *Manifest) { m.Files[1].Name = m.Files[2].Name },
		"negative":         func(m *Manifest) { m.Files[1].Size = -1 },
		"no STORE":         func(m *Manifest) { m.Files = m.Files[1:] },
	} {
		m := sample
		m.Files = append([]ManifestFile(nil), sample.Files...)
		change(&m)
		_, err := Decode("m", encoded(t, &m))
		require.ErrorIs(t, err, kv.ErrCorrupt, what)
	}
	newer := sample
	newer.Format = 3
	_, err := Decode("m", encoded(t, &newer))
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
	_, err = Decode("m", []byte(strings.Replace(string(encoded(t, &newer)), "files", "blobs", 1)))
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion, "a newer format may look different after its first field")
}

// FuzzDecode: Encode writes exactly what Decode accepts.
func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, &sample))
	newer := withDigest()
	f.Add(encoded(f, &newer))
	f.Add([]byte("{\n \"kvd_backup\": 1,\n}"))
	f.Add([]byte(`{"kvd_backup": 99999999999999999999,`))
	f.Add([]byte(`{"xxh64":""}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode("fuzz", b)
		if err == nil {
			require.Equal(t, string(b), string(encoded(t, m)))
		}
	})
}
