// Package torture tests the service from outside: it runs the real kvd binary, kills it
// with SIGKILL at random moments, and compares the store after each restart with the
// answers that its clients got. It contains only tests.
//
// The oracle is in the test's memory, so it survives the server. KILL_CYCLES sets the
// number of kills (default 3; `make crash` does 100).
//
// Package history checks that transactions are strictly serializable, across kills, pauses
// and retries. SERIAL_TXNS sets the number of transactions (default 10,000;
// `make serializable` does a million).
//
// TestNemesis does the same to the nodes of a cluster, and cuts them off from each other. NEMESIS
// sets how long (default: each fault once; `make nemesis` goes on for ten minutes), NEMESIS_FAULTS
// which (a part of their names), NEMESIS_NODES how many nodes there are, 3 (the default) or 5.
package torture
