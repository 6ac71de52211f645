package main

import (
	"context"
	"errors"
	"net"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/workload"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// serverTarget is a server in this process, and a client that asks it over a connection of
// the loopback network.
type serverTarget struct {
	storeTarget
	engine *engineTarget
	server *service.Server
	served chan error
	frames uint64 // received before the last measurement
}

func openServer(o *targetOptions) (_ workload.Target, _ targetInfo, err error) {
	target, info, err := openEngine(o)
	if err != nil {
		return nil, targetInfo{}, err
	}
	e := target.(*engineTarget)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, targetInfo{}, errors.Join(err, e.Close())
	}
	t := &serverTarget{
		engine: e, served: make(chan error, 1),
		server: service.New(daemon.Store(e.engine), service.Options{}, daemon.Protocols()...),
	}
	go func() { t.served <- t.server.Serve(listener) }()
	options := []kvd.Option{kvd.WithDurability(kvd.Durability(o.level)), kvd.WithTimeout(0)}
	if r := o.reads; r != nil {
		options = append(options, kvd.WithBatching(kvd.Batching{Disabled: r.Alone, MaxOps: r.Size}))
	}
	client, err := kvd.Open(listener.Addr().String(), options...)
	if err != nil {
		return nil, targetInfo{}, errors.Join(err, t.closeServer())
	}
	t.store = client
	info.Kind, info.Address = "server in this process", listener.Addr().String()
	return t, info, nil
}

func (t *serverTarget) Close() error { return errors.Join(t.store.Close(), t.closeServer()) }

func (t *serverTarget) closeServer() error {
	return errors.Join(t.server.Shutdown(context.Background()), <-t.served, t.engine.Close())
}

func (t *serverTarget) DiskBytes() (int64, error) { return t.engine.DiskBytes() }

// begin implements staged.
func (t *serverTarget) begin() {
	t.storeTarget.begin()
	t.engine.begin()
	t.frames = t.server.Stats().RawFrames
}

// state implements describing.
func (t *serverTarget) state() *results.StoreState { return t.engine.state() }

func (t *serverTarget) activity() *activity {
	a := t.engine.activity()
	a.ReadsPerFrame = quotient(t.engine.counters().reads-t.engine.before.reads, t.server.Stats().RawFrames-t.frames)
	return a
}
