package service_test

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
)

// lines is all that a new protocol needs: requests of one line, "get k", "put k v" and
// "del k", and answers of one line, "ok ..." or the reason and the message of an error.
type lines struct {
	server        *service.Server
	get, put, del *service.Method
}

func newLines(s *service.Server) service.Protocol {
	return &lines{s, s.Method("Line.Get", service.Reads, service.ByKey), s.Method("Line.Put", service.Writes, service.ByKey), s.Method("Line.Delete", service.Writes, service.ByKey)}
}

func (p *lines) ALPN() string            { return "kvd-lines" }
func (p *lines) Matches(first byte) bool { return strings.IndexByte("gpd", first) >= 0 }

func (p *lines) Serve(conn *service.Conn) {
	l := &lineConn{lines: p, Conn: conn}
	defer func() { _ = conn.Close() }()
	if why := conn.Refused(); why != nil {
		l.answer("", why)
		return
	}
	ctx, cancel := context.WithCancel(service.WithConn(p.server.Working(), conn))
	defer cancel()
	for _, ends := range []context.Context{p.server.Draining(), ctx} { // either ends the wait for a line
		stop := context.AfterFunc(ends, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
	}
	if conn.SetDeadline(time.Time{}) != nil {
		return
	}
	conn.Use(l)
	for in := bufio.NewScanner(conn); in.Scan(); {
		conn.Moved()
		l.busy.Store(true)
		l.serve(ctx, strings.Fields(in.Text()))
		l.busy.Store(false)
	}
}

// lineConn is a connection as what may be evicted.
type lineConn struct {
	*lines
	*service.Conn
	busy atomic.Bool
}

func (l *lineConn) InUse() bool { return l.busy.Load() }
func (l *lineConn) Evict()      { l.answer("", service.Evicted); _ = l.Close() }

func (l *lineConn) answer(value string, why *service.Error) {
	if why != nil {
		_, _ = fmt.Fprintf(l.Conn, "%s %s\n", why.Reason, why.Message)
		return
	}
	_, _ = fmt.Fprintf(l.Conn, "ok %s\n", value)
}

func (l *lineConn) serve(ctx context.Context, words []string) {
	c := &service.Call{Begun: time.Now()}
	c.Budget.Charge(l.server.Memory())
	defer c.Budget.Return()
	ctx, cancel := context.WithTimeout(ctx, l.server.Options().Deadline)
	defer cancel()
	var m *service.Method
	var value string
	var err error
	switch {
	case len(words) == 2 && words[0] == "get":
		read := kv.Lookup{Key: []byte(words[1])}
		m, err = l.get, l.server.Get(ctx, c, &read, 0)
		value = string(read.Value)
	case len(words) == 3 && words[0] == "put":
		m, err = l.put, l.write(ctx, c, kv.Op{Kind: kv.KindPut, Key: []byte(words[1]), Value: []byte(words[2])})
	case len(words) == 2 && words[0] == "del":
		m, err = l.del, l.write(ctx, c, kv.Op{Kind: kv.KindDelete, Key: []byte(words[1])})
	default:
		m, err = l.get, service.Invalidf("want get, put or del")
	}
	var why *service.Error
	if err != nil {
		why = l.server.Failure(m, err)
	}
	l.answer(value, why)
	code := service.CodeOf(err)
	if why != nil {
		code = why.Code
	}
	m.Count(code, 1)
	if c.Store() > 0 {
		l.server.Finish(l.Conn, m, code, c, func() (load service.Load) {
			load.Add([]byte(words[1]), 0)
			return load
		})
	}
}

func (l *lineConn) write(ctx context.Context, c *service.Call, op kv.Op) error {
	w := kv.Write{Op: op}
	if err := l.server.CheckWrite(&c.Caller, &w, new(kv.Condition), 0, false); err != nil {
		return err
	}
	return l.server.WriteOne(ctx, c, &w)
}
