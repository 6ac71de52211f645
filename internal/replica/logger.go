package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
)

// libraryPanic is what the library panics with, by its logger, in a state that it finds
// impossible: an entry that this node acknowledged is gone, for example.
type libraryPanic string

func (p libraryPanic) Error() string { return string(p) }

// quietLogger drops the messages of the library.
type quietLogger struct{}

var _ raft.Logger = quietLogger{}

func (quietLogger) Debug(...any)            {}
func (quietLogger) Debugf(string, ...any)   {}
func (quietLogger) Info(...any)             {}
func (quietLogger) Infof(string, ...any)    {}
func (quietLogger) Warning(...any)          {}
func (quietLogger) Warningf(string, ...any) {}
func (quietLogger) Error(...any)            {}
func (quietLogger) Errorf(string, ...any)   {}

func (quietLogger) Fatal(v ...any)                 { impossible("%s", fmt.Sprint(v...)) }
func (quietLogger) Fatalf(format string, v ...any) { impossible(format, v...) }
func (quietLogger) Panic(v ...any)                 { impossible("%s", fmt.Sprint(v...)) }
func (quietLogger) Panicf(format string, v ...any) { impossible(format, v...) }

func impossible(format string, v ...any) { panic(libraryPanic(fmt.Sprintf(format, v...))) }
