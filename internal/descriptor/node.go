package descriptor

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// NodeName is the name of the file that makes a store a node of a cluster.
const NodeName = "NODE"

// NodePath returns the path of NODE in a data directory.
func NodePath(dir string) string { return path.Join(dir, NodeName) }

// Node is the content of the file NODE: which node of which cluster the store is. It is
// written once the store and its part of the replicated log are complete, so a directory
// without it is no node, and must not vote.
type Node struct {
	StoreID uint64
	Cluster uint64 // drawn when the cluster is made: see NewID
	// Node is never used by another node of the cluster, nor again after the data of this
	// one is lost: a node that has forgotten what it voted for and acknowledged would do
	// both again, differently.
	Node uint64
	// Incarnation is that of the cluster, as this node knew it last.
	Incarnation kv.Incarnation
	// Members has the addresses, host and port, of the nodes that this one knew last, by id,
	// its own among them. Which of them belong to the group says the replicated log.
	Members map[uint64]string
}

// Bounds of what NODE holds.
const (
	MaxMembers      = 64
	MaxAddressBytes = 300
)

const (
	nodeMagic      = "kvd.node"
	nodeHeadBytes  = 40
	recoveredBytes = 12 // after the head, if the cluster was recovered
	maxNodeBytes   = nodeHeadBytes + recoveredBytes + MaxMembers*(10+MaxAddressBytes) + 4
	reservedNodeID = 1<<64 - 16 // those from here on have a meaning for the library
)

// NewID returns an id for a cluster or a node. It is drawn at random from 2^63, so that no node
// needs to remember which were used.
func NewID() uint64 {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // it never fails
		if id := binary.LittleEndian.Uint64(b[:]) >> 1; id != 0 {
			return id
		}
	}
}

// Check returns an error unless a NODE file can say it.
//
// Errors: kv.ErrInvalidArgument.
func (n *Node) Check() error {
	reason := ""
	switch {
	case n.Cluster == 0:
		reason = "it has no cluster"
	case n.Node == 0 || n.Node >= reservedNodeID:
		reason = fmt.Sprintf("%d is no id of a node", n.Node)
	case n.Members[n.Node] == "":
		reason = fmt.Sprintf("node %d has no address", n.Node)
	case len(n.Members) > MaxMembers:
		reason = fmt.Sprintf("%d nodes, want at most %d", len(n.Members), MaxMembers)
	}
	for id, address := range n.Members {
		switch {
		case id == 0 || id >= reservedNodeID:
			reason = fmt.Sprintf("%d is no id of a node; want 1 to %d", id, uint64(reservedNodeID-1))
		case address == "" || len(address) > MaxAddressBytes:
			reason = fmt.Sprintf("node %d has an address of %d bytes, want 1 to %d", id, len(address), MaxAddressBytes)
		}
	}
	if reason != "" {
		return fmt.Errorf("%w: node %d of cluster %016x: %s", kv.ErrInvalidArgument, n.Node, n.Cluster, reason)
	}
	return nil
}

// CheckAddress returns an error unless other machines can call a node at an address: HOST:PORT, where
// the host is a name or an IP address of one machine, and the port a number. Check accepts others,
// which earlier versions of kvd have written.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is no address of a node: want HOST:PORT", address)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	ip, noIP := netip.ParseAddr(host)
	switch {
	case err != nil || number == 0:
		return fmt.Errorf("%q is no address of a node: its port is %q, want a number from 1 to 65535", address, port)
	case host == "":
		return fmt.Errorf("%q is no address of a node: it has no host; want HOST:PORT, at which the other nodes reach this one", address)
	case noIP == nil && (ip.IsUnspecified() || ip.IsMulticast()):
		return fmt.Errorf("%q is no address of a node: %s means no single machine; give the name or an address of this one", address, host)
	case noIP != nil && strings.ContainsFunc(host, notInName):
		return fmt.Errorf("%q is no address of a node: %q is no name of a machine", address, host)
	case len(address) > MaxAddressBytes:
		return fmt.Errorf("an address of a node has %d bytes, want at most %d", len(address), MaxAddressBytes)
	}
	return nil
}

// notInName reports whether names of machines do not have a character.
func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
}

// LogID returns the id that the checksums of the node's log cover. It is that of the node and not
// that of the store, which is drawn again if the creation of a store is interrupted.
func (n *Node) LogID() uint64 {
	const odd = 0x9e37_79b9_7f4a_7c15
	return n.Cluster ^ n.Node*odd
}

