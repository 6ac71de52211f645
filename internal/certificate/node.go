package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// nodeScheme is that of the URI in the certificate of a node of a cluster:
// kvd-node:0123456789abcdef/3 is node 3 of a cluster.
const nodeScheme = "kvd-node"

// Node names a node of a cluster.
type Node struct {
	Cluster, ID uint64
}

// URI returns what the certificate of the node has as its only URI.
func (n Node) URI() *url.URL {
	return &url.URL{Scheme: nodeScheme, Opaque: fmt.Sprintf("%016x/%d", n.Cluster, n.ID)}
}

func (n Node) String() string { return n.URI().String() }

// ParseNode is the inverse of Node.String. It accepts only its spelling.
func ParseNode(s string) (n Node, err error) {
	text, scheme := strings.CutPrefix(s, nodeScheme+":")
	cluster, id, cut := strings.Cut(text, "/")
	if scheme && cut && len(cluster) == 16 {
		n.Cluster, err = strconv.ParseUint(cluster, 16, 64)
		if err == nil {
			n.ID, err = strconv.ParseUint(id, 10, 64)
		}
		if err == nil && n.ID != 0 && n.String() == s {
			return n, nil
		}
	}
	return Node{}, fmt.Errorf("%q is no name of a node: want %s:CLUSTER/NODE, the cluster with 16 hexadecimal digits", s, nodeScheme)
}

// NodeOf returns the node whose certificate it is.
func NodeOf(c *x509.Certificate) (Node, error) {
	if len(c.URIs) != 1 {
		return Node{}, fmt.Errorf("the certificate of %q has %d URIs, want one: that of its node", c.Subject.CommonName, len(c.URIs))
	}
	return ParseNode(c.URIs[0].String())
}

var errNoAuthority = errors.New("nodes of a cluster need certificates with an authority: name the file of its certificate")

// Nodes returns configurations for connections between the nodes of a cluster, which are both
// servers and clients. Either side has to have a certificate of the authorities in ClientCA;
// which node it is says NodeOf. Host names are not compared: a node may move to another
// address. Both configurations take what is in use for each handshake.
//
// check judges the certificate of the server; a nil error accepts it.
func (s *Server) Nodes(protocol string, check func(server Node) error) (server, client *tls.Config, err error) {
	if s.files.ClientCA == "" || s.files.ClientOptional {
		return nil, nil, errNoAuthority
	}
	server = &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := s.current.Load().config.Clone()
			c.NextProtos = []string{protocol}
			return c, nil
		},
	}
	client = &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{protocol},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &s.current.Load().config.Certificates[0], nil
		},
		// VerifyConnection verifies the chain, and which node it is in place of the host name.
		InsecureSkipVerify: true,
		VerifyConnection: func(c tls.ConnectionState) error {
			if err := s.verify(c.PeerCertificates, x509.ExtKeyUsageServerAuth); err != nil {
				return err
			}
			node, err := NodeOf(c.PeerCertificates[0])
			if err != nil {
				return err
			}
			return check(node)
		},
	}
	return server, client, nil
}

// verify verifies a chain of certificates, the first of which is that of the other side.
func (s *Server) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage) error {
	options := x509.VerifyOptions{
		Roots: s.current.Load().config.ClientCAs, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage},
	}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(options)
	return err
}

// DevNodes makes an authority, and a certificate for each node of a cluster, all valid from now
// on for a time.
func DevNodes(cluster uint64, ids []uint64, now time.Time, lasts time.Duration) (ca []byte, nodes map[uint64]Pair, err error) {
	a, err := newAuthority(now, lasts)
	if err != nil {
		return nil, nil, err
	}
	nodes = make(map[uint64]Pair)
	for _, id := range ids {
		t := template(fmt.Sprintf("kvd dev node %d", id), now, lasts)
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		t.URIs = []*url.URL{Node{cluster, id}.URI()}
		if nodes[id], err = a.sign(t); err != nil {
			return nil, nil, err
		}
	}
	return encode("CERTIFICATE", a.der), nodes, nil
}
