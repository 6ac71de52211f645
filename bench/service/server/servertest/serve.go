// Package servertest lets a test binary be the kvd server that its tests start.
package servertest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"go.uber.org/zap/zapcore"

	"github.com/kvd-db/kvd/internal/daemon"
)

// Serve is `kvd serve` as far as package server uses it: args are flags with values. It
// ends with SIGTERM.
func Serve(args []string) error {
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
