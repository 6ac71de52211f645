package kvd_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc/test/bufconn"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/server"
	"github.com/kvd-db/kvd/internal/server/servertest"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// The examples speak to a server in memory in place of one at this address.
const address = "localhost:7070"

// memory runs a server until stop is called, and is the way to it.
func memory() (way kvd.Option, stop func()) {
	l := bufconn.Listen(1 << 16)
	s := server.New(servertest.New(kv.DefaultLimits), server.Options{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	stop = func() {
		if err := errors.Join(s.Shutdown(context.Background()), <-served); err != nil {
			log.Fatal(err)
		}
	}
	return kvd.WithDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }), stop
}

func Example() {
	inMemory, stop := memory()
	defer stop()

	ctx := context.Background()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	if err := db.Put(ctx, []byte("greeting"), []byte("hello"), kvd.Durable(kvd.Sync)); err != nil {
		log.Fatal(err)
	}
	value, err := db.Get(ctx, []byte("greeting"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(value))
	// Output: hello
}

func ExampleClient_Get() {
	inMemory, stop := memory()
	defer stop()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	_, err = db.Get(context.Background(), []byte("nothing here"))
	fmt.Println(errors.Is(err, kvd.ErrNotFound))
	// Output: true
}

func ExampleClient_Apply() {
	inMemory, stop := memory()
	defer stop()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	var batch kvd.Batch
	batch.Put([]byte("account/alice"), []byte("90")).
		Put([]byte("account/bob"), []byte("110")).
		Delete([]byte("transfer/1"))
	version, err := db.Apply(context.Background(), &batch)
	if err != nil {
		log.Fatal(err) // none of it happened, unless errors.Is(err, kvd.ErrUncertain)
	}
	fmt.Println("all of it at version", version)
	// Output: all of it at version 1
}

func ExampleClient_Scan() {
	inMemory, stop := memory()
	defer stop()
	ctx := context.Background()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	for _, user := range []string{"user/ada", "user/grace", "visit/1"} {
		if err := db.Put(ctx, []byte(user), []byte("here")); err != nil {
			log.Fatal(err)
		}
	}

	for item, err := range db.Scan(ctx, kvd.Prefix([]byte("user/")), kvd.Limit(10)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s = %s\n", item.Key, item.Value)
	}
	// Output:
	// user/ada = here
	// user/grace = here
}
