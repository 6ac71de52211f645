package frameapi

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/rawconn"
	"github.com/kvd-db/kvd/internal/service/servicetest"
)

// A buffer is borrowed when something has come, and given back before the wait.
func TestAnInputWaitsWithoutABuffer(t *testing.T) {
	for name, test := range servicetest.EndsOfWaits {
		t.Run(name, func(t *testing.T) {
			server, client := servicetest.TCPPair(t)
			in := newInput(server, rawconn.New(server))
			assert.Nil(t, in.buffered)
			for range 2 {
				_, err := io.WriteString(client, "abcdef")
				require.NoError(t, err)
				require.NoError(t, in.wait())
				if in.buffered.Buffered() < 6 { // it may come in parts, and be waited for with a buffer
					_, err := in.buffered.Peek(6)
					require.NoError(t, err)
				}
				require.NoError(t, in.wait(), "there is something still")
				for _, want := range []string{"abc", "def"} {
					part := make([]byte, 3)
					_, err = io.ReadFull(in.buffered, part)
					require.NoError(t, err)
					assert.Equal(t, want, string(part))
				}
			}
			if test.End == nil {
				require.NoError(t, client.Close())
				assert.True(t, test.Want(in.wait()))
				in.release()
				assert.Nil(t, in.buffered)
				return
			}
			waits := make(chan error, 1)
			go func() { waits <- in.wait() }()
			require.NoError(t, test.End(server, client))
			err := <-waits
			assert.True(t, test.Want(err), "%v", err)
			in.release()
			assert.Nil(t, in.buffered)
			in.release()
		})
	}
}

// The frame that begins after a wait that had ended by its deadline is read whole.
func TestAnInputGoesOnBehindADeadline(t *testing.T) {
	server, client := servicetest.TCPPair(t)
	in := newInput(server, rawconn.New(server))
	require.NoError(t, server.SetReadDeadline(time.Now().Add(-time.Second)))
	require.Error(t, in.wait())
	require.NoError(t, server.SetReadDeadline(time.Time{}))
	long := make([]byte, 3*rawReadBytes)
	for i := range long {
		long[i] = byte(i % 251)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write(long)
		sent <- err
	}()
	require.NoError(t, in.wait())
	got := make([]byte, len(long))
	_, err := io.ReadFull(in.buffered, got)
	require.NoError(t, err)
	assert.Equal(t, long, got)
	require.NoError(t, <-sent)
}

// Where only a read shows that something has arrived the buffer is kept.
func TestAnInputOfNoSocketKeepsItsBuffer(t *testing.T) {
	server, client := net.Pipe()
	in := newInput(server, rawconn.New(server))
	kept := in.buffered
	require.NotNil(t, kept)
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(client, "abc")
		sent <- err
	}()
	require.NoError(t, in.wait())
	require.NoError(t, <-sent)
	_, err := in.buffered.Discard(3)
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.ErrorIs(t, in.wait(), io.EOF)
	in.release()
	assert.Same(t, kept, in.buffered)
	require.NoError(t, server.Close())
}
