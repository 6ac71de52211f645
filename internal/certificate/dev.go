package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"time"
)

// Pair is a certificate and its private key, as PEM.
type Pair struct{ Certificate, Key []byte }

// DevSet are certificates to try TLS with.
type DevSet struct {
	CA      []byte // the authority's certificate, as PEM; its key is kept nowhere
	Server  Pair
	Clients map[string]Pair // by name
}

// Dev makes an authority, a certificate for a server with the names or addresses, and one
// for each client, all valid from now on for a time. A client called app has the URI
// kvd:app.
func Dev(hosts, clients []string, now time.Time, lasts time.Duration) (*DevSet, error) {
	a, err := newAuthority(now, lasts)
	if err != nil {
		return nil, err
	}
	set := &DevSet{CA: encode("CERTIFICATE", a.der), Clients: make(map[string]Pair)}

	server := template("kvd dev server", now, lasts)
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, host)
		}
	}
	if set.Server, err = a.sign(server); err != nil {
		return nil, err
	}
	for _, name := range clients {
		client := template(name, now, lasts)
		client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		client.URIs = []*url.URL{{Scheme: "kvd", Opaque: url.PathEscape(name)}}
		if set.Clients[name], err = a.sign(client); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// clockSkew is by how much the clock of another machine may be late.
const clockSkew = 5 * time.Minute

func template(name string, now time.Time, lasts time.Duration) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes([]byte(rand.Text())[:16]),
		Subject:      pkix.Name{CommonName: name, Organization: []string{"kvd dev"}},
		NotBefore:    now.Add(-clockSkew), NotAfter: now.Add(lasts),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// authority signs certificates. Its key is kept nowhere.
type authority struct {
	template *x509.Certificate
	key      *ecdsa.PrivateKey
	der      []byte // its own certificate
}

func newAuthority(now time.Time, lasts time.Duration) (*authority, error) {
	t := template("kvd dev CA", now, lasts)
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	return &authority{t, key, der}, err
}

func (a *authority) sign(t *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.template, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{encode("CERTIFICATE", der), encode("PRIVATE KEY", private)}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
