// Package servertest lets a test binary be the kvd server that its tests start.
package servertest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"go.uber.org/zap/zapcore"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Init is `kvd cluster init` as far as package server uses it: args are flags with values.
func Init(args []string) error {
	var data string
	node := descriptor.Node{Members: map[uint64]string{}}
	var err error
	for i := 0; i+1 < len(args) && err == nil; i += 2 {
		switch value := args[i+1]; args[i] {
		case "--data":
			data = value
		case "--node":
			node.Node, err = strconv.ParseUint(value, 10, 64)
		case "--cluster":
			node.Cluster, err = strconv.ParseUint(value, 16, 64)
		case "--members":
			for i, member := range strings.Split(value, ",") {
				_, node.Members[uint64(i+1)], _ = strings.Cut(member, "=")
			}
		}
	}
	if err != nil {
		return err
	}
	_, err = daemon.InitNode(vfs.OS, data, node, 2)
	return err
}

// Serve is `kvd serve` as far as package server uses it: args are flags with values, as words of
// their own or after an equals sign. It ends with SIGTERM.
func Serve(args []string) error {
	args = strings.Split(strings.Join(args, "="), "=")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config := daemon.DefaultConfig()
	for _, s := range config.Settings() {
		for i := 0; i < len(args); i += 2 {
			if s.Name == strings.TrimPrefix(args[i], "--") {
				if err := s.Set(args[i+1]); err != nil {
					return err
				}
			}
		}
	}
	config.Log = config.NewLog(zapcore.AddSync(os.Stderr), true)
	return daemon.Run(ctx, config, func(listen, admin net.Addr) {
		fmt.Printf("READY listen=%s admin=%s\n", listen, admin)
	})
}
