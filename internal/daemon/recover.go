package daemon

import (
	"errors"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/replicated"
	"github.com/kvd-db/kvd/internal/vfs"
)

// RecoverNode makes a stopped node the only one of its cluster, if decide says so of the plan,
// and returns the node: for a cluster that has lost a majority of its nodes for ever.
//
// Errors: fs.ErrNotExist if the directory is no node; those of engine.Open; those of
// replica.PlanRecovery.
func RecoverNode(fsys vfs.FS, dir string, decide func(descriptor.Node, *replica.Recovery) bool) error {
	node, _, err := readNode(fsys, dir)
	if err != nil {
		return err
	}
	log := replicated.New(replicated.Config{
		Cluster: node.Cluster, Node: node.Node, Addresses: node.Members,
		Recover: func(plan *replica.Recovery) bool { return decide(node, plan) },
	})
	e, err := engine.Open(dir, engine.Options{FS: fsys, Replicated: log})
	switch {
	case err == nil: // a log that was opened to recover does not start
		return e.Close()
	case errors.Is(err, replicated.ErrRecovery):
		return nil
	}
	return err
}
