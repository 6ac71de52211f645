// Package torture proves the service from outside: it runs the real kvd binary,
// kills it with SIGKILL at random moments, and holds what it finds after each
// restart against what its own clients were told. There is no code here but
// tests.
//
// The oracle lives in the test's memory, so it survives the death of the server.
// KILL_CYCLES sets the number of kills (default 3; `make crash` does 100).
//
// Whether transactions are strictly serializable, over kills, pauses and retries,
// package history judges. SERIAL_TXNS sets the number of transactions (default
// 10,000; `make serializable` does a million).
package torture
