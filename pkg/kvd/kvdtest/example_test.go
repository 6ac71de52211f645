package kvdtest_test

import (
	"testing"

	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

// A test of what a program does while a node fails.
func ExampleNewCluster() {
	_ = func(t *testing.T) { // func TestGreetingWithoutALeader(t *testing.T) {
		cluster := kvdtest.NewCluster(t, 3)
		db := cluster.Client()
		cluster.Kill(cluster.Leader())
		if err := db.Put(t.Context(), []byte("greeting"), []byte("Hello")); err != nil {
			t.Fatal(err) // the client finds the next leader
		}
	}
}

// A test of code that uses a kvd client.
func ExampleNew() {
	_ = func(t *testing.T) { // func TestGreeting(t *testing.T) {
		db := kvdtest.New(t)
		if err := db.Put(t.Context(), []byte("greeting"), []byte("Hello")); err != nil {
			t.Fatal(err)
		}
		if got := greet(t, db, "Ada"); got != "Hello, Ada!" {
			t.Errorf("got %q", got)
		}
	}
}
