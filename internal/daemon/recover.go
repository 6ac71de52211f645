package daemon

import (
	"errors"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/replicated"
	"github.com/kvd-db/kvd/internal/vfs"
)

// RecoverNode makes a stopped node the only one of its cluster, if decide says so of the plan: for a
// cluster that has lost a majority of its nodes for ever. The cluster then has the incarnation that
// decide is told with the node. It is part of the changes in the log, which all nodes that join later
// get, and is noted in NODE; if that is not done because the call is interrupted, the node does it when
// it runs.
//
// Errors: fs.ErrNotExist if the directory is no node; those of engine.Open; those of
// replica.PlanRecovery.
func RecoverNode(fsys vfs.FS, dir string, decide func(descriptor.Node, *replica.Recovery) bool) error {
	node, _, err := readNode(fsys, dir)
	if err != nil {
		return err
	}
	recovered, changes := node, false
	recovered.Incarnation = kv.Incarnation{Recoveries: node.Incarnation.Recoveries + 1, ID: descriptor.NewID()}
	log := replicated.New(replicated.Config{
		Cluster: node.Cluster, Node: node.Node, Addresses: node.Members, Recovered: recovered.Incarnation,
		Recover: func(plan *replica.Recovery) bool {
			decided := decide(recovered, plan)
			changes = decided && len(plan.Others) > 0
			return decided
		},
	})
	e, err := engine.Open(dir, engine.Options{FS: fsys, Replicated: log})
	switch {
	case err == nil: // a log that was opened to recover does not start
		return e.Close()
	case !errors.Is(err, replicated.ErrRecovery):
		return err
	case changes:
		return descriptor.WriteNode(fsys, dir, &recovered)
	}
	return nil
}