// Encode returns the content of a NODE file, as the package comment shows it.
func (n *Node) Encode() []byte {
	b := append([]byte(nil), nodeMagic...)
	format, recovered := uint32(OldestNodeFormat), n.Incarnation != kv.Incarnation{}
	if recovered {
		format = NewestNodeFormat
	}
	b = binary.LittleEndian.AppendUint32(b, format)
	for _, id := range []uint64{n.StoreID, n.Cluster, n.Node} {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(n.Members)))
	if recovered {
		b = binary.LittleEndian.AppendUint32(b, n.Incarnation.Recoveries)
		b = binary.LittleEndian.AppendUint64(b, n.Incarnation.ID)
	}
	for _, id := range slices.Sorted(maps.Keys(n.Members)) {
		b = binary.LittleEndian.AppendUint64(b, id)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(n.Members[id])))
		b = append(b, n.Members[id]...)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// NodeFormatOf is FormatOf for NODE.
func NodeFormatOf(name string, head []byte) (uint32, error) { return formatOf(name, head, nodeMagic) }

// DecodeNode decodes the content of a NODE file; name is for its errors.
//
// Errors: a *kv.CorruptionError, or kv.ErrUnsupportedVersion.
func DecodeNode(name string, b []byte) (Node, error) {
	v, err := NodeFormatOf(name, b)
	head := nodeHeadBytes
	if v == NewestNodeFormat {
		head += recoveredBytes
	}
	switch {
	case err != nil:
		return Node{}, err
	case v > NewestNodeFormat:
		return Node{}, fmt.Errorf("%w: %s has format %d, this version reads up to %d", kv.ErrUnsupportedVersion, name, v, NewestNodeFormat)
	case len(b) < head+4 || len(b) > maxNodeBytes:
		return Node{}, kv.Corruptf(name, -1, "%d bytes, want %d to %d", len(b), head+4, maxNodeBytes)
	}
	sum := binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(b[:len(b)-4], castagnoli); got != sum {
		return Node{}, kv.Corruptf(name, 0, "checksum is %08x, computed %08x", sum, got)
	}
	n := Node{
		StoreID: binary.LittleEndian.Uint64(b[12:]), Cluster: binary.LittleEndian.Uint64(b[20:]), Node: binary.LittleEndian.Uint64(b[28:]),
		Members: map[uint64]string{},
	}
	if v == NewestNodeFormat {
		n.Incarnation = kv.Incarnation{Recoveries: binary.LittleEndian.Uint32(b[nodeHeadBytes:]), ID: binary.LittleEndian.Uint64(b[nodeHeadBytes+4:])}
	}
	rest := b[head : len(b)-4]
	for len(rest) >= 10 {
		id, length := binary.LittleEndian.Uint64(rest), int(binary.LittleEndian.Uint16(rest[8:]))
		if length > len(rest)-10 {
			break
		}
		n.Members[id] = string(rest[10 : 10+length])
		rest = rest[10+length:]
	}
	if err := n.Check(); err != nil {
		return Node{}, kv.Corruptf(name, 12, "%v", err)
	}
	if !bytes.Equal(n.Encode(), b) { // bytes are left, ids come twice or out of order
		return Node{}, kv.Corruptf(name, 36, "the list of nodes is not what kvd writes")
	}
	return n, nil
}

// ReadNode reads NODE in the data directory of a store.
//
// Errors: fs.ErrNotExist if the store is no node of a cluster; those of DecodeNode; a
// *kv.CorruptionError if the file belongs to another store.
func ReadNode(fsys vfs.FS, dir string, storeID uint64) (Node, error) {
	name := NodePath(dir)
	b, err := readWhole(fsys, name, maxNodeBytes)
	if err != nil {
		return Node{}, err
	}
	n, err := DecodeNode(name, b)
	if err == nil && n.StoreID != storeID {
		err = kv.Corruptf(name, 12, "belongs to store %016x, not to %016x: it was copied from another directory", n.StoreID, storeID)
	}
	return n, err
}

// WriteNode writes NODE, durably. That of another node of the same store is never replaced: a
// store that was one node cannot become another.
//
// Errors: kv.ErrInvalidArgument for content that Check refuses, or of another node; those of
// ReadNode and vfs.WriteAtomic.
func WriteNode(fsys vfs.FS, dir string, n *Node) error {
	if err := n.Check(); err != nil {
		return err
	}
	old, err := ReadNode(fsys, dir, n.StoreID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case old.Cluster != n.Cluster || old.Node != n.Node:
		return fmt.Errorf("%w: %s is node %d of cluster %016x, and cannot become node %d of cluster %016x; remove that node from its cluster and use an empty directory",
			kv.ErrInvalidArgument, dir, old.Node, old.Cluster, n.Node, n.Cluster)
	case old.Incarnation != n.Incarnation && old.Incarnation.Recoveries >= n.Incarnation.Recoveries:
		return fmt.Errorf("%w: %s is of incarnation %s of the cluster, and cannot become one of %s", kv.ErrInvalidArgument, dir, old.Incarnation, n.Incarnation)
	}
	return vfs.WriteAtomic(fsys, NodePath(dir), n.Encode())
}
