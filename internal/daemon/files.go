package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/certificate"
	"github.com/kvd-db/kvd/internal/livefile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// openFiles reads the files that may be replaced while the process runs.
func (s *process) openFiles() (err error) {
	if err := s.openTokens(); err != nil {
		return err
	}
	if err := s.openClusterTLS(); err != nil {
		return err
	}
	c := &s.config
	if c.TLSCert == "" {
		return s.openAudit()
	}
	files := certificate.Files{Certificate: c.TLSCert, Key: c.TLSKey, ClientCA: c.ClientCA, ClientOptional: c.Tokens != ""}
	s.tls, err = certificate.Open(vfs.OS, files, func(err error) {
		if err != nil {
			s.log.Error("new certificates cannot be used; the old ones are served", zap.Error(err))
			return
		}
		s.log.Info("new certificates are served", zap.Time("expire", s.tls.Ends()))
	})
	if err != nil {
		err = fmt.Errorf("%w: TLS: %w", ErrUsage, err)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; kvd cert dev makes certificates to try it", err)
		}
		return err
	}
	const others = 0o007
	if info, _, err := vfs.StatFollowed(vfs.OS, c.TLSKey); err == nil && info.Mode().Perm()&others != 0 {
		s.log.Warn("every user of this machine may read the server's private key, and pass for the server; chmod it to 0600",
			zap.String("key", c.TLSKey), zap.String("mode", fmt.Sprintf("%04o", info.Mode().Perm())))
	}
	return s.openAudit()
}

// openAudit opens the audit log.
func (s *process) openAudit() (err error) {
	if s.config.AuditLog == "" {
		return nil
	}
	s.audited, err = audit.Open(vfs.OS, s.config.AuditLog, audit.DefaultMaxBytes, func(err error) {
		s.log.Error("lines of the audit log are lost", zap.Error(err))
	})
	if err != nil {
		return fmt.Errorf("%w: --audit-log: %w", ErrUsage, err)
	}
	return nil
}

// audit returns nil if there is no audit log.
func (s *process) audit() func(audit.Event) {
	if s.audited == nil {
		return nil
	}
	return s.audited.Add
}

// closeAudit writes what is waiting, unless the disk may hang.
func (s *process) closeAudit() {
	if s.audited == nil || s.abandoned() {
		return
	}
	if err := s.audited.Close(); err != nil {
		s.log.Warn("closing the audit log", zap.Error(err))
	}
}

// openTokens opens what the clients are known by: tokens, certificates, or both.
func (s *process) openTokens() (err error) {
	name := s.config.Tokens
	if name == "" {
		if s.config.ClientCA != "" {
			s.auth = auth.ForCertificates()
		}
		return nil
	}
	s.auth, err = auth.Open(vfs.OS, name, func(err error) {
		if err != nil {
			s.log.Error("the new token file cannot be used; the old identities count", zap.Error(err))
			return
		}
		s.log.Info("the new token file counts", zap.Int("identities", s.auth.Identities()))
	})
	if err != nil {
		return fmt.Errorf("%w: --tokens: %w; kvd token new makes one", ErrUsage, err)
	}
	if s.config.TLSCert == "" {
		s.log.Warn("tokens travel in plain text: a process that can read the network can use them; pass --tls-cert and --tls-key")
	}
	return nil
}

// tlsConfig returns nil for plain text.
func (s *process) tlsConfig() *tls.Config {
	if s.tls == nil {
		return nil
	}
	return s.tls.Config()
}

// watchers returns what can be told to look at its files.
func (s *process) watchers() (all []*livefile.Watcher) {
	if s.tls != nil {
		all = append(all, s.tls.Watcher)
	}
	if s.cluster.tls != nil {
		all = append(all, s.cluster.tls.Watcher)
	}
	if s.auth != nil && s.auth.Watcher != nil {
		all = append(all, s.auth.Watcher)
	}
	return all
}

// endWatching bounds the wait for a poll that is under way when the service ends: files on
// a network may hang.
const endWatching = time.Second

// watchFiles has files that change read again, until the returned function is called.
func (s *process) watchFiles() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, w := range s.watchers() {
		running.Go(func() { w.Run(ctx) })
	}
	running.Go(func() { s.obeyHangups(ctx) })
	return func() {
		cancel()
		ended := make(chan struct{})
		go func() {
			running.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(endWatching):
		}
	}
}

func (s *process) obeyHangups(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.config.Hangups:
		}
		s.reload()
	}
}

// reload reads all files again that may change while the service runs.
func (s *process) reload() {
	all := s.watchers()
	if len(all) == 0 && s.config.Reread == nil {
		s.log.Warn("SIGHUP is ignored: there are no certificates, no tokens and no configuration file to read again; to change settings, stop the server with SIGTERM and start it again")
		return
	}
	for _, w := range all {
		w.Reload()
	}
	if s.config.Reread != nil {
		s.reread()
	}
	s.log.Info("SIGHUP: files were read again")
}
