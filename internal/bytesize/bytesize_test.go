package bytesize_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/bytesize"
)

func TestSizesAreReadAndSpelled(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "1B": 1, "64KiB": 64 << 10, "256MiB": 256 << 20, "3GiB": 3 << 30, "1TiB": 1 << 40,
	} {
		n, err := bytesize.Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, n)
		again, err := bytesize.Parse(bytesize.Format(n))
		require.NoError(t, err)
		assert.Equal(t, n, again)
	}
	assert.Equal(t, "1025B", bytesize.Format(1025))
	assert.Equal(t, "1536MiB", bytesize.Format(3<<29))
	for _, text := range []string{"", "0", "-1", "1.5GiB", "1 GiB", "MiB", "9223372036854775807TiB", "5MB"} {
		_, err := bytesize.Parse(text)
		require.Error(t, err, text)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("64MiB")
	f.Add("9223372036854775807TiB")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := bytesize.Parse(text)
		if err != nil {
			return
		}
		require.Positive(t, n)
		again, err := bytesize.Parse(bytesize.Format(n))
		require.NoError(t, err)
		require.Equal(t, n, again)
	})
}
