package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/vfs"
)

func (a *app) certNodesCommand() *cobra.Command {
	dir, cluster, ids, force := "", "", []uint(nil), false
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Make a throw-away authority, and certificates for the nodes of a cluster",
		Long: "Make a throw-away authority, and certificates for the nodes of a cluster, to try it\n" +
			"on several machines. They are valid for 30 days (ECDSA P-256). The key of the\n" +
			"authority is not kept, so no further certificate can be made with it: run the\n" +
			"command again, and give all nodes the new files.\n\n" +
			"The certificate of node 3 has the URI kvd-node:CLUSTER/3, and no names of hosts.",
		Args: noArguments,
	}
	cmd.Flags().StringVar(&dir, "dir", "kvd-nodes", "directory for the files; created if it is missing")
	cmd.Flags().StringVar(&cluster, "cluster", "", "id of the cluster, as kvd cluster init has printed")
	cmd.Flags().UintSliceVar(&ids, "node", nil, "ids of the nodes")
	cmd.Flags().BoolVar(&force, "force", false, "replace certificates that are there")
	cmd.RunE = func(*cobra.Command, []string) error { return a.certNodes(dir, cluster, ids, force) }
	return cmd
}

func (a *app) certNodes(dir, cluster string, ids []uint, force bool) error {
	id, err := parseCluster(cluster)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return usagef("--node is missing; name all nodes, such as --node 1,2,3")
	}
	var nodes []uint64
	for _, n := range ids {
		if n == 0 {
			return usagef("--node 0: ids of nodes begin at 1")
		}
		nodes = append(nodes, uint64(n))
	}
	if err := checkFree(dir, force); err != nil {
		return err
	}
	ca, pairs, err := certificate.DevNodes(id, nodes, time.Now(), devLasts)
	if err != nil {
		return err
	}
	files := []certFile{{"ca.pem", ca}}
	for n, pair := range pairs {
		name := "node-" + strconv.FormatUint(n, 10)
		files = append(files, certFile{name + ".pem", pair.Certificate}, certFile{name + ".key", pair.Key})
	}
	if err := writeCertFiles(dir, files); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "certificates for nodes %v of cluster %016x in %s, valid for 30 days; for each node, such as %d:\n\n", nodes, id, dir, nodes[0])
	name := filepath.Join(dir, "node-"+strconv.FormatUint(nodes[0], 10))
	fmt.Fprintf(a.out, "kvd serve --cluster --cluster-cert %s.pem --cluster-key %s.key --cluster-ca %s\n", name, name, filepath.Join(dir, "ca.pem"))
	return nil
}

// certFile is a file with a certificate or a key.
type certFile struct {
	name string
	data []byte
}

func writeCertFiles(dir string, files []certFile) error {
	if err := vfs.OS.MkdirAll(dir); err != nil {
		return err
	}
	if err := vfs.SyncParents(vfs.OS, dir); err != nil {
		return err
	}
	for _, f := range files {
		if err := vfs.Replace(vfs.OS, filepath.Join(dir, f.name), f.data); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}
