package certificate_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/vfs"
)

const cluster = 0x0123_4567_89ab_cdef

func TestNamesOfNodes(t *testing.T) {
	n := certificate.Node{Cluster: cluster, ID: 3}
	require.Equal(t, "kvd-node:0123456789abcdef/3", n.String())
	got, err := certificate.ParseNode(n.String())
	require.NoError(t, err)
	require.Equal(t, n, got)
	for _, s := range []string{
		"", "kvd-node:", "kvd:0123456789abcdef/3", "kvd-node:0123456789abcdef", "kvd-node:0123456789abcdef/", "kvd-node:0123456789abcdef/0",
		"kvd-node:0123456789abcdef/03", "kvd-node:0123456789ABCDEF/3", "kvd-node:123456789abcdef/3", "kvd-node:0123456789abcdef/3/4",
		"kvd-node://0123456789abcdef/3", "kvd-node:0123456789abcdeg/3",
	} {
		_, err := certificate.ParseNode(s)
		require.ErrorContains(t, err, "is no name of a node", s)
	}
	_, err = certificate.NodeOf(&x509.Certificate{URIs: []*url.URL{n.URI(), n.URI()}})
	require.ErrorContains(t, err, "has 2 URIs, want one")
}

func FuzzParseNode(f *testing.F) {
	f.Add(certificate.Node{Cluster: cluster, ID: 3}.String())
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := certificate.ParseNode(s); err == nil {
			require.Equal(t, s, n.String())
		}
	})
}

// node returns the TLS of one node of a set.
func node(t *testing.T, ca []byte, pair certificate.Pair) *certificate.Server {
	fsys := vfs.NewMem()
	for name, data := range map[string][]byte{"server.pem": pair.Certificate, "server.key": pair.Key, "ca.pem": ca} {
		require.NoError(t, vfs.WriteAtomic(fsys, name, data))
	}
	s, err := certificate.Open(fsys, files, func(error) {})
	require.NoError(t, err)
	return s
}

// Nodes are clients and servers of each other, whatever their addresses.
func TestNodes(t *testing.T) {
	ca, pairs, err := certificate.DevNodes(cluster, []uint64{1, 2}, time.Now(), time.Hour)
	require.NoError(t, err)
	one, two := node(t, ca, pairs[1]), node(t, ca, pairs[2])
	errOther := errors.New("another node")
	want := certificate.Node{Cluster: cluster, ID: 2}
	check := func(n certificate.Node) error {
		if n != want {
			return errOther
		}
		return nil
	}
	_, client, err := one.Nodes("h2", check)
	require.NoError(t, err)
	server, _, err := two.Nodes("h2", nil)
	require.NoError(t, err)
	state, err := shake(server, client)
	require.NoError(t, err)
	require.Equal(t, "h2", state.NegotiatedProtocol)

	want.ID = 9
	_, err = shake(server, client)
	require.ErrorIs(t, err, errOther)
	want.ID = 2

	// Another authority, on either side; a client without a certificate; a server that is no node.
	otherCA, others, err := certificate.DevNodes(cluster, []uint64{1, 2}, time.Now(), time.Hour)
	require.NoError(t, err)
	stranger, strangers, err := func() (*tls.Config, *tls.Config, error) {
		s, _, err := node(t, otherCA, others[2]).Nodes("h2", nil)
		if err != nil {
			return nil, nil, err
		}
		_, c, err := node(t, otherCA, others[1]).Nodes("h2", check)
		return s, c, err
	}()
	require.NoError(t, err)
	_, err = shake(stranger, client)
	require.Error(t, err)
	_, err = shake(server, strangers)
	require.Error(t, err)
	_, err = shake(server, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	require.Error(t, err)
	fsys := vfs.NewMem()
	set := write(t, fsys, time.Hour)
	plain, err := certificate.Open(fsys, files, func(error) {})
	require.NoError(t, err)
	_, client, err = node(t, set.CA, pairs[1]).Nodes("h2", check)
	require.NoError(t, err)
	_, err = shake(plain.Config(), client)
	require.Error(t, err)

	alone := files
	alone.ClientCA = ""
	s, err := certificate.Open(fsys, alone, func(error) {})
	require.NoError(t, err)
	_, _, err = s.Nodes("h2", check)
	require.ErrorContains(t, err, "need certificates with an authority")
}
